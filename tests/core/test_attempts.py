"""What failed attempts leave on the record."""

import asyncio

import pytest

from effectonce import (
    Budget,
    CircuitOpen,
    Downstream,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    Keyring,
    NotSent,
    Rejected,
    Retry,
    State,
    breaker,
    current_effect,
)
from effectonce._core import ops
from effectonce._core.attempt_log import (
    FailedAttempt,
    RedriveRequest,
    asked_again,
    read_entry,
    read_failure,
)
from effectonce._core.codec import decode, encode_error
from effectonce._core.record import GAVE_UP, REDRIVEN, TRIED
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK, Ledger, tool
from tests.flaky import FlakyStore


@pytest.fixture
def store(clock):
    return FlakyStore(clock=clock)


KEYED = Downstream.key(window=3600)


def tried(guard):
    """Every entry of the only record, read."""
    for state in State:
        for record in guard.store.apply(ops.Browse(state)):
            return [read_entry(e.at, e.note, e.outcome) for e in record.evidence]
    return None


def call(guard, pay):
    with guard.step("chat", "pay"):
        return pay()


def failing(guard, *script, **contract):
    ledger = Ledger(*script)

    def pay():
        return ledger.pay()

    return tool(guard, pay, **contract)


NEVER_SENT = [("before", NotSent("refused"))] * 3


def test_every_attempt_says_how_it_ended_and_the_last_one_that_the_call_gave_up(guard, clock):
    pay = failing(guard, *[("before", NotSent(f"refused {n}")) for n in (1, 2, 3)])

    with pytest.raises(GaveUp):
        call(guard, pay)

    def refused(number, gave_up=None):
        said = "the tool says nothing was sent"
        return FailedAttempt(
            number,
            "NotSent",
            f"refused {number}",
            "unknown",
            "not_sent",
            said,
            gave_up=gave_up,
            at=clock(),
            basis="declared",
        )

    assert tried(guard) == [refused(1), refused(2), refused(3, "it was tried 3 times")]


def test_a_delay_that_the_downstream_asked_for_is_kept(guard):
    pay = failing(guard, ("before", NotSent("busy", retry_after_s=7000)))

    with pytest.raises(GaveUp):
        call(guard, pay)

    (entry,) = tried(guard)
    assert (entry.retry_after_s, entry.gave_up[:28]) == (7000, "the next attempt would be in")


def test_success_and_replay_cost_what_they_did(store, guard):
    pay = failing(guard)

    call(guard, pay)
    call(guard, pay)

    assert store.log == ["Claim", "Complete", "Claim"]


def test_a_failed_attempt_costs_one_write(store, guard):
    pay = failing(guard, *NEVER_SENT[:1], ("after", TimeoutError()), downstream=KEYED)

    with pytest.raises(GaveUp):
        call(
            guard,
            tool(guard, pay.__wrapped__, downstream=KEYED, retry=Retry(attempts=1), name="pay"),
        )
    assert store.log == ["Claim", "Unsend", "Attest"]

    store.log.clear()
    assert call(guard, pay) == {"receipt": 2}
    assert store.log == ["Claim", "Attest", "Dispatch", "Complete"]


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_store_that_does_not_hear_it_changes_nothing(how, store, guard):
    pay = failing(guard, *NEVER_SENT[:2])
    store.fail(ops.Attest, how, times=2)

    assert call(guard, pay) == {"receipt": 1}


def test_a_store_that_is_away_is_not_asked_once_more(store, guard):
    pay = failing(guard, *NEVER_SENT)
    store.fail(ops.Unsend, times=3)

    with pytest.raises(GaveUp):
        call(guard, pay)
    assert "Attest" not in store.log


def test_a_definite_failure_says_in_its_outcome_what_it_was_taken_for(guard, clock):
    pay = failing(guard, ("before", NotSent()), ("before", Rejected("no such account")))

    with pytest.raises(Rejected):
        call(guard, pay)

    (record,) = guard.store.apply(ops.Browse(State.FAILED))
    said = read_failure(record.decided_at, decode(record.outcome).content)
    assert said == FailedAttempt(
        2,
        "Rejected",
        "no such account",
        "unknown",
        "rejected",
        "the tool says it was refused",
        at=clock(),
        basis="declared",
    )
    assert [entry.number for entry in tried(guard)] == [1]


def test_a_failure_of_an_older_release_has_no_verdict():
    assert read_failure(7.0, decode(encode_error(ValueError("no"))).content) == FailedAttempt(
        0, "ValueError", "no", at=7.0
    )


def test_a_doubt_says_which_error_it_came_from(guard):
    pay = failing(guard, ("after", TimeoutError("no answer")))

    with pytest.raises(InDoubt):
        call(guard, pay)

    (entry,) = tried(guard)
    assert (entry.error, entry.message, entry.bucket, entry.certainty) == (
        "TimeoutError",
        "no answer",
        "no_answer",
        "ambiguous",
    )
    assert entry.gave_up == "it may have happened, and nobody can know"


def test_a_rejection_after_a_lost_send_is_told_with_both(guard):
    pay = failing(guard, ("after", TimeoutError()), ("before", Rejected("?")), downstream=KEYED)

    with pytest.raises(InDoubt):
        call(guard, pay)

    assert [(e.number, e.error, e.gave_up) for e in tried(guard)] == [
        (1, "TimeoutError", None),
        (2, "Rejected", "an earlier send may have landed"),
    ]


def test_a_probe_that_finds_it_leaves_the_attempt_on_the_record(guard):
    pay = failing(guard, ("after", TimeoutError()), downstream="probe")
    pay.probe(lambda: Found("receipt"))

    assert call(guard, pay) == "receipt"
    assert [entry.error for entry in tried(guard)] == ["TimeoutError"]


def test_a_transaction_that_was_rolled_back_leaves_what_its_tool_said(tmp_path, clock):
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), cache=0)

    def pay():
        current_effect().connection.execute("CREATE TABLE paid (n)")
        raise TimeoutError("the ledger is locked")

    with pytest.raises(GaveUp):
        call(guard, tool(guard, pay, downstream="transaction"))

    assert [(e.number, e.certainty, e.gave_up is None) for e in tried(guard)] == [
        (1, "not_sent", True),
        (2, "not_sent", True),
        (3, "not_sent", False),
    ]
    guard.close()


def test_an_error_that_is_worth_no_other_attempt_ends_the_call(guard):
    pay = failing(guard, ("before", NotSent("no such host", retryable=False)))

    with pytest.raises(NotSent):
        call(guard, pay)

    assert [(e.number, e.gave_up) for e in tried(guard)] == [
        (1, "nothing says that another attempt would go better")
    ]


@pytest.mark.parametrize("lost", [False, True])
def test_a_breaker_that_opens_between_attempts_is_the_last_word(guard, lost):
    error = ("after", TimeoutError()) if lost else ("before", ConnectionRefusedError())
    contract = {"downstream": KEYED, "one_request": True, "breaker": breaker("bank", consecutive=1)}
    pay = failing(guard, error, **contract)

    with pytest.raises(GaveUp if lost else CircuitOpen):
        call(guard, pay)

    first, last = tried(guard)
    assert (first.number, first.gave_up) == (1, None)
    assert (last.number, last.error, last.bucket, last.gave_up) == (
        0,
        "CircuitOpen",
        "circuit_open",
        "its breaker is open now",
    )
    assert last.retry_after_s is not None


def take_over_at_the_next_dispatch(guard, store, clock, *, lease_s, dispatch):
    apply, taken = store.apply, []

    def steal(op):
        if isinstance(op, ops.Dispatch) and not taken:
            clock.advance(31)
            taken.append(
                apply(ops.Claim(guard.find(op.key).request, "another", lease_s, dispatch=dispatch))
            )
        return apply(op)

    store.apply = steal


def test_a_call_that_meets_somebody_else_after_an_unanswered_send_gives_up(guard, store, clock):
    """Its lease ends while it waits, and somebody else takes the record."""
    pay = failing(guard, ("after", TimeoutError("no answer")), downstream=KEYED)
    take_over_at_the_next_dispatch(guard, store, clock, lease_s=30.0, dispatch=True)
    with pytest.raises(GaveUp):
        call(guard, pay)

    assert [(e.number, e.error, e.gave_up) for e in tried(guard)] == [
        (1, "TimeoutError", None),
        (0, "TimeoutError", "it could not go on"),
    ]


def test_a_turn_that_refuses_to_go_on_after_an_unanswered_send_does_not_say_that_nothing_was_sent(
    guard, store, clock
):
    """Somebody else took the record and let it go again; to go on would be a third attempt."""
    pay = failing(guard, ("after", TimeoutError("no answer")), downstream=KEYED)
    take_over_at_the_next_dispatch(guard, store, clock, lease_s=0.0, dispatch=False)
    with (
        guard.turn("chat", "turn-7", budget=Budget(attempts=2)),
        pytest.raises(GaveUp, match=r"may have run: attempt 1 ended with TimeoutError"),
    ):
        call(guard, pay)


def test_a_cancelled_caller_has_not_given_up(guard):
    @guard.tool(kind="write", downstream=KEYED, retry=QUICK)
    async def pay():
        raise asyncio.CancelledError

    async def main():
        async with guard.step("chat", "pay"):
            await pay()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())

    assert [(e.error, e.gave_up) for e in tried(guard)] == [("CancelledError", None)]


def test_what_an_error_said_is_sealed_and_opened(tmp_path, clock):
    store = SqliteStore(tmp_path / "effects.db", clock=clock)
    guard = Guard(store, cache=0, secret=b"s" * 32, keyring=Keyring({"2026-11": b"n" * 32}))
    pay = failing(guard, *[("before", NotSent("card 4111 refused"))] * 3)

    with pytest.raises(GaveUp):
        call(guard, pay)

    assert [entry.message for entry in tried(guard)] == ["card 4111 refused"] * 3
    bare = Guard(store, cache=0)
    # that much is in the clear
    assert [entry.gave_up is None for entry in tried(bare)] == [True, True, False]
    assert {entry.message for entry in tried(bare)} == {"what it said cannot be read"}
    store.close()
    assert b"4111".hex().encode() not in (tmp_path / "effects.db").read_bytes()


def test_who_asked_again_can_be_read_and_a_note_is_neither():
    op = asked_again("k", "ada", "the bank is back")

    assert read_entry(5.0, op.note, op.outcome) == RedriveRequest("ada", "the bank is back", 5.0)
    assert read_entry(5.0, REDRIVEN, b"?") == RedriveRequest("", "what it said cannot be read", 5.0)
    assert read_entry(5.0, GAVE_UP, b"v1 attempt {") == FailedAttempt(
        0, "", "what it said cannot be read", gave_up="what it said cannot be read", at=5.0
    )
    assert read_entry(5.0, TRIED, b'v1 attempt {"number":1,"error":"\xff"}').gave_up is None
    assert read_entry(5.0, "a note", b"v1 ok 1") is None


def test_a_long_message_is_cut_and_a_strange_one_is_printable(guard):
    class Strange(Exception):
        def __str__(self):
            return "\ud800" + "x" * 5000

    pay = failing(guard, ("after", Strange()))
    with pytest.raises(InDoubt):
        call(guard, pay)

    (entry,) = tried(guard)
    assert (entry.error[-7:], len(entry.message), entry.message[:2]) == ("Strange", 1000, "?x")
