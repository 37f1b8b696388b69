"""T12: Results that are empty

What: tools return [], "", 0, False and None. Each is called twice.
Why: A test for truth takes an empty result for none.
Right: one effect each, and the second caller gets the very same value.
"""

from __future__ import annotations

from typing import Any

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Results that are empty"
TEMPERAMENTS = ("deaf",)
NEEDS = ("results",)
QUICK = False


def play(stage: Stage) -> list[Expected]:
    values: tuple[Any, ...] = ([], "", 0, False, None)
    wishes = [
        Wish(name=repr(value), order=f"o{index}", returns={"value": value})
        for index, value in enumerate(values)
    ]
    worker, other = stage.start(), stage.start()
    for wish in wishes:
        worker.call(wish)
        other.call(wish)
    return [
        stage.expect(wish, result={"value": value}, knowable=True, faults=0)
        for wish, value in zip(wishes, values, strict=True)
    ]
