"""Several ops at once: in their order, each answered on its own, as if they had come one by one."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from effectonce._core.ops import (
    Applied,
    Cell,
    Claim,
    Complete,
    Find,
    Held,
    Latched,
    Mismatch,
    Op,
    ReadCell,
    Recorded,
    Refused,
    Sweep,
    Tally,
    Together,
    WriteCell,
)
from effectonce._core.record import Request, State
from effectonce.testing.conformance.bench import LEASE_S, Bench, request


def _together(bench: Bench, *ops: Op[Any]) -> tuple[Any, ...]:
    return bench.apply(Together(ops))


def _claim_and_end(asked: Request, token: str, outcome: bytes = b"done") -> Together:
    claim = Claim(asked, token, LEASE_S, dispatch=True)
    return Together((claim, Complete(asked.key, token, 1, outcome, by="a person")))


def one_step_ends_and_the_next_begins_at_once(bench: Bench) -> None:
    first, second = request("first"), request("second")
    token, epoch = bench.held(first)

    ended, begun = _together(
        bench, Complete("first", token, epoch, b"done"), bench.claiming(second)
    )

    assert ended == Applied(epoch)
    assert begun == Held(1, 1, dispatched=True)
    assert (bench.state(first), bench.state(second)) == (State.COMPLETED, State.DISPATCHED)


def the_later_op_sees_what_the_earlier_one_did(bench: Bench) -> None:
    token = bench.token()
    asked = request("k", latch="one")

    replies = bench.apply(_claim_and_end(asked, token))
    found = _together(bench, Find("k"), bench.claiming(asked))

    assert replies == (Held(1, 1, dispatched=True), Applied(1))
    assert found[0] is not None
    assert found[0].outcome == b"done"
    assert isinstance(found[1], Recorded)
    assert found[1].outcome == b"done"


def a_claim_and_its_end_at_once_leave_what_they_leave_one_by_one(bench: Bench) -> None:
    bench.clock.advance(7.0)
    token, asked = bench.token(), request("at once")

    bench.apply(_claim_and_end(asked, token))
    bench.apply(Claim(request("one by one"), token, LEASE_S, dispatch=True))
    bench.apply(Complete("one by one", token, 1, b"done", by="a person"))

    at_once, one_by_one = bench.record(asked), bench.record(request("one by one"))
    assert at_once == replace(one_by_one, request=asked)
    bench.clock.advance(asked.terms.window_s + 1.0)
    assert bench.apply(Sweep(10)).total == 2


def a_claim_and_its_end_at_once_wait_for_their_step(bench: Bench) -> None:
    bench.held(request("refund", latch="step"))
    token, asked = bench.token(), request("credit", latch="step")

    replies = bench.apply(_claim_and_end(asked, token))

    assert replies == (Latched("refund", "pay", LEASE_S), Refused(None))


def one_that_is_refused_does_not_stop_the_others(bench: Bench) -> None:
    taken = request("taken")
    bench.held(taken)

    replies = _together(
        bench,
        Complete("unclaimed", bench.token(), 1, b""),
        bench.claiming(replace(taken, fingerprint="another")),
        bench.claiming(request("free")),
    )

    assert replies == (Refused(None), Mismatch(taken.terms.tool), Held(1, 1, dispatched=True))


def several_at_once_may_be_repeated(bench: Bench) -> None:
    token, epoch = bench.held(request("first"))
    ops = Together((Complete("first", token, epoch, b"done"), bench.claiming(request("second"))))

    assert bench.apply(ops) == bench.apply(ops)


def a_claim_and_its_end_at_once_may_be_repeated(bench: Bench) -> None:
    ops = _claim_and_end(request("k"), bench.token())

    first, again = bench.apply(ops), bench.apply(ops)
    other = bench.apply(_claim_and_end(request("k"), bench.token(), b"another's"))

    assert first == (Held(1, 1, dispatched=True), Applied(1))
    assert isinstance(again[0], Recorded)
    assert again[1] == Applied(1)
    assert isinstance(other[0], Recorded)
    assert other[1] == Refused(State.COMPLETED)
    assert bench.record(request("k")).outcome == b"done"


def ops_of_any_kind_go_together(bench: Bench) -> None:
    claim = Claim(request("k"), bench.token(), LEASE_S, dispatch=True, again=True)

    held, counts, written, cell, ended = _together(
        bench,
        claim,
        Tally(),
        WriteCell("cell", 0, b"value", 60.0),
        ReadCell("cell"),
        Complete("k", claim.token, 1, b"done"),
    )

    assert held == Held(1, 1, dispatched=True)
    assert counts == {State.DISPATCHED: 1}
    assert written is None
    assert isinstance(cell, Cell)
    assert cell.value == b"value"
    assert ended == Applied(1)


def of_many_that_begin_the_same_step_one_holds(bench: Bench) -> None:
    ends = [Complete(f"b{n}", *bench.held(request(f"b{n}")), b"done") for n in range(8)]

    replies = bench.race([Together((end, bench.claiming(request("k")))) for end in ends])

    assert all(ended == Applied(1) for ended, _ in replies)
    assert sum(isinstance(begun, Held) for _, begun in replies) == 1
