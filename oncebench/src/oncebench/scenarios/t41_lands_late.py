"""T41: The request lands late

What: the connection is reset, and the request lands seconds later, within the time that the
service names. The caller retries at once.
Why: A service that is asked too early says no, and it happens all the same.
Right: one effect. Who asks must wait, or ask again.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage
from oncebench.world import LANDS_WITHIN_S

TITLE = "The request lands late"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("late", wish, late_s=LANDS_WITHIN_S * 0.8)
    worker.call(wish)
    worker.call(wish)
    stage.world.effects()
    stage.settle(wish)
    return [stage.expect(wish)]
