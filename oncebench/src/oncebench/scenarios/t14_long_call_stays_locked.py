"""T14: A second call while the first runs

What: a call takes its time. Another process calls.
Why: Timers that know nothing of the call let the second one run.
Right: one effect, and both callers get the result.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "A second call while the first runs"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False
LEASE_S = 30.0
PASS_S = 1.0


def play(stage: Stage) -> list[Expected]:
    first_wish = Wish(name="first", order="o1", timeout_s=20)
    second_wish = Wish(name="second", order="o1", timeout_s=20)
    first, second = stage.start(), stage.start()
    stage.arm("hold", first_wish)
    first.begin(first_wish)
    stage.world.wait_for_request(1)
    second.begin(second_wish)
    stage.let_leases_end()
    stage.world.release()
    first.finish()
    second.finish()
    stage.settle(second_wish, worker=second)
    return [stage.expect(first_wish, knowable=True), stage.expect(second_wish, knowable=True)]
