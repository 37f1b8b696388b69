"""T14: A second call while the first runs

What: a call takes its time. Another process calls.
Why: Timers that know nothing of the call let the second one run.
Right: one effect, and both callers get the result.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import second_caller
from oncebench.stage import Stage

TITLE = "A second call while the first runs"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False
LEASE_S = 30.0
PASS_S = 1.0


def play(stage: Stage) -> list[Expected]:
    return second_caller(stage)
