"""T04b: The answer never comes

What: the service does it, and the caller gives up waiting.
Why: A time-out says nothing about what happened.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import answer_lost
from oncebench.stage import Stage

TITLE = "The answer never comes"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    return answer_lost(stage, "no answer")
