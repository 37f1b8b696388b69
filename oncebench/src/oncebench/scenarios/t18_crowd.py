"""T18: Six processes at once

What: six processes have the same wish at the same moment.
Why: Check-then-act, and locks that are let go too early.
Right: one effect, and all six are told so.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.scenarios._bodies import all_at_once
from oncebench.stage import Stage

TITLE = "Six processes at once"
TEMPERAMENTS = ("deaf", "transaction")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wishes = [Wish(name=f"caller {n}", order="o1") for n in range(6)]
    workers = [stage.start() for _ in wishes]
    all_at_once(stage, workers, wishes)
    return [stage.expect(wish, knowable=True) for wish in wishes]
