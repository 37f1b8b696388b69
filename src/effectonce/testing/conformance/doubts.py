"""Doubt: late evidence, reconciling, and what a person may settle."""

from __future__ import annotations

from msgspec.structs import replace

from effectonce._core.guarantees import Kind
from effectonce._core.ops import (
    Applied,
    Attest,
    Busy,
    Complete,
    Confirm,
    Dispatch,
    Doubt,
    Held,
    Inquire,
    Mismatch,
    Rearm,
    Recorded,
    Refused,
    Refute,
    Renew,
    Rerun,
    Sweep,
    Swept,
    Unsend,
)
from effectonce._core.record import TRIED, Record, State
from effectonce.testing.conformance.bench import (
    KEYED,
    LEASE_S,
    PROBED,
    RACERS,
    RESEND_S,
    Bench,
    request,
    terms,
)

# ---------------------------------------------------------------- doubt


def of_many_that_inquire_one_holds(bench: Bench) -> None:
    bench.in_doubt(request(on=PROBED))
    replies = bench.race([Inquire("k", bench.token(), LEASE_S) for _ in range(RACERS)])
    assert sum(isinstance(reply, Held) for reply in replies) == 1


def of_many_decisions_by_people_one_counts(bench: Bench) -> None:
    bench.in_doubt(request())
    decisions = [(Confirm, Refute)[n % 2]("k", b"x", f"person {n}", "seen") for n in range(RACERS)]
    replies = bench.race(decisions)
    assert sum(isinstance(reply, Applied) for reply in replies) == 1


def late_evidence_of_the_only_send_settles_a_doubt(bench: Bench) -> None:
    token, epoch = bench.held(request())
    bench.lease_ends()
    bench.claim(request())
    late = Complete("k", token, epoch, b"it did happen")
    assert isinstance(bench.apply(late), Applied)
    assert isinstance(bench.apply(late), Applied)
    record = bench.record(request())
    assert (record.state, record.outcome) == (State.COMPLETED, b"it did happen")
    assert record.settled_by == "late evidence"


def late_evidence_of_one_of_two_sends_settles_nothing(bench: Bench) -> None:
    first, first_epoch = bench.held(request(on=KEYED))
    bench.lease_ends()
    second, second_epoch = bench.held(request(on=KEYED))
    bench.apply(Doubt("k", second, second_epoch, "?"))
    assert bench.apply(Complete("k", first, first_epoch, b"x")) == Refused(State.IN_DOUBT)
    assert bench.apply(Complete("k", second, second_epoch, b"x")) == Refused(State.IN_DOUBT)


def a_claim_that_was_sent_before_goes_in_doubt_when_it_cannot_be_sent_again(bench: Bench) -> None:
    """Its latch would hold its step forever, and no person could settle it."""
    wanted = request(on=KEYED, latch="step")
    token, epoch = bench.held(wanted)
    bench.apply(Dispatch("k", token, epoch, 2, LEASE_S))
    assert isinstance(bench.apply(Unsend("k", token, epoch, 2, 0)), Applied)
    held = request("held", on=KEYED)
    bench.held(held, dispatch=False)
    bench.lease_ends()
    assert bench.apply(Sweep()) == Swept(0, 0, 0)
    bench.clock.advance(RESEND_S)
    assert bench.claim(replace(wanted, fingerprint="other"))[1] == Mismatch("pay")
    assert bench.apply(Sweep()) == Swept(doubted=1, buried=0, forgotten=0)
    assert (bench.state(wanted), bench.state(held)) == (State.IN_DOUBT, State.CLAIMED)
    assert bench.apply(Sweep()) == Swept(0, 0, 0)


def a_person_may_settle_a_claim_that_was_sent_before_and_is_abandoned(bench: Bench) -> None:
    for key in ("confirmed", "refuted"):
        token, epoch = bench.held(request(key, on=KEYED))
        bench.apply(Dispatch(key, token, epoch, 2, LEASE_S))
        bench.apply(Unsend(key, token, epoch, 2, LEASE_S))
    bench.held(request("unsent", on=KEYED), dispatch=False)
    confirm = Confirm("confirmed", b"it happened", "ann", "seen at the bank")
    refute = Refute("refuted", b"it did not", "ann", "not at the bank")
    assert bench.apply(confirm) == Refused(State.CLAIMED)
    bench.lease_ends()
    assert isinstance(bench.apply(confirm), Applied)
    assert bench.apply(refute) == Refused(State.CLAIMED)
    assert bench.apply(Confirm("unsent", b"x", "ann", "?")) == Refused(State.CLAIMED)
    bench.clock.advance(RESEND_S)
    assert isinstance(bench.apply(refute), Applied)


def what_was_never_sent_can_be_discarded_once_no_worker_has_it(bench: Bench) -> None:
    """A slow worker that had claimed it may not send it any more; later callers get the failure."""
    wanted = request(on=KEYED, latch="step")
    token, epoch = bench.held(wanted, dispatch=False)
    refute = Refute("k", b"not wanted", "ann", "the customer has left")
    assert bench.apply(refute) == Refused(State.CLAIMED)
    bench.lease_ends()
    assert isinstance(bench.apply(refute), Applied)
    assert isinstance(bench.apply(refute), Applied)
    assert bench.apply(Dispatch("k", token, epoch, 1, LEASE_S)) == Refused(State.FAILED)
    record = bench.record(wanted)
    assert (record.state, record.settled_by) == (State.FAILED, "ann")
    assert record.reason == "the customer has left"
    assert isinstance(bench.claim(wanted)[1], Recorded)
    assert isinstance(bench.claim(request("next", latch="step"))[1], Held)


def a_workflow_is_not_discarded_because_its_steps_may_have_happened(bench: Bench) -> None:
    bench.held(request("run", on=terms(steps=True)), dispatch=False)
    bench.lease_ends()
    assert bench.apply(Refute("run", b"no", "ann", "enough")) == Refused(State.CLAIMED)


def what_was_taken_back_can_be_discarded_too(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    assert isinstance(bench.apply(Unsend("k", token, epoch, 1, 0)), Applied)
    assert isinstance(bench.apply(Refute("k", b"x", "ann", "not wanted any more")), Applied)


def evidence_is_kept_and_changes_nothing(bench: Bench) -> None:
    bench.in_doubt(request())
    before = bench.record(request())
    said = ("an owner reports success", b"\x00rcpt_1")
    after = bench.apply(Attest("k", *said))
    assert isinstance(after, Record)
    assert after == bench.record(request())
    assert [(e.note, e.outcome) for e in after.evidence] == [said]
    assert replace(after, evidence=()) == before


def evidence_outlives_whatever_is_decided(bench: Bench) -> None:
    wanted = request(on=KEYED)
    token, epoch = bench.held(wanted)
    bench.apply(Attest("k", TRIED, b"the first attempt"))
    bench.lease_ends()
    token, epoch = bench.held(wanted)
    assert isinstance(bench.apply(Complete("k", token, epoch, b"rcpt_1")), Applied)
    bench.apply(Attest("k", "late", b"rcpt_0"))
    assert [e.outcome for e in bench.record(wanted).evidence] == [b"the first attempt", b"rcpt_0"]
    assert bench.state(wanted) is State.COMPLETED


def evidence_is_bounded_and_the_oldest_makes_room(bench: Bench) -> None:
    bench.in_doubt(request())
    for n in range(40):
        bench.apply(Attest("k", f"note {n}"))
    assert [e.note for e in bench.record(request()).evidence] == [f"note {n}" for n in range(8, 40)]


def a_late_result_never_makes_room(bench: Bench) -> None:
    bench.in_doubt(request())
    bench.apply(Attest("k", "a result", b"the first"))
    for n in range(40):
        bench.apply(Attest("k", TRIED, b"attempt %d" % n))
    kept = [b"the first", *(b"attempt %d" % n for n in range(9, 40))]
    assert [e.outcome for e in bench.record(request()).evidence] == kept
    for n in range(40):
        bench.apply(Attest("k", "a result", b"%d" % n))
    bench.apply(Attest("k", TRIED, b"one attempt too many"))
    kept = [b"the first", *(b"%d" % n for n in range(40))]
    assert [e.outcome for e in bench.record(request()).evidence] == kept


def evidence_has_the_time_that_it_is_given_or_the_stores(bench: Bench) -> None:
    bench.in_doubt(request())
    bench.apply(Attest("k", "as it was elsewhere", b"x", at=17.25))
    bench.apply(Attest("k", "now", b"x"))
    assert [e.at for e in bench.record(request()).evidence] == [17.25, bench.clock()]


def one_reconciler_asks_at_a_time(bench: Bench) -> None:
    bench.in_doubt(request(on=PROBED))
    token = bench.token()
    inquire = Inquire("k", token, LEASE_S)
    held = bench.apply(inquire)
    assert isinstance(held, Held)
    assert bench.apply(inquire) == held
    assert bench.apply(Inquire("k", bench.token(), LEASE_S)) == Busy(LEASE_S)
    bench.lease_ends()
    _, successor = bench.inquired()
    assert successor == held.epoch + 1
    assert bench.apply(Complete("k", token, held.epoch, b"found")) == Refused(State.IN_DOUBT)


def a_reconciler_settles_what_its_probe_found(bench: Bench) -> None:
    bench.in_doubt(request(on=PROBED))
    token, epoch = bench.inquired()
    assert bench.apply(Complete("k", token, epoch, b"found", "probe")) == Applied(epoch)
    assert bench.record(request()).settled_by == "probe"


def only_a_doubt_can_be_inquired(bench: Bench) -> None:
    bench.held(request())
    assert bench.apply(Inquire("k", bench.token(), LEASE_S)) == Refused(State.DISPATCHED)


def not_found_is_no_proof_without_a_delay_bound(bench: Bench) -> None:
    bench.in_doubt(request(on=PROBED))
    token, epoch = bench.inquired("k", 1e9)
    bench.clock.advance(1e6)
    assert bench.apply(Rerun("k", token, epoch, LEASE_S)) == Refused(State.IN_DOUBT)


def not_found_is_no_proof_before_the_delay_bound(bench: Bench) -> None:
    bench.in_doubt(request(on=replace(PROBED, delay_s=60.0)))
    bench.clock.advance(LEASE_S + 60.0)
    token, epoch = bench.inquired("k", 0.0)
    assert bench.apply(Rerun("k", token, epoch, LEASE_S)) == Refused(State.IN_DOUBT)
    bench.clock.advance(0.001)
    held = bench.apply(Inquire("k", token, LEASE_S))
    assert isinstance(held, Held)
    rerun = Rerun("k", token, held.epoch, LEASE_S)
    assert bench.apply(rerun) == bench.apply(rerun) == Applied(held.epoch)
    assert bench.record(request()).sends == 0
    assert bench.apply(Dispatch("k", token, held.epoch, 1, LEASE_S)) == Applied(held.epoch)


def the_delay_bound_begins_where_the_last_lease_of_the_sender_ends(bench: Bench) -> None:
    """However it was dispatched, and however long its owner kept it."""
    for key, kept in (("dispatched", False), ("kept", True)):
        token, epoch = bench.held(request(key, on=replace(PROBED, delay_s=60.0)), dispatch=False)
        bench.apply(Dispatch(key, token, epoch, 1, LEASE_S))
        if kept:
            bench.clock.advance(5.0)
            bench.apply(Renew(key, token, epoch, LEASE_S))
        bench.apply(Doubt(key, token, epoch, "no answer"))
        for wait_s, reply in ((LEASE_S + 60.0, Refused), (0.001, Applied)):
            bench.clock.advance(wait_s)
            token, epoch = bench.inquired(key, 0.0)
            assert isinstance(bench.apply(Rerun(key, token, epoch, LEASE_S)), reply)


def not_found_is_no_proof_if_it_was_asked_before_the_delay_bound(bench: Bench) -> None:
    """The probe looks, the old request lands, the bound passes, the answer "not found" arrives:
    it must not be believed.
    """
    bench.in_doubt(request(on=replace(PROBED, delay_s=60.0)))
    token, epoch = bench.inquired("k", 1e9)
    bench.clock.advance(1e6)
    assert bench.apply(Rerun("k", token, epoch, LEASE_S)) == Refused(State.IN_DOUBT)


def only_the_reconciler_may_re_run(bench: Bench) -> None:
    bench.in_doubt(request(on=replace(PROBED, delay_s=0.0)))
    bench.lease_ends()
    _, epoch = bench.inquired()
    assert bench.apply(Rerun("k", "forged", epoch, LEASE_S)) == Refused(State.IN_DOUBT)


def an_irreversible_effect_is_never_re_run(bench: Bench) -> None:
    bench.in_doubt(request(on=replace(PROBED, kind=Kind.IRREVERSIBLE, delay_s=0.0)))
    bench.lease_ends()
    token, epoch = bench.inquired()
    assert bench.apply(Rerun("k", token, epoch, LEASE_S)) == Refused(State.IN_DOUBT)


def a_person_confirms(bench: Bench) -> None:
    bench.in_doubt(request())
    confirm = Confirm("k", b"rcpt_1", "ada", "seen on the statement")
    assert isinstance(bench.apply(confirm), Applied)
    assert isinstance(bench.apply(confirm), Applied)
    record = bench.record(request())
    assert (record.state, record.outcome, record.settled_by) == (State.COMPLETED, b"rcpt_1", "ada")
    assert record.reason == "seen on the statement"


def a_person_refutes_and_a_late_answer_becomes_evidence(bench: Bench) -> None:
    token, epoch = bench.in_doubt(request())
    refute = Refute("k", b"no", "ada", "not on the statement")
    assert isinstance(bench.apply(refute), Applied)
    assert isinstance(bench.apply(refute), Applied)
    assert bench.apply(Complete("k", token, epoch, b"late")) == Refused(State.FAILED)
    assert isinstance(bench.claim(request())[1], Recorded)


def a_person_settles_an_abandoned_effect_too(bench: Bench) -> None:
    bench.held(request("happened"))
    bench.held(request("did-not"))
    assert bench.apply(Confirm("happened", b"x", "ada", "seen")) == Refused(State.DISPATCHED)
    assert bench.apply(Refute("did-not", b"x", "ada", "not seen")) == Refused(State.DISPATCHED)
    bench.lease_ends()
    assert isinstance(bench.apply(Confirm("happened", b"x", "ada", "seen")), Applied)
    assert isinstance(bench.apply(Refute("did-not", b"x", "ada", "not seen")), Applied)


def what_the_next_caller_may_still_send_cannot_be_refuted(bench: Bench) -> None:
    bench.held(request(on=KEYED))
    bench.lease_ends()
    assert bench.apply(Refute("k", b"x", "ada", "not seen")) == Refused(State.DISPATCHED)


def a_person_may_send_again_only_while_the_key_is_honoured(bench: Bench) -> None:
    bench.in_doubt(request("unkeyed"))
    assert bench.apply(Rearm("unkeyed", "ada", "try again")) == Refused(State.IN_DOUBT)
    bench.in_doubt(request(on=KEYED))
    rearm = Rearm("k", "ada", "the bank was down")
    assert isinstance(bench.apply(rearm), Applied)
    assert isinstance(bench.apply(rearm), Applied)
    assert bench.claim(request(on=KEYED))[1] == Held(epoch=4, sends=2, dispatched=True)
