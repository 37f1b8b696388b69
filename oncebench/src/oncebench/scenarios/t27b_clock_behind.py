"""T27b: A clock is an hour behind

What: the service did it, and the process dies before the answer. The next process has a clock that
is an hour behind.
Why: By that clock the lease of the dead one ends in an hour, and everything waits.
Right: as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "A clock is an hour behind"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("kill after", wish, worker)
    worker.call(wish)
    stage.let_leases_end()
    stage.settle(wish, worker=stage.start(clock_s=-3600))
    return [stage.expect(wish)]
