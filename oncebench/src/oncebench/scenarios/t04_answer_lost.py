"""T04: The answer is lost

What: the service does it, and the connection is reset before the answer.
Why: It is the commonest fault of all, and the commonest duplicate.
Right: no second effect. With a key or a service that can be asked, the caller gets the result
and no person is needed.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The answer is lost"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("reset after", wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish)]
