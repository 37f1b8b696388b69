"""T44: Delivered twice

What: the network delivers one request a second time.
Why: Proxies and load balancers retry by themselves. Only a key on the wire helps.
Right: one effect, where the service honours keys.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Delivered twice"
TEMPERAMENTS = ("keys",)
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("twice", wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish)]
