"""T32: The process that has the result is asked for another amount

What: as T06, by the very process that paid.
Why: A cache in the process answers before the arguments are compared.
Right: no second effect, and the second caller is told of the conflict.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import other_amount
from oncebench.stage import Stage

TITLE = "The process that has the result is asked for another amount"
TEMPERAMENTS = ("deaf",)
NEEDS = ("business_key", "conflict")
QUICK = False


def play(stage: Stage) -> list[Expected]:
    worker = stage.start()
    return other_amount(stage, worker, by=worker)
