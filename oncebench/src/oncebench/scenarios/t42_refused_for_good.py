"""T42: The service refuses

What: the service says 400: it did nothing, and never will.
Why: A clear no needs no person.
Right: no effect, and the caller is told of the failure.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The service refuses"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("400 before", wish)
    worker.call(wish)
    return [stage.expect(wish, effects=0, ends=frozenset({"failed", "raised"}), knowable=True)]
