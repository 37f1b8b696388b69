"""T41b: Killed, and the request lands late

What: the process is killed when its request is at the service, and the request lands seconds later,
within the time that the service names. Another process takes over as soon as it may.
Why: Who takes over asks, hears no, and sends again what is on its way.
Right: one effect. Who asks must wait, or ask again.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage
from oncebench.world import LANDS_WITHIN_S

TITLE = "Killed, and the request lands late"
TEMPERAMENTS = ("asks",)
NEEDS = ()
QUICK = True
PASS_S = 1.3  # a lease is over then, and the request may still land


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker, other = stage.start(), stage.start()
    stage.arm("late", wish, worker, late_s=LANDS_WITHIN_S * 0.8)
    worker.call(wish)
    stage.settle(wish, worker=other, tries=5)
    return [stage.expect(wish)]
