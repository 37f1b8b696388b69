"""T43: Killed when it has happened

What: the service did it, and the process dies before the answer. Where the effect is a row: the tool
has inserted it, and dies before it returns.
Why: The classic crash between the effect and the note of it.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Killed when it has happened"
TEMPERAMENTS = ("deaf", "asks", "keys", "transaction")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    row = stage.temperament == "transaction"
    wish = Wish(name="pay", order="o1", first="die after" if row else "")
    worker = stage.start()
    if not row:
        stage.arm("kill after", wish, worker)
    worker.call(wish)
    stage.let_leases_end()
    stage.settle(wish)
    return [stage.expect(wish)]
