"""The circuit as it is used: decorator, context manager, by hand, in shadow, by many threads and
tasks at once.
"""

import asyncio
import functools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from effectonce import (
    Breaker,
    Bucket,
    Certainty,
    Circuit,
    CircuitOpen,
    Circuits,
    ContractViolation,
    Phase,
    Verdict,
    breaker,
)
from tests.core.helpers import in_a_loop
from tests.policy.helpers import DOWN, circuit, fail, half_open

CALLERS = 1000


# ---------------------------------------------------------------- exactly the permitted probes


@pytest.mark.parametrize("probes", [1, 3])
def test_a_thousand_threads_at_the_half_open_instant_get_exactly_the_permitted_probes(probes):
    """Nobody's call ends before everybody has asked."""
    subject, _ = half_open(probes=probes)
    ready, asked = threading.Barrier(CALLERS), threading.Barrier(CALLERS)
    ran, refused = [], []

    @subject
    def call():
        ran.append(1)
        asked.wait()

    def caller():
        ready.wait()
        try:
            call()
        except CircuitOpen as error:
            refused.append(error)
            asked.wait()

    stack = threading.stack_size(128 * 1024)
    try:
        threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.stack_size(stack)

    assert len(ran) == probes
    assert len(refused) == CALLERS - probes
    assert subject.phase is Phase.CLOSED
    assert subject.stats().late == probes - 1  # the first success closed it


@pytest.mark.parametrize("probes", [1, 3])
def test_a_thousand_tasks_at_the_half_open_instant_get_exactly_the_permitted_probes(probes):
    subject, _ = half_open(probes=probes)
    ran = []

    async def main():
        asked = asyncio.Event()

        @subject
        async def call():
            ran.append(1)
            await asked.wait()

        tasks = [asyncio.create_task(call()) for _ in range(CALLERS)]
        await asyncio.sleep(0)  # each has asked, and waits or was refused
        asked.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    ends = asyncio.run(main())

    assert len(ran) == probes
    assert sum(isinstance(end, CircuitOpen) for end in ends) == CALLERS - probes
    assert subject.phase is Phase.CLOSED


def test_no_success_is_lost_between_threads():
    subject, _ = circuit()

    @subject
    def call():
        return None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [call() for _ in range(1000)], range(8)))

    assert subject.stats().succeeded == 8000
    assert subject.stats().succeeded == 8000  # to look changes nothing


@pytest.mark.parametrize(
    "policy",
    [{}, {"rate": 0.9, "window_calls": 50}, {"rate": 0.9}, {"slow_rate": 0.9, "slow_s": 9.0}],
)
def test_every_kind_of_window_counts_what_the_decorator_saw(policy):
    subject, clock = circuit(consecutive=50, **policy)
    ends = [True] * 7 + [False] * 2 + [True] * 3

    @subject
    def call(well):
        if not well:
            raise DOWN

    for well in ends:
        if well:
            call(well)
        else:
            with pytest.raises(ConnectionRefusedError):
                call(well)

    stats = subject.stats()
    assert (stats.succeeded, stats.failed, stats.failures_in_a_row) == (10, 2, 0)
    assert (stats.window_calls, stats.window_failed) == ((12, 2) if policy else (0, 0))


@pytest.mark.parametrize("window", [{"window_calls": 10}, {"window_s": 30.0}])
def test_successes_that_were_only_counted_weigh_against_the_failures_that_follow(window):
    subject, _ = circuit(rate=0.5, minimum=2, **window)
    call = subject(lambda: None)

    for _ in range(8):
        call()
    fail(subject, 2)

    assert subject.phase is Phase.CLOSED
    assert (subject.stats().window_calls, subject.stats().window_failed) == (10, 2)


# ---------------------------------------------------------------- decorator and context manager


def test_a_decorated_function_is_itself_until_the_circuit_opens():
    subject, _ = circuit(consecutive=2)

    @subject
    def pay(amount, *, currency="eur"):
        """Pay."""
        if amount < 0:
            raise DOWN
        return amount, currency

    assert pay(1, currency="usd") == (1, "usd")
    assert (pay.__name__, pay.__doc__, pay.circuit) == ("pay", "Pay.", subject)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            pay(-1)
    with pytest.raises(CircuitOpen):
        pay(1)


@in_a_loop
async def test_an_async_function_too():
    subject, _ = circuit(consecutive=1)

    @subject
    async def pay(amount):
        if amount < 0:
            raise DOWN
        return amount

    assert await pay(1) == 1
    with pytest.raises(ConnectionRefusedError):
        await pay(-1)
    with pytest.raises(CircuitOpen):
        await pay(1)

    assert asyncio.iscoroutinefunction(pay)


def test_a_generator_function_is_refused():
    subject, _ = circuit()

    with pytest.raises(TypeError, match="generator"):

        @subject
        def stream():
            yield 1


def test_a_with_block_tells_how_it_ended():
    subject, _ = circuit(consecutive=1)

    with subject.admit():
        pass
    with pytest.raises(ConnectionRefusedError), subject.admit():
        raise DOWN

    assert (subject.stats().succeeded, subject.stats().failed) == (1, 1)
    assert subject.phase is Phase.OPEN


def test_an_async_with_block_too():
    subject, _ = circuit(consecutive=1)

    async def main():
        async with subject.admit():
            pass
        async with subject.admit():
            raise DOWN

    with pytest.raises(ConnectionRefusedError):
        asyncio.run(main())

    assert (subject.stats().succeeded, subject.stats().failed) == (1, 1)


def test_what_was_said_inside_the_block_is_not_said_again_at_its_end():
    subject, _ = circuit(consecutive=5)

    with subject.admit() as permit:
        permit.failed(Verdict(Bucket.OVERLOADED, Certainty.REJECTED))
        permit.failed(DOWN)

    assert (subject.stats().succeeded, subject.stats().failed) == (0, 1)


def test_what_the_engine_gets_from_a_closed_circuit_is_everybodys():
    subject, _ = circuit()

    first, second = subject.try_admit(), subject.try_admit()
    first.succeeded()
    second.succeeded()

    assert first is second
    assert subject.stats().succeeded == 2


def test_everybodys_permit_goes_on_telling_after_a_failure():
    subject, _ = circuit(consecutive=2)
    permit = subject.try_admit()

    permit.failed(DOWN)
    permit.failed(DOWN)

    assert subject.phase is Phase.OPEN


def test_everybodys_permit_can_end_without_a_word_about_the_dependency():
    subject, _ = circuit()

    subject.try_admit().released()

    assert (subject.stats().neutral, subject.stats().succeeded) == (1, 0)


@pytest.mark.parametrize(
    ("policy", "reads"), [({}, 0), ({"rate": 0.5, "window_calls": 10}, 0), ({"rate": 0.5}, 1)]
)
def test_a_success_looks_at_the_clock_only_where_the_time_matters(policy, reads):
    looks = []
    subject, _ = circuit(clock=lambda: looks.append("looked") or 0.0, **policy)
    permit = subject.try_admit()
    looks.clear()

    permit.succeeded()

    assert len(looks) == reads


def test_what_the_engine_gets_from_a_circuit_that_measures_time_is_its_own():
    subject, clock = circuit(slow_rate=1.0, slow_s=2.0, minimum=2)

    first = subject.try_admit()
    clock.advance(1.0)
    second = subject.try_admit()
    clock.advance(1.0)
    first.succeeded()
    second.succeeded()

    assert subject.stats().slow == 1


def test_a_refusal_can_be_had_as_a_value():
    subject, _ = circuit(consecutive=1)
    subject.try_admit().failed(DOWN)

    refusal = subject.try_admit()

    assert isinstance(refusal, CircuitOpen)
    assert refusal.retry_after_s == 10.0


@pytest.mark.parametrize(
    "measure", [{}, {"window_s": 30.0}, {"window_calls": 10}], ids=["no", "seconds", "calls"]
)
def test_slow_calls_open_it_through_the_decorator(measure):
    policy = {"slow_rate": 0.5, "slow_s": 2.0, "minimum": 2} if measure else {}
    subject, clock = circuit(**policy, **measure)

    @subject
    def call():
        clock.advance(2.0)

    call()
    call()

    assert subject.phase is (Phase.OPEN if measure else Phase.CLOSED)
    assert subject.stats().slow == (2 if measure else 0)


def test_a_fallback_answers_for_calls_that_are_refused_and_for_no_others():
    subject, _ = circuit(consecutive=1)

    def cached(error, base, *, quote):
        return f"{error.circuit} is {error.phase}: {base}/{quote} of yesterday"

    @subject(fallback=cached)
    def price(base, *, quote):
        raise DOWN

    with pytest.raises(ConnectionRefusedError):
        price("eur", quote="usd")
    assert price("eur", quote="usd") == "bank is open: eur/usd of yesterday"


def test_an_async_fallback_too():
    subject, _ = circuit(consecutive=1)
    subject.open()

    async def cached(error, base):
        return base

    @subject(fallback=cached)
    async def price(base):
        raise AssertionError("it was called")

    assert asyncio.run(price("eur")) == "eur"


def test_a_fallback_of_the_other_colour_is_refused():
    subject, _ = circuit()

    async def cached(error):
        return None

    with pytest.raises(TypeError, match="both must be def, or both async def"):
        subject(fallback=cached)(functools.partial(print))


# ---------------------------------------------------------------- the refusal


def test_a_refusal_says_what_happened_what_is_known_and_what_to_do():
    subject, clock = circuit("stripe", consecutive=2, open_s=30.0)
    fail(subject, 2)
    clock.advance(12.0)

    with pytest.raises(CircuitOpen) as refused:
        subject.admit()

    error = refused.value
    assert (
        str(error)
        == "the circuit of stripe is open: 2 failures in a row; the last error: the connection was"
        " refused. Nothing was sent. The next call is let through in 18 s at the latest."
    )
    assert (error.circuit, error.phase, error.retry_after_s, error.retriable) == (
        "stripe",
        "open",
        18.0,
        True,
    )
    assert error.as_model_error()["retry_after_s"] == 18.0


def test_a_refusal_while_others_probe_says_when_a_permit_is_free_at_the_latest():
    subject, clock = half_open(probe_lease_s=60.0)
    subject.admit()
    clock.advance(45.0)

    with pytest.raises(CircuitOpen, match="bank is being tried by 1 other") as refused:
        subject.admit()

    assert refused.value.retry_after_s == 15.0


def test_a_refusal_of_a_circuit_that_was_opened_by_hand_promises_no_time():
    subject, _ = circuit()
    subject.open()

    with pytest.raises(
        CircuitOpen, match=r"forced open: by hand\..*An operator must close it"
    ) as refused:
        subject.admit()

    assert refused.value.retry_after_s is None


# ---------------------------------------------------------------- by hand, in shadow


def test_by_hand_it_opens_closes_and_is_disabled():
    subject, clock = circuit(consecutive=1)

    subject.open(for_s=5.0)
    with pytest.raises(CircuitOpen):
        subject.admit()
    subject.disable()
    fail(subject, 3)
    disabled = subject.stats()
    subject.close()
    fail(subject, 1)

    assert (disabled.phase, disabled.failed) == (Phase.DISABLED, 0)
    assert subject.phase is Phase.OPEN


def test_opening_for_no_time_is_refused():
    subject, _ = circuit()

    with pytest.raises(ContractViolation, match="how many seconds"):
        subject.open(for_s=0.0)

    assert subject.phase is Phase.CLOSED


def test_in_shadow_it_refuses_nobody_and_tells_what_it_would_have_done():
    changes = []
    subject, clock = circuit(
        consecutive=2, shadow=True, on_change=lambda old, new, stats: changes.append(new)
    )

    @subject
    def call(error):
        if error:
            raise error

    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            call(DOWN)
    with subject.admit():
        pass

    stats = subject.stats()
    assert changes == [Phase.OPEN]
    assert (stats.phase, stats.refused) == (Phase.OPEN, 4)
    # what would not have been sent says nothing
    assert (stats.failed, stats.succeeded, stats.late) == (2, 0, 0)

    clock.advance(10.0)
    call(None)
    assert subject.phase is Phase.CLOSED


def test_in_shadow_a_call_that_would_not_have_been_made_does_not_close_it():
    subject, _ = half_open(shadow=True)
    probe, another = subject.admit(), subject.admit()

    another.succeeded()
    phase = subject.phase
    probe.succeeded()

    assert phase is Phase.HALF_OPEN
    assert subject.phase is Phase.CLOSED


# ---------------------------------------------------------------- the hook


def test_every_change_is_told_with_its_statistics():
    changes = []
    subject, clock = circuit(consecutive=1, on_change=lambda *change: changes.append(change))

    fail(subject)
    clock.advance(10.0)
    with subject.admit():
        pass

    assert [(str(old), str(new)) for old, new, _ in changes] == [
        ("closed", "open"),
        ("open", "half_open"),
        ("half_open", "closed"),
    ]
    assert [stats.generation for _, _, stats in changes] == [2, 3, 4]
    assert changes[0][2].why == "1 failure in a row"
    assert changes[0][2].retry_after_s == 10.0


def test_a_hook_hears_of_changes_only(caplog):
    changes = []
    subject, _ = circuit(on_change=lambda old, new, stats: changes.append((old, new)))

    with caplog.at_level("INFO", "effectonce"):
        for act in (
            subject.close,
            subject.close,
            subject.open,
            subject.open,
            subject.disable,
            subject.disable,
            subject.close,
        ):
            act()
        subject.open(for_s=5.0)
        subject.open(for_s=50.0)  # later, but open all the same

    assert changes == [
        (Phase.CLOSED, Phase.FORCED_OPEN),
        (Phase.FORCED_OPEN, Phase.DISABLED),
        (Phase.DISABLED, Phase.CLOSED),
        (Phase.CLOSED, Phase.OPEN),
    ]
    assert len(caplog.messages) == len(changes)
    assert subject.stats().retry_after_s == 50.0


def test_failures_in_the_window_are_counted_in_the_statistics():
    subject, clock = circuit(failures=3, window_s=60.0)

    for _ in range(2):
        subject.admit().failed(ConnectionRefusedError())
        clock.advance(40.0)
        subject.admit().succeeded()

    assert (subject.stats().window_failed, subject.stats().failures_in_a_row) == (1, 0)


def test_a_hook_may_use_the_circuit_to_escalate():
    subject, _ = circuit(
        consecutive=1, on_change=lambda old, new, stats: new is Phase.OPEN and subject.open()
    )

    fail(subject)

    assert subject.phase is Phase.FORCED_OPEN


def test_a_hook_that_fails_breaks_no_call(caplog):
    def page_somebody(old, new, stats):
        raise RuntimeError("the pager is down, too")

    subject, _ = circuit(consecutive=1, on_change=page_somebody)

    fail(subject)

    assert subject.phase is Phase.OPEN
    assert "the pager is down, too" in caplog.text


def test_changes_are_logged(caplog):
    subject, _ = circuit(consecutive=1)

    with caplog.at_level(logging.INFO, "effectonce"):
        fail(subject)
        subject.close()

    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("WARNING", "circuit bank: open, was closed: 1 failure in a row"),
        ("INFO", "circuit bank: closed, was open: by hand"),
    ]


# ---------------------------------------------------------------- what counts


def test_an_unknown_error_does_not_count_and_that_is_said_once(caplog):
    class BankDown(Exception):
        pass

    subject, _ = circuit(consecutive=1)

    # whoever judges for themselves need not be told
    fail(subject, 1, Verdict(Bucket.UNKNOWN, Certainty.AMBIGUOUS))
    fail(subject, 3, BankDown())

    assert subject.phase is Phase.CLOSED
    assert subject.stats().neutral == 4
    assert "Verdict" not in caplog.text
    assert caplog.text.count("rules={BankDown: Bucket.SERVER_ERROR}") == 1


def test_a_rule_makes_an_unknown_error_count():
    class BankDown(Exception):
        pass

    subject, _ = circuit(consecutive=1, rules={BankDown: Bucket.SERVER_ERROR})

    fail(subject, 1, BankDown())

    assert subject.phase is Phase.OPEN


def test_a_response_is_judged_like_an_error():
    response = SimpleNamespace(status_code=503, headers={"retry-after": "40"})
    subject, _ = circuit(consecutive=1)

    fail(subject, 1, response)

    assert subject.phase is Phase.OPEN
    assert subject.stats().retry_after_s == 40.0


# ---------------------------------------------------------------- many dependencies


def test_one_policy_serves_many_dependencies():
    circuits = Circuits(Breaker(consecutive=1))

    fail(circuits["acme/pay/bank"])

    assert circuits["acme/pay/bank"].phase is Phase.OPEN
    assert circuits["other/pay/bank"].phase is Phase.CLOSED
    assert sorted(circuits) == ["acme/pay/bank", "other/pay/bank"]


def test_the_longest_unused_closed_circuit_is_forgotten_first():
    circuits = Circuits(Breaker(consecutive=1), limit=3)
    fail(circuits["open"])
    kept = circuits["used"]
    circuits["unused"]
    circuits["used"]

    circuits["new"]

    assert sorted(circuits) == ["new", "open", "used"]
    assert circuits["used"] is kept
    assert circuits["open"].phase is Phase.OPEN


def test_memory_is_bounded_even_if_every_circuit_is_open():
    circuits = Circuits(Breaker(consecutive=1), limit=2)

    for name in ("a", "b", "c"):
        fail(circuits[name])

    assert len(circuits) == 2
    assert list(circuits) == ["b", "c"]


def test_the_factory_takes_what_the_policy_takes():
    subject = breaker("stripe", consecutive=3, open_s=7.0)

    assert isinstance(subject, Circuit)
    assert (subject.name, subject.policy) == ("stripe", Breaker(consecutive=3, open_s=7.0))
