"""What several scenarios play, each with a fault of its own."""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage, Worker
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


def second_caller(stage: Stage, *, clock_s: float = 0) -> list[Expected]:
    """A second process calls while the first call is held, and its lease is long."""
    first_wish = Wish(name="first", order="o1", timeout_s=20)
    second_wish = Wish(name="second", order="o1", timeout_s=20)
    first, second = stage.start(), stage.start(clock_s=clock_s)
    stage.arm("hold", first_wish)
    first.begin(first_wish)
    stage.world.wait_for_request(1)
    second.begin(second_wish)
    stage.let_leases_end()
    stage.world.release()
    first.finish()
    second.finish()
    stage.settle(second_wish, worker=second)
    return [stage.expect(first_wish, knowable=True), stage.expect(second_wish, knowable=True)]


def all_at_once(stage: Stage, workers: list[Worker], wishes: list[Wish]) -> None:
    """Each process has its wish at the same moment, and then insists on it."""
    for worker, wish in zip(workers, wishes, strict=True):
        worker.begin(wish)
    for worker in workers:
        worker.finish()
    for worker, wish in zip(workers, wishes, strict=True):
        stage.settle(wish, worker=worker)


def other_amount(stage: Stage, worker: Worker, *, by: Worker) -> list[Expected]:
    """An order was paid; another amount is asked for, then the first again."""
    paid = Wish(name="paid", order="o1", amount=100)
    other = Wish(name="other", order="o1", amount=250)
    worker.call(paid)
    stage.settle(other, worker=by)
    stage.settle(paid, worker=worker)
    return [
        stage.expect(paid, faults=0),
        stage.expect(other, ends=frozenset({"conflict", "happened"}), knowable=True),
    ]
