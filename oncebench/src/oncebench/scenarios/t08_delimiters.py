"""T08: Separators in the arguments

What: ("a|b", note "c") and ("a", note "b|c") are two wishes. So are "a:1" and "a".
Why: Keys that are joined text collide.
Right: each happens.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Separators in the arguments"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wishes = [
        Wish(name="one", order="a|b", note="c"),
        Wish(name="two", order="a", note="b|c"),
        Wish(name="three", order="a:100", note=""),
        Wish(name="four", order='a","amount":100', note=""),
    ]
    worker = stage.start()
    for wish in wishes:
        worker.call(wish)
    return [stage.expect(wish, knowable=True, faults=0) for wish in wishes]
