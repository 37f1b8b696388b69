"""T39: The store falls back to an older copy

What: an effect has happened, and the subject knows it. Then its store fails over to a replica that
lags, or is restored from a backup: of this effect, it knows nothing. The caller calls again.
Why: A key that is made at random and kept in the store is gone with it; one that is derived from
what is wanted is the same again, and the service recognises it. A service that can be asked has to
be asked before a first request, too: who asks only when it is in doubt does it twice.
Right: one effect. What the older copy knows is known.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The store falls back to an older copy"
TEMPERAMENTS = ("asks", "keys")
NEEDS = ("business_key",)
QUICK = False


def play(stage: Stage) -> list[Expected]:
    known, forgotten = Wish(name="known", order="o0"), Wish(name="forgotten", order="o1")
    stage.start().call(known)
    stage.keep_copy()
    stage.start().call(forgotten)
    stage.fall_back()
    again = stage.start()
    again.call(known)
    stage.settle(forgotten, worker=again)
    return [stage.expect(known, faults=0), stage.expect(forgotten)]
