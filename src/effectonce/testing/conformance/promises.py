"""What a store says of itself in its `capabilities`: it is held to that, and to no more."""

from __future__ import annotations

from typing import Any

from effectonce._core.ops import Applied, Complete, Find, ReadCell, Refused, WriteCell
from effectonce._core.record import State
from effectonce.stores.base import TransactionalStore
from effectonce.testing.conformance.bench import TRANSACTED, Bench, request


def a_durable_store_knows_everything_when_it_is_opened_again(bench: Bench) -> None:
    if not bench.store.capabilities.durable:
        return
    bench.done(request("done"), b"rcpt_1")
    bench.held(request("sent"))
    bench.in_doubt(request("doubtful"))
    bench.apply(WriteCell("cell", 0, b"value", 60.0))
    asked = (Find("done"), Find("sent"), Find("doubtful"), ReadCell("cell"))
    before: list[Any] = [bench.apply(op) for op in asked]

    bench.reopen()

    assert [bench.apply(op) for op in asked] == before, (
        "it says durable=True; or `open_store` opens another place each time, and should not"
    )


def a_store_with_transactions_can_begin_one(bench: Bench) -> None:
    if bench.store.capabilities.transactions:
        assert isinstance(bench.store, TransactionalStore), (
            "it says transactions=True, and has no transaction() and atransaction()"
        )


def what_is_committed_is_done_once(bench: Bench) -> None:
    if not bench.store.capabilities.transactions:
        return
    asked = request(on=TRANSACTED)
    token, epoch = bench.held(asked, dispatch=False)
    complete = Complete("k", token, epoch, b"rcpt_1")

    assert bench.in_transaction(complete, commit=True) == Applied(epoch)
    assert (bench.state(asked), bench.record(asked).outcome) == (State.COMPLETED, b"rcpt_1")
    assert bench.in_transaction(complete, commit=False) == Refused(State.COMPLETED), (
        "nothing was changed: it was done already"
    )


def what_is_not_committed_does_not_stay(bench: Bench) -> None:
    if not bench.store.capabilities.transactions:
        return
    asked = request(on=TRANSACTED)
    token, epoch = bench.held(asked, dispatch=False)

    assert bench.in_transaction(Complete("k", token, epoch, b"rcpt_1"), commit=False) == Applied(
        epoch
    )
    assert bench.state(asked) is State.CLAIMED


def a_transaction_completes_nothing_for_who_lost_the_record(bench: Bench) -> None:
    if not bench.store.capabilities.transactions:
        return
    asked = request(on=TRANSACTED)
    old, old_epoch = bench.held(asked, dispatch=False)
    bench.lease_ends()
    bench.held(asked, dispatch=False)

    assert bench.in_transaction(Complete("k", old, old_epoch, b"late"), commit=False) == Refused(
        State.CLAIMED
    )
    assert bench.state(asked) is State.CLAIMED
