"""T07: Two tools of one name

What: two modules each have a tool `pay`. Both are called for the same order.
Why: A key of the bare name gives one tool the result of the other.
Right: both happen, each once.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Two tools of one name"
TEMPERAMENTS = ("deaf",)
NEEDS = ("functions",)
QUICK = False


def play(stage: Stage) -> list[Expected]:
    refund = Wish(name="refund", order="o1")
    payout = Wish(name="payout", order="o1", tool="payouts")
    worker = stage.start()
    worker.call(refund)
    worker.call(payout)
    return [stage.expect(refund, knowable=True), stage.expect(payout, knowable=True)]
