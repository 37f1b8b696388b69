"""What a guarded call makes of an error that the tables know: its bucket and delay always, its
certainty if the tool makes one request.
"""

import pytest

from effectonce import (
    Bucket,
    Certainty,
    ContractViolation,
    GaveUp,
    Guard,
    InDoubt,
    ReplayedFailure,
    Retry,
    Rule,
    Verdict,
    current_effect,
)
from effectonce._core.ops import Raised
from effectonce._core.retry_flow import plain_call
from tests.core.helpers import QUICK, Ledger, tool
from tests.core.test_backoff import VirtualTime, patience
from tests.core.test_classify import foreign


def http(status, cls="httpx.HTTPStatusError", method="POST", **headers):
    return foreign(cls, status_code=status, headers=headers, request={"method": method})


def paying(guard, ledger, **contract):
    return tool(guard, ledger.pay, **contract)


@pytest.mark.parametrize(
    "error",
    [http(429), http(529), foreign("httpx.ConnectTimeout"), ConnectionRefusedError()],
    ids=repr,
)
def test_what_certainly_did_not_happen_is_tried_again_without_a_key(guard, error):
    ledger = Ledger(("before", error), ("before", error))
    pay = paying(guard, ledger, one_request=True)

    with guard.step("chat", "pay"):
        assert pay() == {"receipt": 1}


@pytest.mark.parametrize("error", [http(404), foreign("stripe.CardError")], ids=repr)
def test_without_that_promise_a_final_refusal_is_recorded_and_never_sent_again(guard, error):
    """What the tool did before it is not known. That it was refused for good is, and cannot
    become a second effect.
    """
    ledger = Ledger(("after", error))
    pay = paying(guard, ledger)

    with guard.step("chat", "pay"):
        with pytest.raises(type(error)):
            pay()
        with pytest.raises(ReplayedFailure, match="Only its last error was seen"):
            pay()
    assert ledger.effects == 1


class Broken(Exception):
    def __getattr__(self, name):
        raise RecursionError


@pytest.mark.parametrize(
    ("error", "one_request"),
    [
        # the tool's second request may be the refused one, or an SDK's retry after a time-out
        (http(429), False),
        (http(404, method="GET"), False),
        (ConnectionRefusedError(), False),
        (Broken(), False),
        (http(500), True),
        (http(504), True),
        (TimeoutError(), True),
        (http(409), True),
        (foreign("requests.JSONDecodeError"), True),
    ],
    ids=repr,
)
def test_what_may_have_happened_is_in_doubt(guard, error, one_request):
    ledger = Ledger(("after", error))
    pay = paying(guard, ledger, one_request=one_request)

    with guard.step("chat", "pay"):
        for _ in range(2):
            with pytest.raises(InDoubt):
                pay()
    assert ledger.effects == 1


def test_a_refusal_of_this_very_request_is_recorded_and_replayed(guard):
    declined = foreign("stripe.CardError")
    ledger = Ledger(("before", declined))
    pay = paying(guard, ledger, one_request=True)

    with guard.step("chat", "pay"):
        with pytest.raises(type(declined)):
            pay()
        with pytest.raises(ReplayedFailure):
            pay()
    assert ledger.effects == 0


@pytest.mark.parametrize(
    "error",
    [
        http(401),
        http(402),
        foreign("openai.RateLimitError", status_code=429, code="insufficient_quota"),
    ],
    ids=repr,
)
def test_a_refusal_that_is_about_the_account_is_raised_and_never_stored(guard, error):
    """Tomorrow, with a new card or a new key, the same step must be able to run."""
    ledger = Ledger(("before", error))
    pay = paying(guard, ledger, one_request=True)

    with guard.step("chat", "pay"):
        with pytest.raises(type(error)):
            pay()
        assert pay() == {"receipt": 1}


def test_a_refusal_after_an_unanswered_send_is_still_a_doubt(guard):
    ledger = Ledger(("after", TimeoutError()), ("before", foreign("stripe.CardError")))
    pay = paying(guard, ledger, one_request=True, downstream="key")

    with guard.step("chat", "pay"), pytest.raises(InDoubt, match="an earlier send may have landed"):
        pay()


def test_a_delay_that_does_not_fit_is_handed_back(guard):
    for contract in ({"downstream": "key"}, {"one_request": True}):
        ledger = Ledger(("before", http(429, retry_after="x", **{"Retry-After": "600"})))
        pay = paying(
            guard, ledger, retry=Retry(attempts=3, deadline_s=5), name=f"pay {contract}", **contract
        )
        with guard.step("chat", f"pay {contract}"):
            with pytest.raises(GaveUp) as caught:
                pay()
            assert caught.value.retry_after_s == 600
            assert caught.value.as_model_error()["retry_after_s"] == 600
        assert ledger.script == []


def test_a_read_waits_as_long_as_it_is_asked_to():
    clock = VirtualTime()
    busy = http(429, **{"Retry-After": "4"})

    flow = plain_call(patience(clock, rng=lambda: 0.0), busy, repeatable=True)
    _, delays = clock.run(flow, iter(lambda: Raised(busy), None))

    assert delays == [4.0, 4.0]  # the third does not fit into the ten seconds of the deadline


def test_a_read_that_cannot_get_better_is_not_repeated(guard):
    calls = []

    def look():
        calls.append(1)
        raise http(404)

    with pytest.raises(Exception, match="no"):
        tool(guard, look, kind="read")()
    assert len(calls) == 1


def test_a_rule_of_the_tool_is_taken_at_its_word(guard):
    refused = Verdict(Bucket.DECLINED, Certainty.REJECTED)
    ledger = Ledger(("before", KeyError("E17")), ("before", LookupError()))
    pay = paying(
        guard,
        ledger,
        rules=[
            Rule(KeyError, Verdict(Bucket.OVERLOADED, Certainty.NOT_SENT)),
            Rule(LookupError, refused),
        ],
    )

    with guard.step("chat", "pay"):
        with pytest.raises(LookupError):
            pay()
        with pytest.raises(ReplayedFailure):
            pay()
    assert pay.contract.rules[1].then is refused
    other = paying(
        guard,
        Ledger(("after", TimeoutError())),
        name="other",
        rules={TimeoutError: Bucket.QUOTA},
        downstream="key",
    )
    with guard.step("chat", "other"), pytest.raises(GaveUp):
        other()


def test_rules_that_make_no_sense_are_refused_when_the_tool_is_declared(guard):
    with pytest.raises((TypeError, ContractViolation), match="give Rule"):
        guard.tool(kind="write", rules=[TimeoutError])(lambda: None)


def test_a_transaction_that_lost_a_race_is_repeated(tmp_path):
    guard, runs = Guard(f"sqlite:///{tmp_path}/effects.db"), []

    @guard.tool(kind="write", downstream="transaction", retry=QUICK)
    def pay():
        runs.append(current_effect().connection)
        if len(runs) < 3:
            raise foreign("psycopg.errors.SerializationFailure", sqlstate="40001")
        return "paid"

    with guard.step("chat", "pay"):
        assert pay() == "paid"
    guard.close()
