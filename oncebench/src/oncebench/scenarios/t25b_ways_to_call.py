"""T25b: Three ways to call it

What: f("o1", 100, ""), f(order="o1", amount=100, note="") and f("o1", 100) are one wish.
Why: Models, tests and frameworks pass arguments differently.
Right: one effect.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Three ways to call it"
TEMPERAMENTS = ("deaf",)
NEEDS = ("functions",)
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", shape="positional")
    worker = stage.start()
    worker.call(wish)
    worker.call(Wish(name="pay", order="o1", shape="keywords"))
    worker.call(Wish(name="pay", order="o1", shape="defaults"))
    return [stage.expect(wish, knowable=True, faults=0)]
