"""T01: A call outlives its lease and raises

What: A holds a call longer than its lease. B calls. Then A raises.
Why: A late error that clears the record lets a third call run.
Right: one effect at most.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.scenarios._bodies import outlives_its_lease
from oncebench.stage import Stage

TITLE = "A call outlives its lease and raises"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False
PASS_S = 1.3  # a held request lands within the time that the service names


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    outlives_its_lease(stage, "hold, then reset before", wish)
    return [stage.expect(wish, knowable=stage.temperament == "keys")]
