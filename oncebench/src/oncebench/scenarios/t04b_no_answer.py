"""T04b: The answer never comes

What: the service does it, and the caller gives up waiting.
Why: A time-out says nothing about what happened.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The answer never comes"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("no answer", wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish)]
