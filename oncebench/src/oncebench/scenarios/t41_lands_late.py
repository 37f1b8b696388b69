"""T41: The request lands late

What: the connection is reset, and the request lands seconds later. The caller retries at once.
Why: A service that is asked too early says no, and it happens all the same.
Right: one effect. Who asks must wait, or ask again.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The request lands late"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("late", wish, late_s=5)
    worker.call(wish)
    worker.call(wish)
    stage.world.release()
    stage.world.effects()
    stage.settle(wish)
    return [stage.expect(wish)]
