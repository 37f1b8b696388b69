"""T04: The answer is lost

What: the service does it, and the connection is reset before the answer.
Why: It is the commonest fault of all, and the commonest duplicate.
Right: no second effect. With a key or a service that can be asked, the caller gets the result
and no person is needed.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.scenarios._bodies import answer_lost
from oncebench.stage import Stage

TITLE = "The answer is lost"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    return answer_lost(stage, "reset after")
