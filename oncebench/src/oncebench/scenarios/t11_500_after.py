"""T11: 500, and it happened

What: the service does it, then fails while it answers.
Why: A 500 does not say that nothing happened.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import answer_lost
from oncebench.stage import Stage

TITLE = "500, and it happened"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    return answer_lost(stage, "500 after")
