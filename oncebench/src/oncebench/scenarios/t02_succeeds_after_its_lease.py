"""T02: A call outlives its lease and succeeds

What: A holds a call longer than its lease. B calls. Then the request of A lands.
Why: A library that hands the lease on while the first call still runs does it twice.
Right: one effect; what A did is what both are told.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.scenarios._bodies import outlives_its_lease
from oncebench.stage import Stage

TITLE = "A call outlives its lease and succeeds"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False
PASS_S = 1.3  # a held request lands within the time that the service names


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", timeout_s=20)
    outlives_its_lease(stage, "hold", wish)
    return [stage.expect(wish)]
