"""T06: The same key, another amount

What: an order was paid. A second wish for the same order asks for another amount.
Why: A silent replay reports an amount that was never paid; a second payment is a duplicate.
Right: no second effect, and the second caller is told of the conflict.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import other_amount
from oncebench.stage import Stage

TITLE = "The same key, another amount"
TEMPERAMENTS = ("deaf",)
NEEDS = ("business_key", "conflict")
QUICK = False


def play(stage: Stage) -> list[Expected]:
    return other_amount(stage, stage.start(), by=stage.start())
