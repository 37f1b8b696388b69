"""T04c: Half of the answer comes

What: the service does it, and the connection ends in the middle of the answer.
Why: The error looks like a bad answer, not like a lost one.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Half of the answer comes"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("truncated", wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish)]
