"""T21: A process is frozen in the middle

What: a process is stopped (SIGSTOP) while its request is on its way, longer than its lease.
Another calls. Then the first goes on.
Why: Garbage collection, laptops and virtual machines do this.
Right: one effect.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "A process is frozen in the middle"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ()
QUICK = False
PASS_S = 1.3  # a held request lands within the time that the service names


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", timeout_s=20)
    first, second = stage.start(), stage.start()
    stage.arm("hold", wish)
    first.begin(wish)
    stage.world.wait_for_request(1)
    first.pause()
    stage.let_leases_end()
    second.begin(wish)
    stage.let_leases_end()
    stage.world.release()
    first.go_on()
    first.finish()
    second.finish()
    stage.settle(wish)
    return [stage.expect(wish)]
