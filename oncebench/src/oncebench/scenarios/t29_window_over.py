"""T29: The service has forgotten the key

What: the answer is lost. The retry comes after the window in which the service honours keys.
Why: A key is a promise with an end; a retry after it is a second effect.
Right: no second effect. Nothing can know, so a person is right.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The service has forgotten the key"
TEMPERAMENTS = ("keys",)
NEEDS = ()
QUICK = False
WINDOW_S = 2.0


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("reset after", wish)
    worker.call(wish)
    stage.let_leases_end()
    stage.let_leases_end()
    stage.settle(wish)
    return [stage.expect(wish, knowable=False)]
