"""The clients inside the SDKs of openai, anthropic and Stripe: one line, and one layer retries."""

import asyncio
import gzip
import json

import anthropic
import httpx2
import openai
import pytest
import stripe

from effectonce import Certainty, Guard, InDoubt, Retry, classify
from effectonce.http.client.protect import KeyHeader, protect
from effectonce.retries.clients import inner_attempts
from tests.http.callers import SOON

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("collected")]  # theirs
MESSAGES = [{"role": "user", "content": "hello"}]
SOON_AGAIN = {"retry-after": "0"}


def ask_openai(client):
    return client.chat.completions.create(model="m", messages=MESSAGES)


def ask_anthropic(client):
    return client.messages.create(model="m", max_tokens=9, messages=MESSAGES)


SYNC = [(openai.OpenAI, ask_openai), (anthropic.Anthropic, ask_anthropic)]
ASYNC = [(openai.AsyncOpenAI, ask_openai), (anthropic.AsyncAnthropic, ask_anthropic)]
each_sdk = pytest.mark.parametrize(
    ("make", "ask"), [*SYNC, *ASYNC], ids=["openai", "anthropic", "openai-async", "anthropic-async"]
)


def asked(shop, make, ask, **policy):
    """One question to a protected SDK, in its colour."""
    client = protect(make(api_key="k", base_url=shop.url), **{"retry": SOON} | policy)
    if (make, ask) in SYNC:
        with client:
            return ask(client)

    async def main():
        async with client:
            return await ask(client)

    return asyncio.run(main())


@each_sdk
def test_an_sdk_that_is_asked_to_wait_sends_as_often_as_our_policy_says(shop, make, ask):
    shop.faults = [(429, SOON_AGAIN), (529, SOON_AGAIN)]

    asked(shop, make, ask)

    assert len(shop.requests) == 3


@each_sdk
def test_an_sdk_does_not_repeat_what_nobody_can_tell(shop, make, ask):
    shop.faults = ["lose"]

    with pytest.raises(Exception) as caught:
        asked(shop, make, ask)

    assert shop.keys == [None], "they honour no key, so none is sent"
    assert caught.value.__cause__.effectonce_tried.attempts == 1
    assert classify(caught.value).certainty is Certainty.AMBIGUOUS


@each_sdk
def test_an_answer_of_a_model_may_be_asked_for_again_if_that_is_said(shop, make, ask):
    shop.faults = ["lose", "cut"]

    asked(shop, make, ask, kind="read")

    assert len(shop.requests) == 3


@each_sdk
def test_what_an_sdk_raises_when_we_gave_up_is_retried_by_nobody(shop, make, ask):
    shop.faults = ["reset"] * 9

    with pytest.raises(Exception) as caught:
        asked(shop, make, ask, kind="read")

    assert len(shop.requests) == 3
    assert not classify(caught.value).retryable


@each_sdk
def test_a_status_error_of_an_sdk_says_that_we_gave_up(shop, make, ask):
    shop.faults = [(429, SOON_AGAIN)] * 9

    with pytest.raises(Exception) as caught:
        asked(shop, make, ask)

    assert len(shop.requests) == 3
    verdict = classify(caught.value)
    assert (verdict.certainty, verdict.retryable) == (Certainty.REJECTED, False)


def test_an_exhausted_quota_is_read_out_of_a_packed_body_and_not_repeated(shop):
    said = gzip.compress(
        json.dumps({"error": {"code": "insufficient_quota", "message": "pay"}}).encode()
    )
    transport = httpx2.MockTransport(
        lambda request: seen(request) or httpx2.Response(429, content=said, headers=PACKED)
    )
    requests = []

    def seen(request):
        requests.append(request)

    with httpx2.Client(transport=transport) as http:
        client = protect(
            openai.OpenAI(api_key="k", base_url=shop.url, http_client=http), retry=SOON
        )
        with pytest.raises(openai.RateLimitError, match="pay"):
            ask_openai(client)

    assert len(requests) == 1


PACKED = {"content-encoding": "gzip", "content-type": "application/json"}


def test_a_body_that_only_says_that_it_is_packed_is_judged_by_its_status(shop):
    answers = iter(
        [
            httpx2.Response(429, stream=httpx2.ByteStream(b"no"), headers=PACKED),
            httpx2.Response(200, json={}),
        ]
    )

    with httpx2.Client(transport=httpx2.MockTransport(lambda _: next(answers))) as http:
        assert protect(http, retry=SOON).post(f"{shop.url}/pay").status_code == 200


# ---------------------------------------------------------------- stripe


def charge(client, **options):
    return client.v1.payment_intents.create({"amount": 5, "currency": "eur"}, options or None)


def bank(shop, **settings):
    return stripe.StripeClient("sk_test", base_addresses={"api": shop.url}, **settings)


def charging(client, asynchronous, options=None):
    """A guarded tool that charges once, in either colour; call it to run it."""
    guard = Guard("memory://")
    contract = {
        "kind": "irreversible",
        "downstream": "key",
        "retry": Retry(attempts=3, base_s=0.001),
        "accept_store_loss": True,
    }

    @guard.tool(**contract)
    def pay(order: int) -> None:
        charge(client, **options or {})

    @guard.tool(**contract)
    async def apay(order: int) -> None:
        await client.v1.payment_intents.create_async({"amount": 5, "currency": "eur"}, options)

    async def main():
        with guard.step("chat", "pay"):
            await apay(1)

    def run():
        if asynchronous:
            return asyncio.run(main())
        with guard.step("chat", "pay"):
            return pay(1)

    return run


each_colour = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@each_colour
def test_stripe_sends_the_key_of_the_effect_instead_of_a_random_one(shop, asynchronous):
    shop.faults = ["lose", "cut", (429, SOON_AGAIN)]
    client = protect(bank(shop), retry=Retry(attempts=2, base_s=0.001, throttled_base_s=0.001))

    with pytest.raises(Exception, match="gave-up"):
        charging(client, asynchronous)()
    assert inner_attempts(client) == 1
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)
    assert shop.keys[0].startswith("eo_")


@each_colour
def test_stripe_without_our_key_is_not_run_again_and_with_it_charges_once(shop, asynchronous):
    """What protect is for: the SDK makes up another key for the second run, so that is not
    begun.
    """
    shop.faults = ["lose"]
    with pytest.raises(InDoubt):
        charging(bank(shop), asynchronous)()
    assert shop.effects == 1

    shop.forget()
    shop.faults = ["lose"]
    charging(protect(bank(shop), retry=Retry(attempts=1)), asynchronous)()
    assert shop.effects == 1


@pytest.mark.parametrize(
    "keys", ["Idempotency-Key", {"127.0.0.1": KeyHeader()}], ids=["a name", "by host"]
)
def test_whoever_names_the_header_for_stripe_means_our_key_as_well(shop, keys):
    shop.faults = ["lose"]

    charging(protect(bank(shop), retry=Retry(attempts=1), keys=keys), False)()

    assert (shop.effects, len(set(shop.keys))) == (1, 1)


def test_a_key_that_is_given_to_stripe_is_kept(shop):
    shop.faults = ["lose"]

    charge(protect(bank(shop), retry=SOON), idempotency_key="order-17")

    assert (shop.effects, shop.keys) == (1, ["order-17", "order-17"])


GIVEN = "71f83bb8-95ee-4e82-b088-2fc8e7797999"


@each_colour
@pytest.mark.parametrize(
    "options",
    [{"idempotency_key": GIVEN}, {"headers": {"Idempotency-Key": GIVEN}}],
    ids=["key", "header"],
)
def test_a_uuid_that_is_given_to_stripe_is_no_random_key(shop, options, asynchronous):
    """What Stripe recommends for keys looks like those that its SDK makes up. It may have been
    sent before, by others.
    """
    client = protect(bank(shop), retry=SOON)

    charging(client, asynchronous, options)()
    charging(client, asynchronous)()

    assert shop.keys[0] == GIVEN
    assert shop.keys[1].startswith("eo_")


def test_so_it_is_for_an_object_that_came_back(shop):
    client, guard = protect(bank(shop), retry=SOON), Guard("memory://")

    @guard.tool(kind="write", downstream="key")
    def cancel(order: int) -> None:
        intent = stripe.PaymentIntent.construct_from(
            {"id": "pi_1", "object": "payment_intent"}, key=None
        )
        intent._requestor = client.v1.payment_intents.create(
            {"amount": 5, "currency": "eur"}
        )._requestor
        intent.cancel(idempotency_key=GIVEN)

    with guard.step("chat", "cancel"):
        cancel(1)

    assert (shop.keys[0][:3], shop.keys[1]) == ("eo_", GIVEN)


def test_stripe_alone_keeps_its_random_key_in_all_attempts(shop):
    shop.faults = ["lose"]

    charge(protect(bank(shop), retry=SOON))

    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)


def test_stripe_over_httpx_alone_is_protected_too(shop):
    shop.faults = ["lose"]
    http = stripe.HTTPXClient(allow_sync_methods=True)

    charge(protect(bank(shop, http_client=http), retry=SOON))

    assert (shop.effects, len(shop.keys)) == (1, 2)


def test_stripe_over_something_else_is_refused(shop):
    client = bank(shop, http_client=stripe.UrllibClient())

    with pytest.raises(TypeError, match="UrllibClient, which effectonce cannot protect"):
        protect(client)


@pytest.mark.parametrize(
    "make", [lambda shop: bank(shop), lambda shop: bank(shop, http_client=stripe.HTTPXClient())]
)
def test_stripe_is_not_protected_twice(shop, make):
    client = protect(make(shop))

    with pytest.raises(TypeError, match="protected already"):
        protect(client)
