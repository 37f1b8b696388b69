"""T27: A clock is an hour ahead

What: a call is in flight, with a lease of 30 seconds. A process whose clock is an hour ahead calls.
Why: A lease that is judged by the caller's own clock is over for the one that is ahead. A machine
that slept, or whose time is set, shows the same.
Right: one effect, and both callers get the result.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import second_caller
from oncebench.stage import Stage

TITLE = "A clock is an hour ahead"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = False
LEASE_S = 30.0
PASS_S = 1.0


def play(stage: Stage) -> list[Expected]:
    return second_caller(stage, clock_s=3600)
