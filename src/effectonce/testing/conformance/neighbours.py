"""Steps, sequences, and reading many records."""

from __future__ import annotations

from typing import Any

from effectonce._core.ops import (
    Applied,
    Attest,
    Browse,
    Complete,
    Confirm,
    Dispatch,
    Early,
    Fail,
    Held,
    Latched,
    Recorded,
    Refused,
    Search,
    Tally,
    Unsend,
)
from effectonce._core.record import Record, State
from effectonce.testing.conformance.bench import (
    KEYED,
    LEASE_S,
    RACERS,
    TRANSACTED,
    WINDOW_S,
    Bench,
    request,
    terms,
)

# ---------------------------------------------------------------- steps and sequences


def a_step_with_a_call_in_the_air_runs_no_other(bench: Bench) -> None:
    token, epoch = bench.held(request("refund", latch="step"))
    assert bench.claim(request("credit", latch="step"))[1] == Latched("refund", "pay", LEASE_S)
    assert isinstance(bench.claim(request("elsewhere", latch="other step"))[1], Held)
    assert isinstance(bench.claim(request("free"))[1], Held)
    bench.apply(Complete("refund", token, epoch, b"done"))
    assert isinstance(bench.claim(request("credit", latch="step"))[1], Held)


def a_step_with_a_call_in_doubt_runs_no_other(bench: Bench) -> None:
    bench.in_doubt(request("refund", latch="step"))
    assert bench.claim(request("credit", latch="step"))[1] == Latched("refund", "pay", None)
    bench.apply(Confirm("refund", b"x", "ada", "seen"))
    assert isinstance(bench.claim(request("credit", latch="step"))[1], Held)


def a_step_with_an_abandoned_call_runs_no_other(bench: Bench) -> None:
    bench.held(request("refund", on=KEYED, latch="step"))
    bench.lease_ends()
    assert bench.claim(request("credit", latch="step"))[1] == Latched("refund", "pay", None)
    assert isinstance(bench.claim(request("refund", on=KEYED, latch="step"))[1], Held)


def a_call_that_only_holds_waits_for_its_step_too(bench: Bench) -> None:
    bench.held(request("refund", latch="step"))
    assert isinstance(bench.claim(request("credit", latch="step"), dispatch=False)[1], Latched)


def a_call_that_was_not_sent_holds_no_step(bench: Bench) -> None:
    bench.held(request("refund", latch="step"), dispatch=False)
    assert isinstance(bench.claim(request("credit", latch="step"))[1], Held)
    bench.lease_ends()
    assert isinstance(bench.claim(request("refund", latch="step"))[1], Latched)


def what_was_not_sent_stays_unsent_while_another_call_of_its_step_is_in_the_air(
    bench: Bench,
) -> None:
    token, epoch = bench.held(request("refund", latch="step"), dispatch=False)
    held, _ = bench.held(request("booking", on=TRANSACTED, latch="step"), dispatch=False)
    other, other_epoch = bench.held(request("credit", latch="step"))
    assert bench.apply(Dispatch("refund", token, epoch, 1, LEASE_S)) == Refused(State.CLAIMED)
    assert bench.apply(Complete("booking", held, 1, b"done")) == Refused(State.CLAIMED)
    bench.apply(Fail("credit", other, other_epoch, b"no"))
    assert isinstance(bench.apply(Complete("booking", held, 1, b"done")), Applied)
    assert isinstance(bench.apply(Dispatch("refund", token, epoch, 1, LEASE_S)), Applied)


def a_run_ends_beside_another_call_of_its_step(bench: Bench) -> None:
    run = request("run", on=terms(steps=True), latch="step")
    token, epoch = bench.held(run, dispatch=False)
    bench.held(request("credit", latch="step"))
    assert bench.apply(Complete("run", token, epoch, b"done")) == Applied(epoch)
    assert bench.state(run) is State.COMPLETED


def evidence_is_kept_beside_another_call_of_its_step(bench: Bench) -> None:
    first = request("refund", on=TRANSACTED, latch="step")
    token, epoch = bench.held(first, dispatch=False)
    bench.apply(Complete("refund", token, epoch, b"done"))
    bench.held(request("credit", latch="step"))
    after = bench.apply(Attest("refund", "its answer came late", b"done"))
    assert isinstance(after, Record)
    assert after.state is State.COMPLETED
    assert after.evidence[-1].note == "its answer came late"


def a_run_that_is_taken_over_waits_for_its_step(bench: Bench) -> None:
    run = request("run", on=terms(steps=True), latch="step")
    bench.held(run, dispatch=False)
    bench.held(request("credit", latch="step"))
    bench.lease_ends()
    assert bench.claim(run, dispatch=False)[1] == Latched("credit", "pay", None)


def a_claim_that_was_sent_before_holds_its_step(bench: Bench) -> None:
    token, epoch = bench.held(request("refund", on=KEYED, latch="step"))
    bench.apply(Dispatch("refund", token, epoch, 2, LEASE_S))
    bench.apply(Unsend("refund", token, epoch, 2, 0))
    assert bench.claim(request("credit", latch="step"))[1] == Latched("refund", "pay", None)


def a_key_that_runs_again_after_its_window_waits_for_its_step(bench: Bench) -> None:
    for end in (Complete, Fail):
        weekly = request(f"refund, {end.__name__}", on=terms(rerun=True), latch="step")
        token, epoch = bench.held(weekly)
        bench.apply(end(weekly.key, token, epoch, b"done"))
        credit = request(f"credit, {end.__name__}", latch="step")
        other, other_epoch = bench.held(credit)
        assert isinstance(bench.claim(weekly)[1], Recorded)
        bench.clock.advance(WINDOW_S)
        assert bench.claim(weekly)[1] == Latched(credit.key, "pay", None)
        bench.apply(Complete(credit.key, other, other_epoch, b"done"))
        token, reply = bench.claim(weekly)
        assert reply == Held(2, 1, dispatched=True)
        bench.apply(Complete(weekly.key, token, 2, b"done"))


def of_many_different_calls_of_a_step_one_holds(bench: Bench) -> None:
    calls = [bench.claiming(request(f"k{n}", latch="step")) for n in range(RACERS)]
    replies = bench.race(calls)
    assert sum(isinstance(reply, Held) for reply in replies) == 1
    assert sum(isinstance(reply, Latched) for reply in replies) == RACERS - 1


def a_sequence_waits_for_its_predecessor(bench: Bench) -> None:
    second = request("2", after="1")
    assert bench.claim(second)[1] == Early("1")
    token, epoch = bench.held(request("1"))
    assert bench.claim(second)[1] == Early("1")
    bench.apply(Fail("1", token, epoch, b"refused is an outcome too"))
    assert isinstance(bench.claim(second)[1], Held)


# ---------------------------------------------------------------- reading


def records_are_browsed_oldest_first_by_state_and_tenant(bench: Bench) -> None:
    for n in range(5):
        bench.in_doubt(request(f"k{n}", tenant="even" if n % 2 == 0 else "odd"))
        bench.clock.advance(1)
    bench.held(request("sent"))

    def keys(op: Browse) -> list[str]:
        return [record.request.key for record in bench.apply(op)]

    assert keys(Browse(State.IN_DOUBT)) == ["k0", "k1", "k2", "k3", "k4"]
    assert keys(Browse(State.IN_DOUBT, "odd")) == ["k1", "k3"]
    assert keys(Browse(State.DISPATCHED)) == ["sent"]
    first = bench.apply(Browse(State.IN_DOUBT, limit=2))
    after = (first[-1].created_at, first[-1].request.key)
    assert keys(Browse(State.IN_DOUBT, after=after)) == ["k2", "k3", "k4"]


def states_are_counted(bench: Bench) -> None:
    assert bench.apply(Tally()) == {}
    bench.in_doubt(request("a"))
    bench.held(request("b"))
    bench.held(request("c"))
    assert bench.apply(Tally()) == {State.IN_DOUBT: 1, State.DISPATCHED: 2}


def _found(bench: Bench, **wanted: Any) -> list[str]:
    return [record.request.key for record in bench.apply(Search(**wanted))]


def records_are_found_newest_first_by_what_is_known_of_them(bench: Bench) -> None:
    for n in range(4):
        tenant, scope = ("even", "chat-1") if n % 2 == 0 else ("odd", "chat-2")
        bench.in_doubt(request(f"k{n}", tenant=tenant, scope=scope))
        bench.clock.advance(1)
    bench.done(request("book", on=terms(tool="book")))

    assert _found(bench) == ["book", "k3", "k2", "k1", "k0"]
    assert _found(bench, state=State.IN_DOUBT) == ["k3", "k2", "k1", "k0"]
    assert _found(bench, state=State.COMPLETED) == _found(bench, tool="book") == ["book"]
    assert _found(bench, tenant="odd") == _found(bench, scope="chat-2") == ["k3", "k1"]
    assert _found(bench, since=bench.record(request("k2")).created_at) == ["book", "k3", "k2"]
    assert _found(bench, tool="book", tenant="odd") == []


def records_are_found_page_by_page(bench: Bench) -> None:
    for key in ("a", "c", "b"):
        bench.held(request(key))
    bench.clock.advance(1)
    bench.held(request("new"))

    first = bench.apply(Search(limit=2))
    assert [record.request.key for record in first] == ["new", "c"]
    assert _found(bench, before=(first[-1].created_at, first[-1].request.key)) == ["b", "a"]


def a_record_is_found_by_its_reference_or_how_that_begins(bench: Bench) -> None:
    alike, other = "f00" + "0" * 25 + "abcdef123456", "f00" + "0" * 25 + "abcdff000000"
    for key in (alike, other):
        bench.held(request(key))

    assert _found(bench, reference="abcdef123456") == [alike]
    assert _found(bench, reference="abcd") == [other, alike]
    for other_part in ("f00", "%", "bcdef"):
        assert _found(bench, reference=other_part) == []
