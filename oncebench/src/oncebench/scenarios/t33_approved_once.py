"""T33: One approval, six processes

What: six processes have the same call, which waits for a person, who says yes once. All six go on
with it at the same moment. Another call waits too, and nobody answers it.
Why: An approval that each of them may use is six effects.
Right: one effect, and all six are told so. What nobody approved was not sent.
"""

from __future__ import annotations

from oncebench.checker import UNSENT, Expected
from oncebench.kit import Wish
from oncebench.scenarios._bodies import all_at_once
from oncebench.stage import Stage

TITLE = "One approval, six processes"
TEMPERAMENTS = ("deaf",)
NEEDS = ("approval",)
QUICK = True


def play(stage: Stage) -> list[Expected]:
    other = Wish(name="not approved", order="o2")
    wishes = [Wish(name=f"caller {n}", order="o1") for n in range(6)]
    workers = [stage.start() for _ in wishes]
    for worker, wish in zip(workers, wishes, strict=True):
        worker.call(wish)  # it waits; and what each process loads at its first call is there
    workers[0].call(other)
    workers[0].approve(wishes[0])
    all_at_once(stage, workers, wishes)
    workers[0].call(other)
    refused = stage.expect(other, effects=0, ends=UNSENT, knowable=True)
    return [refused, *(stage.expect(wish, knowable=True) for wish in wishes)]
