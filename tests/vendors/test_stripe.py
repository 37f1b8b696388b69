"""What Stripe says, through the real SDK with its retries off."""

import pytest

from effectonce import Action, Downstream, GaveUp, Guard, Retry, advise, classify, current_effect
from tests.vendors.helpers import raised, says

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def make():
    import stripe

    def client(url):
        http = stripe.RequestsClient(timeout=30)
        return stripe.StripeClient(
            "sk_test_1", base_addresses={"api": url}, max_network_retries=0, http_client=http
        )

    return client


@pytest.fixture(scope="module")
def client(make, server):
    return make(server.url)


def refund(client):
    return client.v1.refunds.create({"payment_intent": "pi_1"})


def error(kind, code=None):
    return {"error": {"type": kind, "message": "no"} | ({} if code is None else {"code": code})}


INVALID = "invalid_request_error"


@pytest.mark.parametrize(
    ("status", "body", "expected", "again"),
    [
        (429, error(INVALID), "rate_limit R", True),
        (400, error(INVALID, "rate_limit"), "rate_limit R", True),
        (429, error(INVALID, "lock_timeout"), "conflict_in_flight R", True),
        (409, error(INVALID, "idempotency_key_in_use"), "conflict_in_flight M", True),
        (400, error("idempotency_error"), "conflict M", False),
        (402, error("card_error", "card_declined"), "declined R", False),
        (402, error("card_error", "insufficient_funds"), "declined R", False),
        (401, error(INVALID), "auth R", False),
        (403, error(INVALID), "auth R", False),
        (400, error(INVALID, "parameter_missing"), "schema R", False),
        (404, error(INVALID, "resource_missing"), "not_found R", False),
        (500, error("api_error"), "server_error M", False),
        (500, "<html>", "server_error M", False),
        *(
            (status, body, "no_answer M", True)
            for status in (502, 503, 504)
            for body in ("", "<html>")
        ),
        *((status, error("api_error"), "server_error M", False) for status in (502, 503, 504)),
    ],
)
def test_every_row_of_the_table_as_the_sdk_raises_it(client, wire, status, body, expected, again):
    wire.says(status, body)

    found = raised(lambda: refund(client))
    assert says(found) == expected
    assert classify(found).retryable is again


def test_the_servers_word_counts(client, wire):
    wire.says(409, error(INVALID, "idempotency_key_in_use"), {"stripe-should-retry": "false"})
    assert not classify(raised(lambda: refund(client))).retryable

    wire.says(500, error("api_error"), {"stripe-should-retry": "true"})
    allowed = classify(raised(lambda: refund(client)))
    assert (allowed.retryable, allowed.certainty) == (True, "ambiguous")


def test_the_response_alone_is_known_by_its_headers(wire):
    import httpx

    wire.says(500, error("api_error"), {"stripe-version": "2026-01-01"})
    verdict = classify(httpx.post(wire.url))
    assert (verdict.bucket, verdict.retryable, verdict.matched) == (
        "server_error",
        False,
        "stripe: code api_error",
    )


V2 = {
    "rate_limit": "rate_limit R",
    "quota_exceeded": "quota R",
    "insufficient_funds": "declined R",
    "invalid_payment_method": "declined R",
    "invalid_payout_method": "declined R",
    "blocked_by_stripe": "declined R",
    "already_canceled": "declined R",
    "not_cancelable": "declined R",
    "cannot_proceed": "declined R",
    "recipient_not_notifiable": "declined R",
    "financial_account_not_open": "declined R",
    "fx_quote_needs_refresh": "declined R",
    "temporary_session_expired": "declined R",
    "feature_not_enabled": "auth R",
    "idempotency_error": "conflict M",
}


@pytest.mark.parametrize("kind", V2)
def test_the_second_version_of_the_api_speaks_in_types(client, wire, kind):
    wire.says(400, error(kind, "any"))

    found = raised(lambda: client.v2.core.events.list())
    assert says(found) == V2[kind], repr(found)


def test_transport_errors(client, make, wire, nobody):
    assert says(raised(lambda: refund(make(nobody)))) == "unreachable N"
    wire.hangs_up()
    assert says(raised(lambda: refund(client))) == "no_answer M"

    import stripe

    assert says(stripe.APIConnectionError("no", should_retry=True)) == "no_answer M"
    assert classify(stripe.APIConnectionError("no", should_retry=True)).retryable
    assert says(stripe.SignatureVerificationError("no", "header")) == "schema R"


def test_a_gateway_that_answers_in_stripes_place_is_asked_again_with_the_same_key_and_stripe_itself_is_not(
    client, wire
):
    wire.says(503, "")
    lost = raised(lambda: refund(client))
    wire.says(503, error("api_error"))
    stored = raised(lambda: refund(client))

    assert [advise(each, downstream="key").action for each in (lost, stored)] == [
        Action.RESEND,
        Action.FAIL,
    ]
    assert advise(lost).action is Action.ESCALATE


def test_a_response_without_a_body_means_the_same_as_the_error_that_the_sdk_makes_of_it():
    answers = [
        {"status": status, "headers": {"stripe-version": "x"}, "body": ""}
        for status in (500, 502, 503, 504)
    ]

    assert [classify(answer).retryable for answer in answers] == [False, True, True, True]


def test_an_error_that_says_itself_that_it_is_not_worth_a_retry_is_not_retried():
    import stripe

    verdict = classify(stripe.APIConnectionError("no", should_retry=False))

    assert (verdict.bucket, verdict.certainty, verdict.retryable) == (
        "no_answer",
        "ambiguous",
        False,
    )


def test_a_key_that_was_used_with_other_arguments_does_not_refuse_what_an_earlier_attempt_may_have_done(
    client, wire, tmp_path
):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    @guard.tool(
        kind="irreversible",
        downstream=Downstream.key(window=86_400, stores_rejections=True),
        retry=Retry(base_s=0.01),
    )
    def pay():
        assert current_effect().downstream_key
        if current_effect().attempt == 1:
            wire.hangs_up()
        else:
            wire.says(400, error("idempotency_error"))
        refund(client)

    with guard.step("chat-42", "refund"), pytest.raises(GaveUp, match="may have run"):
        pay()
    assert guard.counts() == {"dispatched": 1}
    guard.close()
