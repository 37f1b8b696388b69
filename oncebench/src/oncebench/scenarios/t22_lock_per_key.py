"""T22: One slow call does not stop others

What: one order takes long. Another order is asked for meanwhile.
Why: A global lock makes one slow service stop everything.
Right: the second is done while the first still runs.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "One slow call does not stop others"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    slow = Wish(name="slow", order="o1", timeout_s=20)
    quick = Wish(name="quick", order="o2")
    first, second = stage.start(), stage.start()
    stage.arm("hold", slow)
    first.begin(slow)
    stage.world.wait_for_request(1)
    second.call(quick)
    stage.world.release()
    first.finish()
    return [stage.expect(slow, knowable=True, faults=0), stage.expect(quick, knowable=True)]
