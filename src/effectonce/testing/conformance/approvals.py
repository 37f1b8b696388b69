"""Records that wait for a person: who may hold them, when, and with which arguments."""

from __future__ import annotations

from effectonce._core.ops import (
    Applied,
    Approve,
    Claim,
    Complete,
    Dispatch,
    Find,
    Held,
    Mismatch,
    Recorded,
    Refused,
    Refute,
    Renew,
    Unapproved,
)
from effectonce._core.record import APPROVED, ASKED_BY, Record, Request, State
from effectonce.testing.conformance.bench import LEASE_S, RACERS, Bench, request, terms

VALID_S = 60.0


def _wish(key: str = "k", fingerprint: str = "same", *, four_eyes: bool = False) -> Request:
    on = terms(approval=True, four_eyes=four_eyes)
    return request(key, on=on, fingerprint=fingerprint)


def _claim(bench: Bench, asked: Request, by: str = "") -> Claim:
    return Claim(asked, bench.token(), LEASE_S, dispatch=False, asked_by=by)


def _approve(bench: Bench, asked: Request, by: str = "ada") -> object:
    return bench.apply(Approve(asked.key, asked.fingerprint, VALID_S, by, "yes"))


def _found(bench: Bench, key: str = "k") -> Record:
    record = bench.apply(Find(key))
    assert record is not None
    return record


def what_needs_an_approval_waits_and_has_no_owner(bench: Bench) -> None:
    wish = _wish()
    assert bench.apply(_claim(bench, wish, "agent")) == Unapproved(0.0, fingerprint="same")
    bench.clock.advance(5)
    assert bench.apply(_claim(bench, wish)) == Unapproved(5.0, fingerprint="same")
    record = _found(bench)
    assert (record.state, record.token, record.sends) == (State.CLAIMED, "", 0)
    assert record.reason == "agent"


def an_approval_lets_one_claim_hold_it_and_it_is_sent(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    assert isinstance(_approve(bench, wish), Applied)
    claim = _claim(bench, wish)
    held = bench.apply(claim)
    assert isinstance(held, Held)
    sent = bench.apply(Dispatch("k", claim.token, held.epoch, 1, LEASE_S))
    assert sent == Applied(held.epoch)
    assert bench.apply(Complete("k", claim.token, held.epoch, b"done")) == Applied(held.epoch)
    assert isinstance(bench.apply(_claim(bench, wish)), Recorded)
    notes = [entry.note for entry in _found(bench).evidence]
    assert notes == [ASKED_BY, APPROVED]


def of_many_resumers_of_an_approval_one_holds(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    replies = bench.race([_claim(bench, wish) for _ in range(RACERS)])
    assert sum(isinstance(reply, Held) for reply in replies) == 1


def an_approval_ends(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    bench.clock.advance(VALID_S)
    assert bench.apply(_claim(bench, wish)) == Unapproved(VALID_S, True, "same")
    assert isinstance(_approve(bench, wish, "grace"), Applied)
    assert isinstance(bench.apply(_claim(bench, wish)), Held)


def an_approval_is_for_these_arguments(bench: Bench) -> None:
    wish, other = _wish(), _wish(fingerprint="other")
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    assert bench.apply(_claim(bench, other)) == Mismatch("pay")  # and what was approved is void
    assert _found(bench).request.fingerprint == "other"
    assert isinstance(bench.apply(_claim(bench, other)), Unapproved)
    assert bench.apply(Approve("k", "same", VALID_S, "ada", "y")) == Refused(State.CLAIMED)
    assert isinstance(_approve(bench, other), Applied)
    assert isinstance(bench.apply(_claim(bench, other)), Held)


def who_asked_does_not_approve_where_four_eyes_are_wanted(bench: Bench) -> None:
    wish = _wish(four_eyes=True)
    bench.apply(_claim(bench, wish, "ada"))
    assert _approve(bench, wish, "ada") == Refused(State.CLAIMED)
    assert _approve(bench, wish, " ADA ") == Refused(State.CLAIMED)  # however it is spelt
    assert isinstance(_approve(bench, wish, "grace"), Applied)
    assert isinstance(bench.apply(_claim(bench, wish)), Held)


def an_approval_that_is_repeated_is_one(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    assert isinstance(_approve(bench, wish), Applied)
    before = _found(bench)
    assert isinstance(_approve(bench, wish), Applied)  # its answer was lost
    assert _found(bench) == before


def what_waits_can_be_rejected_also_after_it_was_approved(bench: Bench) -> None:
    for key in ("asked", "approved"):
        wish = _wish(key)
        bench.apply(_claim(bench, wish))
        if key == "approved":
            _approve(bench, wish)
        assert isinstance(bench.apply(Refute(key, b"no", "ada", "no")), Applied)
        reply = bench.apply(_claim(bench, wish))
        assert isinstance(reply, Recorded)
        assert (reply.state, reply.outcome, reply.settled_by) == (State.FAILED, b"no", "ada")


def an_approval_stays_with_a_claim_whose_owner_died(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    assert isinstance(bench.apply(_claim(bench, wish)), Held)
    bench.clock.advance(LEASE_S + 1)
    claim = _claim(bench, wish)
    held = bench.apply(claim)  # it was never sent, and its approval is still good
    assert isinstance(held, Held)
    bench.apply(Dispatch("k", claim.token, held.epoch, 1, LEASE_S))
    assert _approve(bench, wish, "grace") == Refused(State.DISPATCHED)


def what_needs_no_approval_takes_the_place_of_what_was_not_sent(bench: Bench) -> None:
    wish, other = _wish(), request(fingerprint="other")
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    claim = Claim(other, bench.token(), LEASE_S, dispatch=True)
    assert bench.apply(claim) == Mismatch("pay")  # nothing is sent by the call that finds it
    assert _found(bench).sends == 0
    assert isinstance(bench.apply(claim), Held)
    assert bench.apply(_claim(bench, wish)) == Mismatch("pay")
    assert _found(bench).request.fingerprint == "other"


def what_needs_an_approval_by_now_waits_for_one(bench: Bench) -> None:
    asked = request(fingerprint="same")
    claim = Claim(asked, bench.token(), LEASE_S, dispatch=False)
    assert isinstance(bench.apply(claim), Held)
    bench.apply(Renew("k", claim.token, 1, 0))
    assert bench.apply(_claim(bench, _wish(), "agent")) == Unapproved(0.0, fingerprint="same")
    assert bench.apply(Dispatch("k", claim.token, 1, 1, LEASE_S)) == Refused(State.CLAIMED)
    assert isinstance(_approve(bench, _wish()), Applied)
    assert isinstance(bench.apply(_claim(bench, _wish())), Held)


def a_rejection_is_of_what_was_seen_and_never_sent(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    assert bench.apply(Refute("k", b"no", "ada", "no", "other")) == Refused(State.CLAIMED)
    _approve(bench, wish)
    claim = _claim(bench, wish)
    held = bench.apply(claim)
    assert isinstance(held, Held)
    bench.apply(Dispatch("k", claim.token, held.epoch, 1, LEASE_S))
    bench.clock.advance(LEASE_S + 1)
    reject = Refute("k", b"no", "ada", "no", wish.fingerprint)
    assert bench.apply(reject) == Refused(State.DISPATCHED)
    bench.apply(_claim(bench, wish))  # its owner vanished
    assert bench.apply(reject) == Refused(State.IN_DOUBT)


def what_was_rejected_is_not_approved_with_the_same_words(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    bench.apply(Refute("k", b"no", "ada", "yes", wish.fingerprint))
    assert _approve(bench, wish) == Refused(State.FAILED)


def an_approval_from_the_future_is_none(bench: Bench) -> None:
    wish = _wish()
    bench.apply(_claim(bench, wish))
    _approve(bench, wish)
    bench.clock.advance(-3600)  # put back: how long ago it was given is not known
    assert isinstance(bench.apply(_claim(bench, wish)), Unapproved)
    assert isinstance(_approve(bench, wish, "grace"), Applied)
    assert isinstance(bench.apply(_claim(bench, wish)), Held)
