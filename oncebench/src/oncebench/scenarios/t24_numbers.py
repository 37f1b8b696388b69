"""T24: 1 and 1.0

What: a wish is repeated with 1.0 where it said 1.
Why: Models and JSON do not keep the difference.
Right: one effect. To be told of a conflict is right, too.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "1 and 1.0"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    one = Wish(name="1", order="o1", amount=1)
    same = Wish(name="1.0", order="o1", amount=1.0)
    worker = stage.start()
    worker.call(one)
    worker.call(same)
    told = frozenset({"done", "happened", "conflict"})
    return [
        stage.expect(one, knowable=True, faults=0),
        stage.expect(same, ends=told, knowable=True),
    ]
