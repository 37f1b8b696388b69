"""Fencing, sending and rejection: what an owner may write, and what it may not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from effectonce._core.guarantees import Capability
from effectonce._core.ops import (
    Applied,
    Attest,
    Busy,
    Complete,
    Confirm,
    Dispatch,
    Doubt,
    Doubtful,
    Fail,
    Find,
    Held,
    Inquire,
    Op,
    Rearm,
    Recorded,
    Refused,
    Refute,
    Renew,
    Rerun,
    Unsend,
)
from effectonce._core.record import GAVE_UP, State
from effectonce.testing.conformance.bench import (
    KEYED,
    LEASE_S,
    RESEND_S,
    TRANSACTED,
    WINDOW_S,
    Bench,
    request,
    terms,
)

# ---------------------------------------------------------------- fencing


def a_zombie_cannot_overwrite_its_successor(bench: Bench) -> None:
    asked = request(on=KEYED)
    old, old_epoch = bench.held(asked)
    bench.lease_ends()
    new, new_epoch = bench.held(asked)

    for late in (
        Complete("k", old, old_epoch, b"late"),
        Fail("k", old, old_epoch, b"late"),
        Doubt("k", old, old_epoch, "late"),
        Unsend("k", old, old_epoch, 1, 0),
        Dispatch("k", old, old_epoch, 3, LEASE_S),
        Renew("k", old, old_epoch, LEASE_S),
    ):
        assert bench.apply(late) == Refused(State.DISPATCHED), late

    assert bench.apply(Complete("k", new, new_epoch, b"good")) == Applied(new_epoch)
    assert bench.apply(Complete("k", old, old_epoch, b"late")) == Refused(State.COMPLETED)
    assert bench.record(asked).outcome == b"good"


def a_completion_says_who_knew(bench: Bench) -> None:
    token, epoch = bench.held(request())
    bench.apply(Complete("k", token, epoch, b"done", by="probe"))
    assert bench.record(request()).settled_by == "probe"


def a_token_without_its_epoch_is_refused(bench: Bench) -> None:
    token, epoch = bench.held(request())
    assert bench.apply(Complete("k", token, epoch + 1, b"x")) == Refused(State.DISPATCHED)
    assert bench.apply(Renew("k", token, epoch - 1, LEASE_S)) == Refused(State.DISPATCHED)


def an_epoch_without_its_token_is_refused(bench: Bench) -> None:
    _, epoch = bench.held(request())
    for forged in (
        Complete("k", "forged", epoch, b"x"),
        Fail("k", "forged", epoch, b"x"),
        Doubt("k", "forged", epoch, "x"),
    ):
        assert bench.apply(forged) == Refused(State.DISPATCHED)


def nothing_is_written_to_a_record_that_vanished(bench: Bench) -> None:
    for op in (
        Complete("gone", "t", 1, b"x"),
        Fail("gone", "t", 1, b"x"),
        Doubt("gone", "t", 1, "x"),
        Dispatch("gone", "t", 1, 1, LEASE_S),
        Unsend("gone", "t", 1, 1, 0),
        Renew("gone", "t", 1, LEASE_S),
        Rerun("gone", "t", 1, LEASE_S),
        Confirm("gone", b"x", "ada", "x"),
    ):
        assert bench.apply(op) == Refused(None)
    assert bench.apply(Inquire("gone", "t", LEASE_S)) == Refused(None)
    assert bench.apply(Attest("gone", "x")) is None
    assert bench.apply(Find("gone")) is None


def an_outcome_never_changes(bench: Bench) -> None:
    token, epoch = bench.done(request(), b"first")
    for op in (
        Complete("k", token, epoch, b"second"),
        Fail("k", token, epoch, b"no"),
        Doubt("k", token, epoch, "?"),
        Dispatch("k", token, epoch, 2, LEASE_S),
        Unsend("k", token, epoch, 1, 0),
        Renew("k", token, epoch, LEASE_S),
        Confirm("k", b"other", "ada", "so I say"),
        Refute("k", b"other", "ada", "so I say"),
        Rearm("k", "ada", "so I say"),
    ):
        assert bench.apply(op) == Refused(State.COMPLETED), op
    assert bench.record(request()).outcome == b"first"


def every_write_of_an_owner_may_be_repeated(bench: Bench) -> None:
    def twice(op: Op[Any]) -> None:
        first = bench.apply(op)
        assert isinstance(first, Applied), (op, first)
        before = bench.apply(Find("k"))
        assert bench.apply(op) == first
        assert bench.apply(Find("k")) == before

    token, epoch = bench.held(request(on=KEYED), dispatch=False)
    twice(Dispatch("k", token, epoch, 1, LEASE_S))
    twice(Unsend("k", token, epoch, 1, LEASE_S))
    twice(Dispatch("k", token, epoch + 1, 1, LEASE_S))
    twice(Dispatch("k", token, epoch + 1, 2, LEASE_S))
    twice(Complete("k", token, epoch + 1, b"done"))


def a_late_repeat_of_taking_back_does_not_take_back_the_next_send(bench: Bench) -> None:
    """An unanswered write was repeated, and lands again after its owner has gone on to send."""
    token, epoch = bench.held(request())
    take_back = Unsend("k", token, epoch, 1, LEASE_S)
    assert bench.apply(take_back) == Applied(epoch + 1)
    assert bench.apply(Dispatch("k", token, epoch + 1, 1, LEASE_S)) == Applied(epoch + 1)
    assert bench.apply(take_back) == Refused(State.DISPATCHED)
    assert bench.record(request()).sends == 1


def a_repeated_failure_or_doubt_is_a_success(bench: Bench) -> None:
    fail = Fail("failed", *bench.held(request("failed")), b"no")
    assert bench.apply(fail) == bench.apply(fail) == Applied(1)
    doubt = Doubt("doubtful", *bench.held(request("doubtful")), "?")
    assert bench.apply(doubt) == bench.apply(doubt) == Applied(2)


def a_doubt_about_what_had_no_help_is_never_sent_again(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    doubt = Doubt("k", token, epoch, "?", unaided=True)
    assert bench.apply(doubt) == bench.apply(doubt) == Applied(epoch + 1)
    assert bench.apply(Rearm("k", "ada", "please")) == Refused(State.IN_DOUBT)
    assert bench.record(request()).request.terms == terms()


def a_heartbeat_keeps_the_lease(bench: Bench) -> None:
    token, epoch = bench.held(request())
    bench.clock.advance(LEASE_S - 1)
    assert bench.apply(Renew("k", token, epoch, LEASE_S)) == Applied(epoch)
    bench.clock.advance(LEASE_S - 1)
    assert bench.claim(request())[1] == Busy(1.0)
    assert bench.record(request()).sent_until == bench.clock.now + 1.0


def letting_go_ends_the_lease_at_once(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.apply(Renew("k", token, epoch, 0))
    assert bench.claim(request(on=KEYED))[1] == Held(epoch=2, sends=2, dispatched=True)


# ---------------------------------------------------------------- sending


def a_dispatch_is_refused_to_anybody_but_the_owner(bench: Bench) -> None:
    _, epoch = bench.held(request(), dispatch=False)
    assert bench.apply(Dispatch("k", "forged", epoch, 1, LEASE_S)) == Refused(State.CLAIMED)


def what_certainly_was_not_sent_can_be_taken_back(bench: Bench) -> None:
    token, epoch = bench.held(request())
    assert bench.apply(Unsend("k", token, epoch, 1, 0)) == Applied(epoch + 1)
    assert bench.record(request()).sends == 0
    assert bench.claim(request())[1] == Held(epoch=3, sends=1, dispatched=True)


def only_this_send_can_be_taken_back(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.apply(Dispatch("k", token, epoch, 2, LEASE_S))
    assert bench.apply(Unsend("k", token, epoch, 1, LEASE_S)) == Refused(State.DISPATCHED)
    assert bench.apply(Unsend("k", token, epoch, 2, LEASE_S)) == Applied(epoch + 1)
    assert bench.record(request()).sends == 1


def a_lost_sender_leaves_a_doubt_where_the_downstream_cannot_help(bench: Bench) -> None:
    for capability in (Capability.NONE, Capability.PROBE):
        asked = request(f"k-{capability}", on=terms(capability))
        bench.held(asked)
        bench.lease_ends()
        assert isinstance(bench.claim(asked)[1], Doubtful)
        assert bench.state(asked) is State.IN_DOUBT
        assert isinstance(bench.claim(asked)[1], Doubtful)


def a_lost_sender_is_succeeded_where_the_downstream_honours_the_key(bench: Bench) -> None:
    bench.held(request(on=KEYED))
    bench.lease_ends()
    assert bench.claim(request(on=KEYED))[1] == Held(
        epoch=2, sends=2, dispatched=True, taken_over=True
    )


def what_a_caller_gave_up_on_is_not_taken_over(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.apply(Renew("k", token, epoch, 0))
    bench.apply(Attest("k", GAVE_UP, b""))
    bench.clock.advance(1)
    assert bench.claim(request(on=KEYED))[1] == Held(epoch=2, sends=2, dispatched=True)


def the_downstream_window_ends_re_sending(bench: Bench) -> None:
    bench.held(request(on=KEYED))
    bench.clock.advance(RESEND_S)
    assert isinstance(bench.claim(request(on=KEYED))[1], Doubtful)


def the_downstream_window_is_counted_from_the_first_send(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.clock.advance(RESEND_S - 1)
    assert bench.apply(Dispatch("k", token, epoch, 2, LEASE_S)) == Applied(epoch)
    bench.clock.advance(2)
    assert bench.apply(Dispatch("k", token, epoch, 3, LEASE_S)) == Refused(State.DISPATCHED)


def the_downstream_window_ends_re_sending_for_an_owner_that_took_its_last_send_back(
    bench: Bench,
) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.apply(Dispatch("k", token, epoch, 2, LEASE_S))
    taken_back = bench.apply(Unsend("k", token, epoch, 2, RESEND_S))
    assert isinstance(taken_back, Applied)
    bench.clock.advance(RESEND_S)
    assert bench.apply(Dispatch("k", token, taken_back.epoch, 2, LEASE_S)) == Refused(State.CLAIMED)


def a_claim_that_was_sent_before_goes_in_doubt_after_the_window(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.apply(Dispatch("k", token, epoch, 2, LEASE_S))
    bench.apply(Unsend("k", token, epoch, 2, 0))
    assert bench.state(request()) is State.CLAIMED
    bench.clock.advance(RESEND_S)
    assert isinstance(bench.claim(request(on=KEYED))[1], Doubtful)


def what_was_not_sent_cannot_be_doubted(bench: Bench) -> None:
    token, epoch = bench.held(request(), dispatch=False)
    assert bench.apply(Doubt("k", token, epoch, "?")) == Refused(State.CLAIMED)


def a_caller_may_be_stricter_than_the_pinned_terms(bench: Bench) -> None:
    bench.held(request(on=KEYED))
    bench.lease_ends()
    assert isinstance(bench.claim(request())[1], Doubtful)


def terms_are_pinned_at_the_first_claim(bench: Bench) -> None:
    bench.held(request())
    bench.lease_ends()
    assert isinstance(bench.claim(request(on=KEYED))[1], Doubtful)


# ---------------------------------------------------------------- rejection


def a_rejection_of_the_only_send_is_a_failure(bench: Bench) -> None:
    token, epoch = bench.held(request())
    assert bench.apply(Fail("k", token, epoch, b"no")) == Applied(epoch)
    assert bench.claim(request())[1] == Recorded(State.FAILED, b"no", 0.0, WINDOW_S)


def a_rejection_after_an_ambiguous_send_is_not_a_failure(bench: Bench) -> None:
    token, epoch = bench.held(request(on=KEYED))
    bench.apply(Dispatch("k", token, epoch, 2, LEASE_S))
    assert bench.apply(Fail("k", token, epoch, b"no")) == Refused(State.DISPATCHED)


def a_rejection_after_a_lost_owner_is_not_a_failure(bench: Bench) -> None:
    bench.held(request(on=KEYED))
    bench.lease_ends()
    token, epoch = bench.held(request(on=KEYED))
    assert bench.apply(Fail("k", token, epoch, b"no")) == Refused(State.DISPATCHED)


def a_downstream_that_stores_rejections_may_be_believed(bench: Bench) -> None:
    asked = request(on=replace(KEYED, stores_rejections=True))
    token, epoch = bench.held(asked)
    bench.apply(Dispatch("k", token, epoch, 2, LEASE_S))
    assert bench.apply(Fail("k", token, epoch, b"no")) == Applied(epoch)


def a_claim_completes_or_fails_unsent_only_in_a_transaction_or_by_its_steps(bench: Bench) -> None:
    token, epoch = bench.held(request("plain"), dispatch=False)
    assert bench.apply(Complete("plain", token, epoch, b"x")) == Refused(State.CLAIMED)
    assert bench.apply(Fail("plain", token, epoch, b"x")) == Refused(State.CLAIMED)
    token, epoch = bench.held(request("done", on=TRANSACTED), dispatch=False)
    assert bench.apply(Complete("done", token, epoch, b"x")) == Applied(epoch)
    token, epoch = bench.held(request("failed", on=TRANSACTED), dispatch=False)
    assert bench.apply(Fail("failed", token, epoch, b"x")) == Applied(epoch)
    token, epoch = bench.held(request("workflow", on=terms(steps=True)), dispatch=False)
    assert bench.apply(Complete("workflow", token, epoch, b"x")) == Applied(epoch)
