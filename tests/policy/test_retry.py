"""`retry` for plain functions and blocks, in both colours, with breaker and budget, and without
a store.
"""

import asyncio
import functools

import pytest

from effectonce import (
    Breaker,
    Bucket,
    Certainty,
    Circuit,
    CircuitOpen,
    ContractViolation,
    GaveUp,
    Guard,
    Jitter,
    Retry,
    RetryBudget,
    Verdict,
    current_effect,
    retry,
)
from effectonce._core.backoff import decorrelated_jitter, delay, equal_jitter
from effectonce.stores.memory import MemoryStore
from tests.core.helpers import done, in_a_loop, in_colour, silence
from tests.policy.helpers import run_block

QUICK = Retry(attempts=3, base_s=0, cap_s=0)
REFUSED = ConnectionRefusedError(111, "Connection refused")


class Called:
    """A function that raises what it is told to, decorated in one colour."""

    def __init__(self, colour, *errors, **settings):
        self.errors, self.calls = list(errors), 0
        policy = settings.pop("policy", QUICK)
        settings = {"one_request": True} | settings
        self._function = retry(policy, **settings)(in_colour(colour, self._plain))

    def _plain(self, value="done"):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return value

    def __call__(self, *args, **kwargs):
        return done(self._function(*args, **kwargs))


@pytest.fixture
def called(colour):
    return functools.partial(Called, colour)


def test_what_succeeds_is_called_once_with_its_arguments(called):
    call = called(kind="read")
    assert call("other") == "other"
    assert call(value="by name") == "by name"
    assert call.calls == 2


def test_what_certainly_was_not_sent_is_tried_again(called):
    call = called(REFUSED, REFUSED)
    assert call() == "done"
    assert call.calls == 3


def test_what_may_have_happened_is_not_tried_again_unless_that_does_no_harm(called):
    silent = TimeoutError("no answer")
    write = called(silent)
    with pytest.raises(TimeoutError):
        write()
    assert write.calls == 1
    for kind in ("read", "idempotent_write"):
        assert called(TimeoutError("no answer"), kind=kind)() == "done"
    assert silent.__traceback__ is not None


def test_an_error_speaks_for_a_function_that_makes_one_request(called):
    """The connection that was refused may be the second one that the function makes."""
    several = called(REFUSED, one_request=False)
    with pytest.raises(ConnectionRefusedError):
        several()
    assert several.calls == 1
    assert called(REFUSED, one_request=False, kind="read")() == "done"


def test_it_gives_up_with_a_marker_and_says_why(called):
    call = called(*[REFUSED] * 9)
    with pytest.raises(
        GaveUp, match=r"attempt 3 ended with ConnectionRefusedError.*It was tried 3 times"
    ) as caught:
        call()
    assert call.calls == 3
    assert caught.value.marker in str(caught.value)
    assert caught.value.__cause__ is REFUSED
    assert "eff_" not in str(caught.value)


def test_an_error_that_stays_is_raised_as_it_is(called):
    call = called(ValueError("wrong"), kind="read")
    with pytest.raises(ValueError, match="wrong"):
        call()
    assert call.calls == 1


def test_layers_inside_each_other_do_not_multiply(called):
    calls = []

    @retry(QUICK, kind="read")
    @retry(QUICK, kind="read")
    @retry(QUICK, kind="read")
    def fetch():
        calls.append(1)
        raise REFUSED

    with pytest.raises(GaveUp) as caught:
        fetch()
    assert len(calls) == 3
    assert caught.value.effectonce_verdict.bucket is Bucket.UNREACHABLE


def test_who_gave_up_says_what_all_attempts_together_say(called):
    """The last connection was refused; the first request left all the same."""
    for errors, certainty in (
        ([REFUSED] * 3, Certainty.NOT_SENT),
        ([TimeoutError(), REFUSED, REFUSED], Certainty.AMBIGUOUS),
    ):
        with pytest.raises(GaveUp) as caught:
            called(*errors, kind="idempotent_write")()
        assert caught.value.effectonce_verdict.certainty is certainty
        assert "key" not in f"{caught.value} {caught.value.corrective_action}"


def test_rules_say_what_an_error_means(called):
    again = {KeyError: Verdict(Bucket.SERVER_ERROR, Certainty.NOT_SENT)}
    assert called(KeyError("later"), rules=again)() == "done"


def test_a_delay_that_does_not_fit_is_handed_back_at_once(called):
    class Busy(Exception):
        status_code, headers = 429, {"Retry-After": "600"}

    call = called(Busy(), kind="read", policy=Retry(attempts=3, deadline_s=5))
    with pytest.raises(GaveUp, match="which is too late") as caught:
        call()
    assert caught.value.retry_after_s == 600
    assert call.calls == 1


# ---------------------------------------------------------------- with a breaker and a budget


def test_an_open_circuit_lets_nothing_through_and_costs_no_attempt(called):
    circuit = Circuit("bank", Breaker(consecutive=2))
    call = called(*[REFUSED] * 9, breaker=circuit)
    with pytest.raises(CircuitOpen):
        call()  # it opened after the second attempt, and the third was not made
    assert call.calls == 2
    with pytest.raises(CircuitOpen):
        call()
    assert call.calls == 2


def test_success_and_failure_are_told_to_the_circuit(called):
    circuit = Circuit("bank", Breaker(consecutive=5))
    call = called(REFUSED, breaker=circuit)
    assert call() == "done"
    assert call() == "done"
    stats = circuit.stats()
    assert (stats.succeeded, stats.failed) == (2, 1)


def test_an_empty_budget_ends_retries_and_not_first_attempts(called):
    budget = RetryBudget("bank", capacity=14)
    call = called(*[REFUSED] * 9, budget=budget)
    with pytest.raises(GaveUp, match="its retry budget is empty"):
        call()
    assert call.calls == 2
    with pytest.raises(GaveUp, match="its retry budget is empty"):
        call()
    assert call.calls == 3
    for _ in range(14):
        budget.succeeded()
    call.errors = [REFUSED]
    assert call() == "done"


def test_success_fills_the_budget(called):
    budget = RetryBudget("bank", capacity=28)
    call = called(REFUSED, REFUSED, budget=budget)
    assert call() == "done"
    assert budget.level == 14
    call()
    assert budget.level == 15


def test_a_shared_budget_needs_a_store(called):
    shared = RetryBudget("bank", capacity=14, shared=True)
    with pytest.raises(ContractViolation, match="say through which store"):
        called(budget=shared)
    store = MemoryStore()
    assert called(REFUSED, budget=shared, store=store)() == "done"
    with pytest.raises(GaveUp, match="budget is empty"):
        called(REFUSED, budget=RetryBudget("bank", capacity=14, shared=True), store=store)()


def test_a_store_that_is_gone_does_not_end_a_call(called):
    store = MemoryStore()
    silence(store)

    assert called(REFUSED, budget=RetryBudget("bank", shared=True), store=store)() == "done"


@in_a_loop
async def test_a_cancelled_call_says_nothing_about_the_dependency():
    circuit = Circuit("bank", Breaker(consecutive=1))

    started = asyncio.Event()

    @retry(breaker=circuit)
    async def call():
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert circuit.stats().neutral == 1


@in_a_loop
async def test_a_call_cancelled_while_it_waits_is_cancelled():
    failed = asyncio.Event()

    @retry(kind="read", base_s=1e6, cap_s=1e6, deadline_s=1e9)
    async def call():
        failed.set()
        raise REFUSED

    task = asyncio.create_task(call())
    await failed.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_interruption_in_a_later_attempt_goes_through(called):
    circuit = Circuit("bank", Breaker(consecutive=5))
    call = called(REFUSED, KeyboardInterrupt(), breaker=circuit)
    with pytest.raises(KeyboardInterrupt):
        call()
    assert circuit.stats().neutral == 1


AT_ONCE = {"base_s": 0, "throttled_base_s": 0, "cap_s": 0}
BUSY = {"rules": {RuntimeError: Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED)}}
LOST = {"rules": {RuntimeError: Verdict(Bucket.OVERLOADED, Certainty.AMBIGUOUS)}, "kind": "read"}


def test_to_be_put_off_is_not_to_fail(called):
    call = called(*[RuntimeError("429")] * 9, policy=Retry(**AT_ONCE), **BUSY)

    assert call() == "done"
    assert call.calls == 10


@pytest.mark.parametrize(("errors", "settings", "calls"), [(99, BUSY, 10), (99, LOST, 5)])
def test_both_kinds_of_attempts_are_bounded(called, errors, settings, calls):
    call = called(*[RuntimeError("no")] * errors, policy=Retry(**AT_ONCE), **settings)

    with pytest.raises(GaveUp, match=f"It was tried {calls} times"):
        call()
    assert call.calls == calls


def test_failures_are_counted_apart_from_refusals(called):
    errors = [RuntimeError("429"), REFUSED] * 4 + [RuntimeError("429"), REFUSED]
    call = called(*errors, policy=Retry(**AT_ONCE), **BUSY)

    with pytest.raises(GaveUp, match="attempt 10 ended with ConnectionRefusedError"):
        call()


def test_attempts_that_are_given_are_all_there_are(called):
    call = called(*[RuntimeError("429")] * 9, policy=Retry(attempts=2, **AT_ONCE), **BUSY)

    with pytest.raises(GaveUp, match="It was tried 2 times"):
        call()
    assert call.calls == 2


@pytest.mark.parametrize("policy", [Retry(attempts=1), Retry(attempts=1, throttled_attempts=9)])
def test_one_attempt_is_one_attempt_whatever_it_meets(called, policy):
    call = called(RuntimeError("429"), policy=policy, **BUSY)

    with pytest.raises(RuntimeError):
        call()
    assert call.calls == 1


def test_what_is_not_given_is_filled_in():
    given = [
        {},
        {"attempts": 3},
        {"throttled_attempts": 7},
        {"attempts": 3, "throttled_attempts": 7},
    ]

    assert [(Retry(**each).attempts, Retry(**each).throttled_attempts) for each in given] == [
        (5, 10),
        (3, 3),
        (5, 7),
        (3, 7),
    ]


# ---------------------------------------------------------------- blocks


def test_a_block_is_tried_again(colour):
    seen, errors = [], [REFUSED, REFUSED]

    def body(attempt):
        seen.append(attempt.number)
        assert 0 < attempt.remaining_s <= 90
        if errors:
            raise errors.pop()

    budget, circuit = RetryBudget("bank", capacity=28), Circuit("bank")
    run_block(colour, body, retry(QUICK, kind="read", breaker=circuit, budget=budget))
    assert seen == [1, 2, 3]
    assert budget.level == 14
    assert (circuit.stats().failed, circuit.stats().succeeded) == (2, 1)


def test_a_block_gives_up_and_an_error_that_stays_is_raised(colour):
    def refused(attempt):
        raise REFUSED

    def wrong(attempt):
        raise ValueError("wrong")

    with pytest.raises(GaveUp, match="fetch failed: attempt 3"):
        run_block(colour, refused, retry(QUICK, kind="read", name="fetch"))
    with pytest.raises(ValueError, match="wrong"):
        run_block(colour, wrong, retry(QUICK, kind="read"))


def test_a_block_behind_an_open_circuit_does_not_begin(colour):
    circuit = Circuit("bank")
    circuit.open()
    with pytest.raises(CircuitOpen):
        run_block(colour, pytest.fail, retry(breaker=circuit))


# ---------------------------------------------------------------- how it is written


def test_the_bare_decorator_and_settings_by_name():
    @retry
    def once():
        """Say it once."""
        return 1

    @retry(attempts=2, base_s=0, cap_s=0)
    def twice():
        return 2

    assert (once(), twice()) == (1, 2)
    assert (once.__name__, once.__doc__) == ("once", "Say it once.")


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ContractViolation, match="choose one of"):
        retry(kind="sometimes")
    with pytest.raises(TypeError, match="not both"):
        retry(Retry(), attempts=3)
    with pytest.raises(ContractViolation, match="choose one of full, equal, decorrelated"):
        retry(jitter="wild")
    with pytest.raises(ContractViolation, match="cannot be negative"):
        retry(throttled_base_s=-1)
    for multiplier in (0.5, 11):
        with pytest.raises(ContractViolation, match="grows up to tenfold each time"):
            retry(multiplier=multiplier)
    with pytest.raises(ContractViolation, match="decorrelated delays have no multiplier"):
        retry(jitter="decorrelated", multiplier=3)

    def several():
        yield 1

    with pytest.raises(TypeError, match="generator"):
        retry(several)


# ---------------------------------------------------------------- jitter


@pytest.mark.parametrize("jitter", list(Jitter))
def test_every_jitter_stays_below_the_cap_and_is_spread_there(jitter):
    import random

    rng = random.Random(3).random
    delays, previous = [], 0.0
    for attempt in range(1, 2000):
        previous = delay(jitter, attempt, previous, 0.5, 20.0, rng)
        delays.append(previous)
    assert max(delays) <= 20.0
    assert min(delays) >= (0 if jitter is Jitter.FULL else 0.25)
    assert len({round(d, 6) for d in delays[50:]}) > 1900


def test_equal_jitter_waits_at_least_half_and_decorrelated_grows_from_the_last():
    least, most = float, lambda: 1.0
    assert [equal_jitter(3, 1.0, 99.0, rng) for rng in (least, most)] == [2.0, 4.0]
    assert [decorrelated_jitter(4.0, 1.0, 99.0, rng) for rng in (least, most)] == [1.0, 12.0]
    assert decorrelated_jitter(0.0, 1.0, 99.0, lambda: 1.0) == 3.0


class Client:
    """What else can be called."""

    def __call__(self, token=""):
        raise TimeoutError

    def fetch(self, token=""):
        raise TimeoutError


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Client(), "Client"),
        (Client().fetch, "Client.fetch"),
        (functools.partial(Client().fetch, "hunter2"), "Client.fetch"),
        (functools.partial(Client(), token="hunter2"), "Client"),
    ],
)
def test_what_is_called_has_the_same_name_in_every_process(function, name):
    """It is what a turn counts by, and what the error shows: no addresses, no arguments."""
    with pytest.raises(GaveUp, match=f"^{name} failed: attempt 3"):
        retry(QUICK, kind="read")(function)()


def test_a_function_that_returns_a_coroutine_is_refused_not_left_alone():
    async def fetch():
        raise TimeoutError

    class Api:
        @retry(kind="read")
        @staticmethod
        async def get():
            return "got"

    with pytest.raises(TypeError, match=r"returned a coroutine.*decorate the async def"):
        retry(kind="read")(lambda: fetch())()
    assert asyncio.run(Api.get()) == "got"


@pytest.mark.parametrize("thing", [5, "fetch", classmethod(print)])
def test_what_cannot_be_called_cannot_be_retried(thing):
    with pytest.raises(TypeError, match="cannot be called"):
        retry(thing)


@pytest.mark.parametrize("jitter", Jitter)
def test_no_jitter_exceeds_the_cap_even_if_the_base_does(jitter):
    """As with `throttled_base_s`, which nobody has to lower together with `cap_s`."""
    drawn = [
        delay(jitter, 3, previous_s, 1.0, 0.25, rng)
        for previous_s in (0.0, 9.0)
        for rng in (lambda: 0.0, lambda: 0.99)
    ]
    assert max(drawn) <= 0.25


class Grumpy(Exception):
    def __str__(self):
        raise AttributeError("it has no message")


def test_an_error_that_cannot_be_printed_does_not_hide_how_it_ended():
    guard = Guard("memory://")

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=1))
    def pay():
        current_effect().downstream_key  # noqa: B018  # sent with the request
        raise Grumpy

    with guard.step("chat", "pay"), pytest.raises(GaveUp, match="a Grumpy that cannot be printed"):
        pay()


def test_a_function_whose_errors_cannot_be_printed_gives_up_all_the_same():
    @retry(kind="read", attempts=2, base_s=0, rules={Grumpy: Bucket.SERVER_ERROR})
    def ask():
        raise Grumpy

    with pytest.raises(GaveUp, match="attempt 2 ended with Grumpy"):
        ask()
