"""T09: A process dies before it sends

What: the process is killed inside the tool, before its first byte. Others call again and again.
Why: A record that each retry refreshes never becomes stale, and a library that cannot see that
nothing left asks a person.
Right: one effect, no person: nothing had left.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "A process dies before it sends"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", first="die")
    worker = stage.start()
    worker.call(wish)
    other = stage.start()
    other.call(wish)
    stage.settle(wish, worker=other)
    return [stage.expect(wish, knowable=True)]
