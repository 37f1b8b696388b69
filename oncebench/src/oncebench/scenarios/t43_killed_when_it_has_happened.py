"""T43: Killed when it has happened

What: the service did it, and the process dies before the answer.
Why: The classic crash between the effect and the note of it.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Killed when it has happened"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("kill after", wish, worker)
    worker.call(wish)
    stage.let_leases_end()
    stage.settle(wish)
    return [stage.expect(wish)]
