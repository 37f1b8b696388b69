"""T36: Killed in the second tool of a turn

What: one turn calls two tools. The process dies in the second, when it has happened. The next
process calls both again.
Why: A turn is retried as a whole, with what was done in it.
Right: each happens once. The first is replayed; the second is as T04.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Killed in the second tool of a turn"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    first = Wish(name="first", order="o1")
    second = Wish(name="second", order="o2", tool="payouts")
    worker = stage.start()
    stage.arm("kill after", second, worker)
    worker.call(first)
    worker.call(second)
    stage.let_leases_end()
    again = stage.start()
    again.call(first)
    stage.settle(second, worker=again)
    return [stage.expect(first, knowable=True, faults=0), stage.expect(second)]
