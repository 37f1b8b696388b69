"""T11: 500, and it happened

What: the service does it, then fails while it answers.
Why: A 500 does not say that nothing happened.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "500, and it happened"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("500 after", wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish)]
