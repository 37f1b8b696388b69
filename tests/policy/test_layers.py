"""Layers inside each other: what an inner one says about its own request is never taken for the
outer effect.
"""

from functools import partial

import pytest

from effectonce import (
    Breaker,
    Bucket,
    Budget,
    Certainty,
    Circuit,
    CircuitOpen,
    GaveUp,
    Guard,
    InDoubt,
    NotSent,
    PartialSuccess,
    Rejected,
    Retry,
    RetryBudget,
    State,
    Verdict,
    current_effect,
    retry,
)
from effectonce.effect import running
from tests.core.helpers import done, in_colour
from tests.policy.helpers import run_block

QUICK = Retry(attempts=3, base_s=0, cap_s=0)
REFUSED = ConnectionRefusedError(111, "Connection refused")


class Shop:
    """A guarded tool that makes one request of its own and then calls *inner*; both colours."""

    def __init__(self, colour, guard, inner, **contract):
        self.charged, self._inner, self.guard = 0, inner, guard
        settings = {
            "kind": "write",
            "downstream": "none",
            "retry": QUICK,
            "wait_s": 0,
            "name": "charge",
        } | contract
        self._tool = guard.tool(**settings)(self._coroutine if colour == "async" else self._plain)

    def _plain(self):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        self.charged += 1
        return self._inner()

    async def _coroutine(self):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        self.charged += 1
        return await self._inner()

    def charge(self):
        with self.guard.step("chat", "charge"):
            return done(self._tool())

    def stays_in_doubt(self):
        """Each call is in doubt, and one of them charged."""
        for _ in range(2):
            with pytest.raises(InDoubt):
                self.charge()
        assert self.charged == 1
        assert self.guard.counts()[State.IN_DOUBT] == 1


def raising(colour, error):
    """A function of this colour that fails."""

    def fail():
        raise error

    return in_colour(colour, fail)


# ---------------------------------------------------------------- a guarded call inside a
# guarded call


def test_an_inner_call_that_its_turn_refuses_does_not_take_the_outer_effect_back(colour):
    guard = Guard("memory://")
    inner = guard.tool(kind="write", downstream="key", name="mail")(
        raising(colour, AssertionError("not reached"))
    )
    shop = Shop(colour, guard, inner)
    with guard.turn("chat", "turn-7", budget=Budget(steps=1)):
        shop.stays_in_doubt()


def test_an_inner_call_that_gave_up_does_not_take_the_outer_effect_back(colour):
    guard = Guard("memory://")
    inner = guard.tool(kind="write", downstream="key", name="mail", retry=QUICK, one_request=True)(
        raising(colour, REFUSED)
    )
    shop = Shop(colour, guard, inner, one_request=True)
    shop.stays_in_doubt()


SAID = pytest.mark.parametrize(
    "said", [lambda: NotSent("no directory", retryable=False), lambda: Rejected("no such entry")]
)


@SAID
@pytest.mark.parametrize("reader", ["tool", "watched tool", "plain function", "block"])
def test_what_a_read_inside_a_tool_says_about_itself_it_does_not_say_about_the_effect(
    colour, said, reader
):
    observers = (lambda event: None,) if reader == "watched tool" else ()
    guard, fail = Guard("memory://", observers=observers), raising("sync", said())

    def block():
        for attempt in retry(QUICK, kind="read"):
            with attempt:
                fail()

    if reader == "block":
        read = in_colour(colour, block)
    elif reader == "plain function":
        read = retry(QUICK, kind="read")(in_colour(colour, fail))
    else:
        read = guard.tool(kind="read", name="directory")(in_colour(colour, fail))
    Shop(colour, guard, read).stays_in_doubt()


def test_a_plain_function_that_makes_the_request_of_a_tool_speaks_for_it(colour):
    shop = Shop(colour, Guard("memory://"), retry(QUICK)(raising(colour, Rejected("no"))))
    with pytest.raises(Rejected):
        shop.charge()
    assert shop.guard.counts() == {State.FAILED: 1}


@SAID
def test_a_read_still_ends_with_its_own_error(colour, said):
    error = said()
    read = Guard("memory://").tool(kind="read", name="directory")(raising(colour, error))
    with pytest.raises((NotSent, Rejected)) as caught:
        done(read())
    assert caught.value is error


def test_a_transaction_is_undone_whatever_a_read_inside_it_says(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    read = guard.tool(kind="read", name="directory")(raising("sync", Rejected("no such entry")))
    shop = Shop("sync", guard, read, downstream="transaction")
    with pytest.raises(Rejected):
        shop.charge()
    assert guard.counts() == {State.CLAIMED: 1}


# ---------------------------------------------------------------- plain retries inside a guarded
# call


def test_a_plain_retry_that_lost_an_answer_is_not_heard_as_a_refusal_because_somebody_wraps_it(
    colour,
):
    errors = iter([TimeoutError(), REFUSED, REFUSED])

    @retry(QUICK, kind="idempotent_write")
    def request():
        raise next(errors)

    def wrapping():
        try:
            request()
        except GaveUp as error:
            raise LookupError("not paid") from error

    shop = Shop(colour, Guard("memory://"), in_colour(colour, wrapping), one_request=True)
    shop.stays_in_doubt()


def test_a_plain_retry_that_gave_up_without_an_answer_leaves_the_outer_effect_in_doubt(colour):
    request = raising(colour, TimeoutError())
    shop = Shop(
        colour, Guard("memory://"), retry(QUICK, kind="idempotent_write")(request), one_request=True
    )
    shop.stays_in_doubt()


def test_a_plain_retry_that_gave_up_speaks_only_for_its_own_request(colour):
    """Nothing was sent by the second request of the tool; the first is another matter."""
    shop = Shop(
        colour, Guard("memory://"), retry(QUICK, one_request=True)(raising(colour, REFUSED))
    )
    shop.stays_in_doubt()


def test_a_plain_retry_speaks_for_a_tool_that_makes_one_request(colour):
    shop = Shop(
        colour,
        Guard("memory://"),
        retry(QUICK, one_request=True)(raising(colour, REFUSED)),
        one_request=True,
    )
    with pytest.raises(GaveUp, match="failed: attempt 3"):
        shop.charge()
    assert shop.guard.counts() == {State.CLAIMED: 1}


def test_a_breaker_that_opens_after_an_unanswered_request_does_not_say_that_nothing_was_sent(
    colour,
):
    circuit = Circuit("bank", Breaker(consecutive=1))
    request = retry(QUICK, kind="idempotent_write", breaker=circuit)(
        raising(colour, TimeoutError())
    )
    shop = Shop(colour, Guard("memory://"), request, one_request=True)
    with pytest.raises(InDoubt) as caught:
        shop.charge()
    assert isinstance(caught.value.__cause__, GaveUp)
    assert caught.value.__cause__.retry_after_s > 0
    assert shop.guard.counts() == {State.IN_DOUBT: 1}


def test_giving_up_inside_a_tool_proves_nothing_by_itself(colour):
    shop = Shop(colour, Guard("memory://"), raising(colour, GaveUp("enough")), one_request=True)
    shop.stays_in_doubt()


# ---------------------------------------------------------------- what GaveUp says


def test_what_may_have_run_is_ambiguous_whatever_the_last_error_proves_about_its_own_request(
    colour,
):
    guard = Guard("memory://")
    shop = Shop(colour, guard, raising(colour, REFUSED), downstream="key")
    with pytest.raises(GaveUp, match="may have run") as caught:
        shop.charge()
    assert caught.value.effectonce_verdict.certainty is Certainty.AMBIGUOUS


def test_a_block_that_nobody_answered_for_proves_nothing(colour):
    errors = [REFUSED, TimeoutError(), REFUSED]

    def body(attempt):
        raise errors.pop(0)

    with pytest.raises(
        GaveUp, match="fetch failed: attempt 3 ended with ConnectionRefusedError"
    ) as caught:
        run_block(colour, body, retry(QUICK, kind="read", name="fetch"))
    assert caught.value.effectonce_verdict.certainty is Certainty.AMBIGUOUS


def test_a_block_whose_breaker_opens_after_an_unanswered_request_gives_up(colour):
    circuit = Circuit("bank", Breaker(consecutive=1))

    def lose(attempt):
        raise TimeoutError

    with pytest.raises(
        GaveUp, match=r"attempt 1 ended with TimeoutError\. Its breaker is open now"
    ):
        run_block(colour, lose, retry(QUICK, kind="read", breaker=circuit))
    with pytest.raises(CircuitOpen):
        run_block(colour, pytest.fail, retry(QUICK, kind="read", breaker=circuit))


def test_what_a_model_sees_of_an_inner_effect_does_not_contain_the_outer_key(colour):
    guard, keys = Guard("memory://"), []
    inner = guard.tool(kind="write", name="mail")(raising(colour, TimeoutError()))

    def mailing():
        keys.append(current_effect().key)
        return inner()

    shop = Shop(colour, guard, mailing)
    with pytest.raises(InDoubt) as caught:
        shop.charge()
    told = caught.value.__cause__.as_model_error()
    assert f"inside eff_{keys[0][-12:]}" in told["message"]
    assert keys[0] not in str(told)
    assert keys[0] not in str(caught.value.as_model_error())


def test_nothing_inside_a_transaction_waits_for_a_budget_in_the_same_database(colour, tmp_path):
    """SQLite has one writer, and this transaction is it: to ask the store would be to wait for
    oneself.
    """
    guard, asked, errors = (
        Guard(f"sqlite:///{tmp_path}/effects.db"),
        [],
        [TimeoutError(), TimeoutError()],
    )
    tokens, apply = RetryBudget("bank", shared=True), guard.store.apply

    def asking(op):
        asked.append((type(op).__name__, running.get() is not None))
        return apply(op)

    async def aasking(op):
        return asking(op)

    guard.store.apply, guard.store.aapply = asking, aasking  # SQLite has a way for each colour

    def fetched():
        if errors:
            raise errors.pop()
        return "fetched"

    fetch = retry(QUICK, kind="read", budget=tokens, store=guard.store)(in_colour(colour, fetched))
    shop = Shop(colour, guard, fetch, downstream="transaction")
    with guard.turn("chat", "turn-7"):
        assert shop.charge() == "fetched"
    # the attempt itself was paid for, before its transaction began
    assert ("WriteCell", False) in asked
    assert [op for op, inside in asked if inside] == []
    assert tokens.level == 500 - 14
    guard.close()


def test_nothing_inside_a_tool_goes_on_for_longer_than_the_tool_may(colour):
    left = []

    def look_up():
        for attempt in retry(QUICK, kind="read", name="lookup"):
            with attempt:
                left.append(attempt.remaining_s)
        patient = retry(
            Retry(attempts=3, base_s=600, cap_s=600, deadline_s=3600, jitter="equal"), kind="read"
        )
        return patient(raising("sync", TimeoutError()))()

    contract = {"retry": Retry(attempts=1, deadline_s=5)}
    shop = Shop(colour, Guard("memory://"), in_colour(colour, look_up), **contract)
    with pytest.raises(InDoubt) as caught:
        shop.charge()

    assert 0 < left[0] <= 5
    assert "which is too late" in str(caught.value.__cause__)  # it did not wait for ten minutes


# ---------------------------------------------------------------- a retry around a guarded call


@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_doubt_is_never_retried_nor_given_up_as_something_else(colour, kind):
    """Its cause is a refused connection, which alone would be worth another attempt; what is in
    doubt is not.
    """
    shop, budget = (
        Shop(colour, Guard("memory://"), raising(colour, REFUSED)),
        RetryBudget("bank", capacity=14),
    )
    with pytest.raises(InDoubt):
        retry(QUICK, kind=kind, one_request=True, budget=budget)(shop.charge)()
    assert shop.charged == 1
    assert budget.level == 14


def test_what_was_partly_done_is_not_done_again():
    sent = []

    @retry(QUICK, one_request=True)
    def pay():
        sent.append(1)
        raise PartialSuccess("one of two", corrective_action="refund it") from REFUSED

    with pytest.raises(PartialSuccess):
        pay()
    assert len(sent) == 1


@pytest.mark.parametrize("written", ["function", "block"])
def test_a_refusal_after_an_unanswered_attempt_is_no_failure_of_the_outer_effect(colour, written):
    """The second attempt of the inner retry was refused; the first may have landed."""
    errors = [TimeoutError(), PermissionError("forbidden")]
    retrier = partial(
        retry,
        QUICK,
        kind="idempotent_write",
        rules={PermissionError: Verdict(Bucket.SCHEMA, Certainty.REJECTED)},
    )

    def refused():
        raise errors.pop(0)

    def block():
        for attempt in retrier():
            with attempt:
                refused()

    if written == "block":
        inner = in_colour(colour, block)
    else:
        inner = retrier()(in_colour(colour, refused))
    shop = Shop(colour, Guard("memory://"), inner, rejected=[PermissionError])
    with pytest.raises(InDoubt) as caught:
        shop.charge()
    assert isinstance(caught.value.__cause__, PermissionError)
    assert shop.guard.counts() == {State.IN_DOUBT: 1}


def test_an_error_outside_a_guarded_tool_is_left_as_it_is():
    errors = [TimeoutError(), PermissionError("forbidden")]

    @retry(QUICK, kind="read")
    def fetch():
        raise errors.pop(0)

    with pytest.raises(PermissionError) as caught:
        fetch()
    assert not hasattr(caught.value, "effectonce_verdict")
