"""T04c: Half of the answer comes

What: the service does it, and the connection ends in the middle of the answer.
Why: The error looks like a bad answer, not like a lost one.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import answer_lost
from oncebench.stage import Stage

TITLE = "Half of the answer comes"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    return answer_lost(stage, "truncated")
