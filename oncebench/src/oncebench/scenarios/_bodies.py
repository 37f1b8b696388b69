"""What several scenarios play, each with a fault of its own."""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage
from oncebench.world import Kind


def answer_lost(stage: Stage, fault: Kind) -> list[Expected]:
    """It happened, and the caller does not learn of it. It calls again."""
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm(fault, wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish)]


def outlives_its_lease(stage: Stage, fault: Kind, wish: Wish) -> None:
    """The first call is held longer than its lease, and a second one comes meanwhile."""
    first = stage.start()
    stage.arm(fault, wish)
    first.begin(wish)
    stage.world.wait_for_request(1)
    stage.let_leases_end()
    second = stage.start()
    second.begin(wish)
    stage.let_leases_end()
    stage.world.release()
    first.finish()
    second.finish()
    stage.settle(wish)
