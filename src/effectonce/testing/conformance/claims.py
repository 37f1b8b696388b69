"""Claiming, other requests under the same key, windows and sweeping."""

from __future__ import annotations

from math import inf
from typing import Any

from effectonce._core.guarantees import Capability, Kind
from effectonce._core.ops import (
    Attest,
    Busy,
    Claim,
    Complete,
    Confirm,
    Doubtful,
    Fail,
    Find,
    Held,
    KeyExpired,
    Mismatch,
    Recorded,
    Sweep,
    Swept,
)
from effectonce._core.record import Request, State
from effectonce.testing.conformance.bench import (
    KEYED,
    LEASE_S,
    PROBED,
    RACERS,
    RESEND_S,
    WINDOW_S,
    Bench,
    request,
    terms,
)

# ---------------------------------------------------------------- claiming


def the_first_claim_holds_and_dispatches_in_one_write(bench: Bench) -> None:
    _, reply = bench.claim(request())
    assert reply == Held(epoch=1, sends=1, dispatched=True)
    assert bench.state(request()) is State.DISPATCHED


def a_claim_may_hold_without_dispatching(bench: Bench) -> None:
    _, reply = bench.claim(request(), dispatch=False)
    assert reply == Held(epoch=1, sends=0, dispatched=False)
    assert bench.state(request()) is State.CLAIMED


def a_record_reads_back_as_it_was_written(bench: Bench) -> None:
    asked = Request(
        "k", "f", PROBED, "tenant ☂", "chat\x00", "it's a step", b"\x00\xff", "latch", ""
    )
    token, _ = bench.claim(asked)
    record = bench.record(asked)
    assert record.request == asked
    assert record.token == record.dtoken == token
    assert record.created_at == record.first_dispatch_at == bench.clock.now
    assert record.lease_until == record.sent_until == bench.clock.now + LEASE_S


def a_live_lease_makes_others_wait(bench: Bench) -> None:
    bench.claim(request())
    bench.clock.advance(10)
    assert bench.claim(request())[1] == Busy(LEASE_S - 10)


def a_claim_that_was_never_sent_takes_the_terms_of_today(bench: Bench) -> None:
    bench.claim(request(on=KEYED), dispatch=False)
    bench.lease_ends()
    bench.held(request(), dispatch=False)
    assert bench.record(request()).request.terms == terms()


def what_was_sent_keeps_the_terms_it_was_sent_under(bench: Bench) -> None:
    bench.claim(request(on=KEYED))
    bench.lease_ends()
    assert bench.claim(request(on=terms(Capability.KEY, resend_s=inf)))[1] == Held(
        epoch=2, sends=2, dispatched=True, taken_over=True
    )
    assert bench.record(request()).request.terms == KEYED


def another_help_does_not_recognise_what_was_sent(bench: Bench) -> None:
    harmless = terms(kind=Kind.IDEMPOTENT_WRITE, resend_s=inf)
    for key, sent, asked in (
        ("bare", harmless, KEYED),
        ("keyed", KEYED, terms(Capability.TRANSACTION)),
        ("loose", KEYED, harmless),
    ):
        bench.claim(request(key, on=sent))
        bench.lease_ends()
        assert isinstance(bench.claim(request(key, on=asked))[1], Doubtful)
        assert bench.state(request(key)) is State.IN_DOUBT


def of_many_racers_one_holds(bench: Bench) -> None:
    replies = bench.race([bench.claiming(request()) for _ in range(RACERS)])
    assert sum(isinstance(reply, Held) for reply in replies) == 1
    assert sum(isinstance(reply, Busy) for reply in replies) == RACERS - 1


def keys_do_not_wait_for_each_other(bench: Bench) -> None:
    replies = bench.race([bench.claiming(request(f"k{n}")) for n in range(RACERS)])
    assert all(isinstance(reply, Held) for reply in replies)


def a_lost_claim_acknowledgement_is_repeated_not_busy(bench: Bench) -> None:
    claim = bench.claiming(request())
    assert bench.apply(claim) == bench.apply(claim) == Held(epoch=1, sends=1, dispatched=True)
    assert bench.record(request()).sends == 1


def an_unsent_claim_is_stolen_after_its_lease(bench: Bench) -> None:
    bench.held(request(), dispatch=False)
    bench.lease_ends()
    assert bench.claim(request())[1] == Held(epoch=2, sends=1, dispatched=True)


def a_live_claim_is_not_stolen(bench: Bench) -> None:
    bench.held(request(), dispatch=False)
    bench.clock.advance(LEASE_S - 0.001)
    assert isinstance(bench.claim(request())[1], Busy)


def continuous_retries_do_not_keep_a_dead_claim_alive(bench: Bench) -> None:
    bench.held(request(), dispatch=False)
    replies = []
    for _ in range(8):
        bench.clock.advance(LEASE_S / 8)
        replies.append(bench.claim(request())[1])
    assert isinstance(replies[-1], Held)


# ---------------------------------------------------------------- other requests, tenants, windows


def another_request_never_inherits_the_key(bench: Bench) -> None:
    other = request(fingerprint="other")
    bench.held(request(on=KEYED))
    assert bench.claim(other)[1] == Mismatch("pay")
    bench.lease_ends()
    assert bench.claim(other)[1] == Mismatch("pay")
    bench.done(request(on=KEYED))
    assert bench.claim(other)[1] == Mismatch("pay")


def another_request_never_inherits_a_failure_or_a_doubt(bench: Bench) -> None:
    token, epoch = bench.held(request("failed"))
    bench.apply(Fail("failed", token, epoch, b"no"))
    bench.in_doubt(request("doubtful"))
    for key in ("failed", "doubtful"):
        assert bench.claim(request(key, fingerprint="other"))[1] == Mismatch("pay")


def another_request_never_takes_an_unsent_claim(bench: Bench) -> None:
    bench.held(request(), dispatch=False)
    bench.lease_ends()
    assert bench.claim(request(fingerprint="other"))[1] == Mismatch("pay")


def an_outcome_is_replayed_within_its_window(bench: Bench) -> None:
    bench.done(request(), b"v1 ok 0")
    bench.clock.advance(WINDOW_S - 1)
    assert bench.claim(request())[1] == Recorded(State.COMPLETED, b"v1 ok 0", WINDOW_S - 1, 1.0)


def asking_again_changes_no_reply(bench: Bench) -> None:
    def again(asked: Request) -> Any:
        return bench.apply(Claim(asked, bench.token(), LEASE_S, dispatch=True, again=True))

    token, epoch = bench.held(request())
    assert again(request()) == Busy(LEASE_S)
    assert again(request(fingerprint="other")) == Mismatch("pay")
    bench.apply(Complete("k", token, epoch, b"done"))
    assert again(request()) == Recorded(State.COMPLETED, b"done", 0.0, WINDOW_S)
    assert again(request(fingerprint="other")) == Mismatch("pay")
    bench.clock.advance(WINDOW_S + 1)
    assert again(request()) == KeyExpired(1.0)
    assert isinstance(again(request("new")), Held)


def of_many_that_take_over_one_holds(bench: Bench) -> None:
    asked = request(on=KEYED)
    bench.held(asked)
    bench.lease_ends()
    replies = bench.race([bench.claiming(asked) for _ in range(RACERS)])
    assert sum(isinstance(reply, Held) for reply in replies) == 1
    assert (bench.record(asked).epoch, bench.record(asked).sends) == (2, 2)


def an_empty_outcome_is_an_outcome(bench: Bench) -> None:
    bench.done(request(), b"")
    assert isinstance(bench.claim(request())[1], Recorded)


def an_expired_key_is_refused_before_any_sweep(bench: Bench) -> None:
    bench.done(request())
    bench.clock.advance(WINDOW_S + 1)
    assert bench.claim(request())[1] == KeyExpired(1.0)


def an_expired_key_is_refused_after_the_sweep(bench: Bench) -> None:
    asked = request(scope="chat", step="pay", arguments=b"what it was asked for")
    bench.in_doubt(asked)
    bench.apply(Attest("k", "what a person knew"))
    bench.apply(Confirm("k", b"done", "ada", "seen on the statement"))
    bench.clock.advance(WINDOW_S + 1)
    assert bench.apply(Sweep()) == Swept(doubted=0, buried=1, forgotten=0)
    left = bench.record(asked)
    # no data stay longer
    assert (left.request, left.outcome, left.reason, left.evidence) == (request(), b"", "", ())
    assert bench.claim(asked)[1] == KeyExpired(1.0)


def a_sweep_leaves_open_windows_and_records_without_an_outcome(bench: Bench) -> None:
    bench.done(request("done"))
    bench.held(request("claimed"), dispatch=False)
    bench.held(request("sent", on=KEYED))
    bench.in_doubt(request("doubtful"))
    bench.clock.advance(RESEND_S - 1)
    assert bench.apply(Sweep()) == Swept(0, 0, 0)
    bench.clock.advance(1e9)
    assert bench.apply(Sweep()) == Swept(doubted=1, buried=1, forgotten=0)
    assert bench.state(request("claimed")) is State.CLAIMED
    assert bench.state(request("doubtful")) is State.IN_DOUBT


def a_sweep_finds_abandoned_effects(bench: Bench) -> None:
    bench.held(request("alone"))
    bench.held(request("of a step", latch="step"))
    assert bench.apply(Sweep()) == Swept(0, 0, 0)
    bench.lease_ends()
    assert bench.apply(Sweep()) == Swept(doubted=2, buried=0, forgotten=0)
    assert bench.state(request("alone")) is bench.state(request("of a step")) is State.IN_DOUBT


def a_sweep_is_bounded(bench: Bench) -> None:
    for n in range(5):
        bench.done(request(f"k{n}"))
    bench.clock.advance(WINDOW_S + 1)
    assert [bench.apply(Sweep(2)).buried for _ in range(4)] == [2, 2, 1, 0]


def a_tombstone_is_forgotten_when_its_own_time_is_over(bench: Bench) -> None:
    short = request(on=terms(tombstone_s=100.0))
    token, epoch = bench.held(short)
    bench.apply(Fail("k", token, epoch, b"no"))
    bench.clock.advance(WINDOW_S + 1)
    assert bench.apply(Sweep()) == Swept(0, buried=1, forgotten=0)
    bench.clock.advance(98)
    assert bench.apply(Sweep()) == Swept(0, 0, 0)
    bench.clock.advance(2)
    assert bench.apply(Sweep()) == Swept(0, 0, forgotten=1)
    assert bench.apply(Find("k")) is None


def a_time_window_runs_again_after_its_end_and_leaves_nothing(bench: Bench) -> None:
    windowed = request(on=terms(resend_s=inf, tombstone_s=0.0, rerun=True))
    for epoch in (1, 2):
        token, reply = bench.claim(windowed)
        assert isinstance(reply, Held)
        assert reply.epoch == epoch
        bench.apply(Complete("k", token, epoch, b"done"))
        assert isinstance(bench.claim(windowed)[1], Recorded)
        bench.clock.advance(WINDOW_S + 1)
    assert bench.apply(Sweep()) == Swept(0, 0, forgotten=1)
    for _ in range(2):
        token, epoch = bench.held(windowed)
        bench.apply(Fail("k", token, epoch, b"no"))
        bench.clock.advance(WINDOW_S + 1)
    assert bench.apply(Sweep()) == Swept(0, 0, forgotten=1)
