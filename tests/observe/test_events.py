"""What happens is told: every way a call can go, in both colours, without a word that must not
be told.
"""

import asyncio
import contextlib
import logging

import pytest

from effectonce import (
    Budget,
    Circuit,
    Conflict,
    ContractViolation,
    Downstream,
    EffectOnceError,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    InFlight,
    NotFound,
    NotSent,
    PartialSuccess,
    Rejected,
    Retry,
    RetryBudget,
    StoreUnavailable,
    current_effect,
)
from effectonce._core.ops import Complete, Unavailable
from effectonce.effect import running
from effectonce.observe import EVENTS, OUTCOMES, Event
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.observe.helpers import QUICK, names, only, watched


def tool(guard, body, colour="sync", **contract):
    """A tool of one colour around a sync body, and a call of it in its step."""
    settings = {"kind": "write", "retry": QUICK, "wait_s": 0} | contract
    if colour == "sync":

        @guard.tool(**settings)
        def pay(amount: int = 1):
            return body()

        def call(step="pay", **arguments):
            with guard.step("chat", step):
                return pay(**arguments)

        return pay, call

    @guard.tool(**settings)
    async def apay(amount: int = 1):
        return body()

    def acall(step="pay", **arguments):
        async def inside():
            async with guard.step("chat", step):
                return await apay(**arguments)

        return asyncio.run(inside())

    return apay, acall


def script(*answers):
    """A downstream that answers, or raises, one after the other."""
    left = list(answers)

    def body():
        if running.get() is not None:  # a read has no key
            current_effect().downstream_key  # noqa: B018  # sent with the request
        answer = left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return body


colours = pytest.mark.parametrize("colour", ["sync", "async"])


# ---------------------------------------------------------------- ordinary calls


@colours
def test_a_first_call_and_its_replay(colour):
    guard, seen = watched(cache=0)
    _, call = tool(guard, script("receipt"), colour)

    call()
    call()

    assert names(seen) == [
        *("reserved", "dispatched", "attempt", "completed", "call"),
        *("dedup_hit", "call"),
    ]
    first, second = [event for event in seen if event.name == "call"]
    assert (first.outcome, first.attempt, first.error) == ("executed", 1, "")
    assert (second.outcome, second.attempt) == ("replayed", 0)
    assert first.duration_s >= 0
    assert second.age_s >= 0
    assert first.effect == second.effect == only(seen, "reserved").effect


@colours
def test_a_replay_from_the_memory_of_the_process_is_told_as_well(colour):
    guard, seen = watched()
    _, call = tool(guard, script("receipt"), colour)

    call()
    seen.clear()
    call()

    assert [event.name for event in seen] == ["calling", "dedup_hit", "call"]


@colours
def test_a_retry_is_told_with_what_the_error_means(colour):
    guard, seen = watched()
    _, call = tool(
        guard,
        script(NotSent("no line"), TimeoutError("no answer"), "receipt"),
        colour,
        downstream="key",
    )

    call()

    assert names(seen) == [
        *("reserved", "dispatched", "attempt", "not_sent", "retry_scheduled"),
        *("dispatched", "attempt", "retry_scheduled", "dispatched", "attempt", "completed", "call"),
    ]
    attempts = [event for event in seen if event.name == "attempt"]
    assert [(e.attempt, e.error, e.certainty) for e in attempts] == [
        (1, "NotSent", "not_sent"),
        (2, "TimeoutError", "ambiguous"),
        (3, "", ""),
    ]
    assert [e.bucket for e in attempts] == ["unknown", "no_answer", ""]
    assert only(seen, "call").attempt == 3


@colours
def test_a_definite_failure_is_told_and_so_is_its_replay(colour):
    guard, seen = watched(cache=0)
    _, call = tool(guard, script(Rejected("declined")), colour)

    with pytest.raises(Rejected):
        call()
    with pytest.raises(Exception, match="declined"):
        call()

    assert names(seen) == [
        *("reserved", "dispatched", "attempt", "failed", "call"),
        *("dedup_hit", "call"),
    ]
    calls = [event for event in seen if event.name == "call"]
    assert [(e.outcome, e.error) for e in calls] == [
        ("failed", "Rejected"),
        ("replayed", "ReplayedFailure"),
    ]


@colours
def test_a_doubt_is_told_with_its_reason_but_not_with_the_message(colour):
    guard, seen = watched()
    _, call = tool(guard, script(TimeoutError("card-number")), colour)

    with pytest.raises(InDoubt):
        call()

    assert names(seen) == ["reserved", "dispatched", "attempt", "in_doubt", "dead_letter", "call"]
    doubt = only(seen, "in_doubt")
    assert (doubt.error, doubt.bucket) == ("TimeoutError", "no_answer")
    assert doubt.reason
    assert "card-number" not in str(seen)


def test_a_partial_success_and_a_result_that_came_too_late():
    clock = FakeClock()
    guard, seen = watched(MemoryStore(clock=clock))
    _, call = tool(guard, script(PartialSuccess("half", corrective_action="finish it")))
    with pytest.raises(PartialSuccess):
        call()
    assert names(seen) == ["reserved", "dispatched", "attempt", "completed", "call"]

    def slow():
        clock.advance(100)
        other, _ = watched(guard.store)
        _, theirs = tool(other, script("theirs"), downstream="key", lease_s=30)
        theirs("late")
        return "ours"

    late, seen = watched(guard.store)
    _, call = tool(late, slow, downstream="key", lease_s=30)
    call("late")
    assert "fenced_out" in names(seen)
    assert only(seen, "call").outcome == "coalesced"


@pytest.mark.parametrize(("downstream", "outcome"), [("key", "held"), ("none", "in_doubt")])
def test_what_a_vanished_caller_left_is_told_as_taken_over(downstream, outcome):
    clock = FakeClock()
    guard, _ = watched(MemoryStore(clock=clock))
    other, seen = watched(guard.store)

    def too_long():
        clock.advance(31)
        _, theirs = tool(other, script("theirs"), downstream=downstream, lease_s=30)
        for _ in range(2):
            with contextlib.suppress(InDoubt):
                theirs()
            clock.advance(1)

    _, call = tool(guard, too_long, downstream=downstream, lease_s=30)
    with contextlib.suppress(EffectOnceError):
        call()

    assert only(seen, "taken_over").outcome == outcome


def test_a_caller_that_gave_up_has_not_vanished():
    clock = FakeClock()
    guard, seen = watched(MemoryStore(clock=clock))
    _, call = tool(
        guard, script(TimeoutError(), "receipt"), downstream="key", retry=Retry(attempts=1)
    )

    with pytest.raises(GaveUp):
        call()
    clock.advance(31)
    call()

    assert "taken_over" not in names(seen)


# ---------------------------------------------------------------- refusals


def test_a_conflict_an_expired_key_and_a_latch_are_told():
    clock = FakeClock()
    guard, seen = watched(MemoryStore(clock=clock), cache=0)
    _, call = tool(guard, script("receipt", TimeoutError()), window=60, identity=[])

    call(amount=1)
    with pytest.raises(Conflict):
        call(amount=2)
    clock.advance(61)
    with pytest.raises(Exception, match="expired"):
        call(amount=1)
    with pytest.raises(InDoubt):
        call("other")
    with guard.step("chat", "other"), pytest.raises(InDoubt):
        guard.tool(kind="write", name="refund")(lambda: None)()

    told = [
        (event.name, event.outcome)
        for event in seen
        if event.name in ("conflict", "expired", "latched", "call")
    ]
    assert told == [
        ("call", "executed"),
        ("conflict", ""),
        ("call", "conflict"),
        ("expired", ""),
        ("call", "refused"),
        ("call", "in_doubt"),
        ("latched", "in_doubt"),
        ("call", "refused"),
    ]


def test_a_call_that_meets_another_one_is_told():
    guard, seen = watched()

    def met():
        with pytest.raises(InFlight), guard.step("chat", "pay"):
            pay()
        return "receipt"

    pay, call = tool(guard, met)
    call()

    inner, outer = [event for event in seen if event.name == "call"]
    assert (inner.outcome, outer.outcome) == ("in_flight", "executed")
    assert only(seen, "in_flight").effect == outer.effect


def test_a_call_that_waits_for_another_one_is_coalesced(tmp_path):
    guard, seen = watched(MemoryStore(), cache=0)
    started = asyncio.Event()

    @guard.tool(kind="write", wait_s=30)
    async def pay():
        started.set()
        await asyncio.sleep(0.02)
        return "receipt"

    async def call():
        async with guard.step("chat", "pay"):
            return await pay()

    async def both():
        first = asyncio.ensure_future(call())
        await started.wait()
        return await asyncio.gather(first, call())

    assert asyncio.run(both()) == ["receipt", "receipt"]
    assert sorted(event.outcome for event in seen if event.name == "call") == [
        "coalesced",
        "executed",
    ]
    assert "coalesced" in names(seen)


@colours
def test_a_contract_that_is_broken_is_a_refused_call(colour):
    guard, seen = watched()
    pay, _ = tool(guard, script("receipt"), colour)

    with pytest.raises(ContractViolation, match="outside a step"):
        asyncio.run(pay()) if colour == "async" else pay()

    assert [event.name for event in seen] == ["calling", "call"]
    assert (seen[1].outcome, seen[1].error) == ("refused", "ContractViolation")


def test_a_sequence_out_of_order_is_told():
    guard, seen = watched()
    pay, _ = tool(guard, script("receipt"))
    with guard.sequence("account", 2), pytest.raises(Exception, match="predecessor"):
        pay()
    assert names(seen) == ["out_of_order", "call"]


# ---------------------------------------------------------------- retries that are kept back


@pytest.mark.parametrize(
    ("reason", "contract", "answers"),
    [
        ("max_attempts", {}, lambda: [NotSent() for _ in range(3)]),
        (
            "deadline",
            {"retry": Retry(attempts=3, deadline_s=5)},
            lambda: [NotSent(retry_after_s=60)],
        ),
        ("budget", {"budget": RetryBudget("bank", capacity=1, cost=2)}, lambda: [NotSent()]),
        ("never_retry", {}, lambda: [NotSent(retryable=False)]),
        ("max_attempts", {"downstream": "key"}, lambda: [TimeoutError() for _ in range(3)]),
    ],
)
@colours
def test_why_there_is_no_other_attempt(reason, contract, answers, colour):
    guard, seen = watched()
    _, call = tool(guard, script(*answers()), colour, **contract)
    with pytest.raises((EffectOnceError, NotSent)):
        call()
    assert only(seen, "retry_suppressed").reason == reason
    assert only(seen, "call").outcome == ("gave_up" if "downstream" in contract else "failed")
    assert only(seen, "dead_letter").reason == reason


def test_a_turn_without_attempts_left_keeps_a_retry_back():
    guard, seen = watched()
    _, call = tool(guard, script(NotSent(), "receipt"))
    with (
        guard.turn("chat", "1", budget=Budget(attempts=1)),
        pytest.raises((EffectOnceError, NotSent)),
    ):
        call()
    assert only(seen, "retry_suppressed").reason == "budget"


def test_a_breaker_that_opens_is_told_and_keeps_calls_back():
    guard, seen = watched()
    circuit = Circuit("bank")
    _, call = tool(guard, script(NotSent(), "receipt"), breaker=circuit)

    circuit.open()
    with pytest.raises(Exception, match="circuit"):
        call()

    moved = only(seen, "breaker")
    assert (moved.dependency, moved.outcome) == ("bank", "forced_open")
    assert (only(seen, "call").outcome, only(seen, "call").error) == ("refused", "CircuitOpen")


def test_a_breaker_that_opens_between_two_attempts_keeps_the_second_back():
    guard, seen = watched()
    circuit = Circuit("bank")

    def body():
        circuit.open()
        raise NotSent

    _, call = tool(guard, body, breaker=circuit)
    with pytest.raises(Exception, match="circuit"):
        call()
    assert only(seen, "retry_suppressed").reason == "breaker"


def test_a_breaker_of_two_tools_tells_once():
    guard, seen = watched()
    circuit = Circuit("bank")
    tool(guard, script(), breaker=circuit)
    guard.tool(kind="write", name="refund", breaker=circuit)(lambda: None)
    circuit.open()
    assert [event.name for event in seen] == ["breaker"]


# ---------------------------------------------------------------- the store


class Deaf(MemoryStore):
    """A store that does not answer to some ops."""

    def __init__(self, *deaf_to):
        super().__init__()
        self.deaf_to = deaf_to

    def apply(self, op, /):
        if isinstance(op, self.deaf_to):
            raise StoreUnavailable("no answer") from ConnectionResetError()
        return super().apply(op)


def test_every_operation_of_the_store_is_timed():
    guard, seen = watched()
    _, call = tool(guard, script("receipt"))
    call()
    told = [(event.operation, event.dependency) for event in seen if event.name == "store"]
    assert told == [("read_cell", "memory"), ("claim", "memory"), ("complete", "memory")]
    assert all(event.duration_s >= 0 for event in seen if event.name == "store")


@colours
def test_a_store_that_does_not_answer_is_told(colour):
    from effectonce._core.ops import Claim

    guard, seen = watched(Deaf(Claim))
    _, call = tool(guard, script("receipt"), colour)
    with pytest.raises(StoreUnavailable):
        call()
    errors = [event for event in seen if event.name == "store_error"]
    assert {(event.operation, event.error) for event in errors} == {
        ("claim", "ConnectionResetError")
    }
    assert only(seen, "call").outcome == "refused"


def test_an_outcome_that_is_kept_on_this_machine_is_told(tmp_path):
    store = Deaf(Complete)
    guard, seen = watched(store, spool=tmp_path)
    _, call = tool(guard, script("receipt"), retry=Retry(attempts=3, deadline_s=0.01))
    call()
    store.deaf_to = ()
    assert "kept" in names(seen)
    guard.spool.settle()


def test_an_unavailable_reply_says_what_was_the_matter():
    from effectonce._tools.event_recorder import trouble

    assert trouble(Unavailable(StoreUnavailable("alone")).error) == "StoreUnavailable"


# ---------------------------------------------------------------- transactions


def test_a_transaction_is_told_when_it_is_committed(tmp_path):
    guard, seen = watched(SqliteStore(tmp_path / "effects.db"))
    _, call = tool(
        guard, script(NotSent(), RuntimeError("rolled back"), "receipt"), downstream="transaction"
    )
    with pytest.raises(RuntimeError):
        call()
    call()
    attempts = [(e.error, e.certainty) for e in seen if e.name == "attempt"]
    assert attempts == [("NotSent", "not_sent"), ("RuntimeError", "not_sent"), ("", "")]
    assert names(seen).count("completed") == 1
    guard.close()


# ---------------------------------------------------------------- settling


def doubtful(guard, **contract):
    """An effect in doubt, its tool and its key."""
    pay, call = tool(guard, script(TimeoutError()), **contract)
    with pytest.raises(InDoubt):
        call()
    (record,) = guard.in_doubt()
    return pay, record.request.key


@pytest.mark.parametrize(("word", "outcome"), [("confirm", "happened"), ("refute", "not_happened")])
def test_a_person_who_settles_is_named_with_the_reason(word, outcome):
    guard, seen = watched()
    _, key = doubtful(guard)
    settle = getattr(guard, word)
    settle(
        key,
        by="ana@bank",
        reason="seen in the ledger",
        **({"result": 1} if word == "confirm" else {}),
    )
    settled = only(seen, "settled")
    assert (settled.by, settled.reason, settled.outcome) == (
        "ana@bank",
        "seen in the ledger",
        outcome,
    )
    assert settled.age_s >= 0
    assert settled.effect.key == key
    assert settled.tool == "pay"


def test_a_person_who_lets_it_be_sent_again_is_named():
    clock = FakeClock()
    guard, seen = watched(MemoryStore(clock=clock))
    _, call = tool(guard, script(KeyboardInterrupt()), downstream=Downstream.key(window=3600))
    with pytest.raises(KeyboardInterrupt):
        call()
    with pytest.raises(ContractViolation):
        guard.retry("no such key", by="ana", reason="why not")
    assert "settled" not in names(seen)


def test_a_probe_that_finds_it_settles_it():
    guard, seen = watched()
    pay, _ = doubtful(guard, downstream="probe")
    pay.probe(lambda amount=1: Found("receipt"))
    seen.clear()

    assert guard.reconcile().settled == 1

    assert names(seen) == ["probed", "settled"]
    settled = only(seen, "settled")
    assert (settled.by, settled.outcome, only(seen, "probed").outcome) == (
        "probe",
        "happened",
        "found",
    )
    assert settled.age_s >= 0


def test_a_probe_inside_a_call_tells_what_it_found():
    clock = FakeClock()
    guard, seen = watched(MemoryStore(clock=clock))
    pay, call = tool(guard, script(TimeoutError(), "receipt"), downstream=Downstream.probe(delay=1))
    pay.probe(lambda amount=1: NotFound())

    with pytest.raises(InDoubt):
        call()
    clock.advance(100)
    call()

    assert [e.outcome for e in seen if e.name == "probed"] == ["not_found", "not_found"]
    settled = only(seen, "settled")
    assert (settled.outcome, settled.by, settled.age_s) == ("not_happened", "probe", 100)


def test_an_async_probe_tells_too_also_when_it_fails():
    guard, seen = watched()
    pay, call = tool(guard, script(TimeoutError()), "async", downstream="probe")

    @pay.probe
    async def asked(amount=1):
        raise ConnectionError

    with pytest.raises(InDoubt):
        call()
    assert asyncio.run(guard.areconcile()).in_doubt == 1
    assert [(e.outcome, e.error) for e in seen if e.name == "probed"] == [
        ("cannot_tell", "ConnectionError")
    ] * 2


def test_a_letter_that_is_redriven_or_discarded_is_told_with_who_asked():
    guard, seen = watched()
    _, call = tool(guard, script(NotSent(retryable=False), NotSent(retryable=False), "receipt"))
    for step in ("one", "two"):
        with pytest.raises(NotSent):
            call(step)
    first, second = guard.dead_letters.list()
    assert [event.reason for event in seen if event.name == "dead_letter"] == [
        "never_retry",
        "never_retry",
    ]

    guard.dead_letters.redrive(first.key, by="ana", reason="the bank is back")
    guard.dead_letters.discard(second.key, by="ben", reason="the customer left")

    redriven, discarded = only(seen, "redriven"), only(seen, "discarded")
    assert (redriven.effect, redriven.by, redriven.reason, redriven.outcome) == (
        first.effect,
        "ana",
        "the bank is back",
        "done",
    )
    assert (discarded.effect, discarded.by, discarded.reason) == (
        second.effect,
        "ben",
        "the customer left",
    )
    assert (discarded.tool, discarded.kind) == ("pay", "write")


def test_evidence_that_the_store_does_not_take_hides_no_retry():
    from effectonce._core.ops import Attest

    guard, seen = watched(Deaf(Attest))
    _, call = tool(guard, script(NotSent(), "receipt"))
    call()
    assert "retry_scheduled" in names(seen)


def test_a_sweep_is_told_and_what_it_found_abandoned():
    clock = FakeClock()
    guard, seen = watched(MemoryStore(clock=clock))
    _, call = tool(guard, script("receipt", KeyboardInterrupt()), window=60, lease_s=30)
    call("one")
    clock.advance(61)
    guard.sweep()
    assert only(seen, "swept").count == 1
    guard.sweep()
    assert names(seen).count("swept") == 1

    from effectonce._core.ops import Claim

    request = guard.find(only(seen, "reserved").effect.key).request
    import msgspec

    guard.store.apply(Claim(msgspec.structs.replace(request, key="k"), "t", 30.0, dispatch=True))
    clock.advance(31)
    guard.sweeper(every_s=60).round()
    assert only(seen, "in_doubt").count == 1


# ---------------------------------------------------------------- reads


@colours
def test_a_read_is_told_with_its_attempts(colour):
    guard, seen = watched()
    body = script(ConnectionError(), "balance")
    if colour == "sync":

        @guard.tool(kind="read", retry=QUICK)
        def balance():
            return body()

        value = balance()
    else:

        @guard.tool(kind="read", retry=QUICK)
        async def balance():
            return body()

        value = asyncio.run(balance())

    assert value == "balance"
    assert names(seen) == ["attempt", "retry_scheduled", "attempt", "call"]
    assert only(seen, "call").effect is None
    assert (only(seen, "call").outcome, only(seen, "call").attempt) == ("executed", 2)


@colours
def test_a_read_that_fails_is_told_and_its_fallback_answers(colour):
    guard, seen = watched()
    body = script(*[ConnectionError()] * 3, ValueError("wrong"))
    if colour == "sync":

        @guard.tool(kind="read", retry=QUICK)
        def balance():
            return body()

        balance.fallback(lambda error: "unknown")
        answer = balance
    else:

        @guard.tool(kind="read", retry=QUICK)
        async def balance():
            return body()

        @balance.fallback
        async def unknown(error):
            return "unknown"

        answer = lambda: asyncio.run(balance())

    assert answer() == "unknown"
    with pytest.raises(ValueError, match="wrong"):
        answer()
    calls = [event for event in seen if event.name == "call"]
    assert [(e.outcome, e.error) for e in calls] == [
        ("gave_up", "ConnectionError"),
        ("failed", "ValueError"),
    ]
    assert [e.reason for e in seen if e.name == "retry_suppressed"] == [
        "max_attempts",
        "never_retry",
    ]


# ---------------------------------------------------------------- observers


def test_an_observer_that_raises_disturbs_nothing_is_logged_once_and_counted(caplog):
    def broken(event):
        raise RuntimeError("no disk")

    guard = Guard(MemoryStore(), observers=[broken])
    _, call = tool(guard, script("receipt"))

    assert call() == "receipt"
    assert call() == "receipt"

    said = [record for record in caplog.records if "observer" in record.message]
    assert [record.levelno for record in said] == [logging.WARNING]
    assert guard._house.watch.failures.total() > 5


def test_an_observer_that_fails_to_close_keeps_nobody_from_closing():
    class Closing:
        def __init__(self, error=None):
            self.error, self.closed = error, False

        def __call__(self, event):
            raise AssertionError("nothing happens")

        def close(self):
            self.closed = True
            if self.error is not None:
                raise self.error

    class Closed(MemoryStore):
        closed = False

        def close(self):
            self.closed = True

    first, second, store = Closing(OSError("disk full")), Closing(), Closed()
    guard = Guard(store, observers=[first, second])
    guard.close()

    assert first.closed
    assert second.closed
    assert store.closed
    assert sum(guard._house.watch.failures.values()) == 1


def test_an_observer_that_nobody_would_await_is_refused():
    async def late(event):
        raise AssertionError("not reached")

    with pytest.raises(ContractViolation, match="would not be awaited"):
        Guard("memory://", observers=[late])
    with pytest.raises(ContractViolation, match="would not be awaited"):
        Guard("memory://").observe(late)


def test_an_observer_that_comes_later_hears_of_tools_that_were_there():
    guard = Guard(MemoryStore())
    _, call = tool(guard, script("receipt"))
    seen = []
    guard.observe(seen.append)
    call()
    assert names(seen)[-1] == "call"


def test_an_observer_hears_only_what_it_wants():
    class Wants:
        events = frozenset({"call"})

        def __init__(self):
            self.seen = []

        def __call__(self, event):
            self.seen.append(event.name)

    wants = Wants()
    guard = Guard(MemoryStore(), observers=[wants])
    _, call = tool(guard, script("receipt"))
    call()
    assert wants.seen == ["call"]


def test_without_an_observer_nothing_of_it_is_even_imported():
    import subprocess
    import sys

    code = (
        "import sys; from effectonce import Guard\n"
        "g = Guard('memory://')\n"
        "@g.tool(kind='write')\n"
        "def pay(): return 1\n"
        "with g.step('a', 'b'): pay()\n"
        "print([m for m in sys.modules if m.startswith('effectonce.observe')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_cancelled_call_is_told_as_such():
    guard, seen = watched()
    started = asyncio.Event()

    @guard.tool(kind="write", downstream="key")
    async def pay():
        current_effect().downstream_key  # noqa: B018  # sent with the request
        started.set()
        await asyncio.sleep(60)

    async def cancelled():
        async with guard.step("chat", "pay"):
            task = asyncio.ensure_future(pay())
            await started.wait()
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert (only(seen, "call").outcome, only(seen, "call").error) == ("gave_up", "CancelledError")
    assert only(seen, "attempt").error == "CancelledError"


def test_a_call_that_is_interrupted_between_two_writes_is_told_as_such():
    class Interrupted(MemoryStore):
        def apply(self, op, /):
            if isinstance(op, Complete):
                raise KeyboardInterrupt
            return super().apply(op)

    guard, seen = watched(Interrupted())
    _, call = tool(guard, script("receipt"))
    with pytest.raises(KeyboardInterrupt):
        call()
    assert names(seen) == ["reserved", "dispatched", "attempt", "call"]
    assert (only(seen, "call").outcome, only(seen, "call").error) == ("cancelled", "")


# ---------------------------------------------------------------- workflows


def test_a_workflow_and_each_of_its_steps_are_told():
    guard, seen = watched()

    @guard.workflow
    def order(run, number: int):
        run.step("charge", lambda: "receipt")
        return run.step("ship", lambda: "parcel")

    assert order(7) == "parcel"
    assert order(7) == "parcel"

    calls = [(e.tool, e.outcome) for e in seen if e.name == "call"]
    assert calls == [
        ("order.charge", "executed"),
        ("order.ship", "executed"),
        ("order", "executed"),
        ("order", "replayed"),
    ]
    ran = [event for event in seen if event.name == "workflow"]
    assert [(event.tool, event.outcome) for event in ran] == [("order", "executed")]
    assert names(seen).count("completed") == 3


@colours
def test_a_step_that_may_be_repeated_is_told_as_it_is_written_at_its_end(colour):
    guard, seen = watched(cache=0)
    note, _ = tool(guard, script("noted"), colour, kind="idempotent_write")

    async def anote(run, number: int):
        return await run.step("note", note)

    def snote(run, number: int):
        return run.step("note", note)

    done = guard.workflow(name="order")(snote if colour == "sync" else anote)(7)
    assert (done if colour == "sync" else asyncio.run(done)) == "noted"

    of_the_step = [event for event in seen if event.tool != "order"]
    assert names(of_the_step) == ["attempt", "reserved", "dispatched", "completed", "call"]
    assert [event.operation for event in of_the_step if event.name == "store"] == ["together"]


def test_a_workflow_that_is_resumed_tells_of_it():
    guard, seen = watched()
    answers = script(NotSent(retryable=False), "receipt")

    @guard.workflow
    def order(run, number: int):
        return run.step("charge", answers)

    with pytest.raises(NotSent):
        order(7)
    seen.clear()
    guard.workflows.resume_all()
    assert [(e.tool, e.outcome) for e in seen if e.name == "call"] == [
        ("order.charge", "executed"),
        ("order", "executed"),
    ]


def test_what_is_told_is_in_the_word_list_and_says_nothing_confidential():
    guard, seen = watched(secret=b"s" * 32)
    _, call = tool(
        guard, script({"card": "card-number"}, TimeoutError("card-number")), downstream="key"
    )
    call(amount=41_11)
    with pytest.raises((EffectOnceError, NotSent)):
        call("other", amount=41_11)

    assert {event.name for event in seen} <= EVENTS.keys()
    assert {event.outcome for event in seen if event.name == "call"} <= OUTCOMES.keys()
    for event in seen:
        shown = str(
            {
                name: getattr(event, name)
                for name in Event.__struct_fields__
                if name not in ("at", "duration_s", "effect", "fingerprint")
            }
        )
        assert "card-number" not in shown
