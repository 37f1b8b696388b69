"""A tool that names its provider: the key, the window and the answers are those of the pack."""

import asyncio
import re
import subprocess
import sys
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path

import httpx
import pytest
import requests
import stripe
from msgspec.structs import replace

from effectonce import (
    Bucket,
    Certainty,
    ContractViolation,
    Downstream,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    NotFound,
    Retry,
    Rule,
    Verdict,
    current_effect,
)
from effectonce._core.key_shapes import shaped_key
from effectonce._core.keys import downstream_key
from effectonce._tools.provider_terms import terms_from, terms_of
from effectonce.http.client import protect
from effectonce.providers import provider, providers
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.http.server import Shop
from tests.servers import redis

HERE = Path(__file__)
GOLDEN = HERE.with_name("golden_provider_keys.txt").read_text().splitlines()
SECRET = b"a secret of at least thirty-two b"
SOON = Retry(attempts=3, base_s=0.001, throttled_base_s=0.001, cap_s=0.002)
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
KEYED = [name for name in providers() if provider(name).key.where != "none"]
SAFE = {"replay", "conflict", "conflict_with_id", "latest_status", "existing_object"}


theirs = pytest.mark.filterwarnings("ignore")  # what the SDK leaves open


@pytest.fixture
def shop(collected):
    """A server, and what closes the clients that are made for it."""
    with Shop() as shop, ExitStack() as shop.opened:
        yield shop


def httpx_client(shop, **policy):
    client = shop.opened.enter_context(httpx.Client(base_url=shop.url))
    return protect(client, **policy)


def keys_of(name):
    """The keys of one effect: its own, and that of its second request to a place."""
    guard = Guard("memory://", secret=SECRET)

    @guard.tool(kind="write", provider=name)
    def refund(order: str) -> list[str]:
        effect = current_effect()
        return [effect.downstream_key, effect.request_key("POST", "/v1/refunds", 1)]

    with guard.step("chat-42", "refund"):
        return refund("ord_1")


def line(name):
    contract = terms_of(name, None)
    sent, downstream = contract.sent_key, contract.downstream
    shape = "-" if sent is None else str(sent.shape)
    parts = [name, downstream.capability, downstream.window_s, downstream.stores_rejections, shape]
    return " | ".join(
        map(str, [*parts, (sent.header or "-") if sent else "-", *(keys_of(name) if sent else ())])
    )


# ---------------------------------------------------------------- keys


def test_the_terms_and_keys_of_every_provider_stay_as_they_are():
    """A release that changes one of these sends another key than the attempt before it."""
    assert [line(name) for name in providers()] == GOLDEN


@pytest.mark.parametrize("name", KEYED)
def test_every_key_is_one_that_the_provider_takes(name):
    takes = provider(name).key

    for key in keys_of(name):
        assert (takes.length_min or 1) <= len(key) <= (takes.length_max or 255)
        assert takes.pattern is None or re.fullmatch(takes.pattern, key)
        assert takes.form != "uuid" or re.fullmatch(UUID, key)


def test_another_process_has_the_same_key():
    code = (
        "from tests.providers.test_provider_tools import keys_of\n"
        "print(*keys_of('stripe.v1'), *keys_of('discord'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [*keys_of("stripe.v1"), *keys_of("discord")]


def test_an_async_tool_has_the_same_key_and_its_probe_as_well():
    guard = Guard("memory://", secret=SECRET)
    seen = []

    @guard.tool(kind="write", provider="stripe.v1", downstream="probe")
    async def refund(order: str) -> str:
        seen.append(current_effect().downstream_key)
        raise ConnectionResetError

    @refund.probe
    async def find(order: str) -> Found:
        seen.append(current_effect().downstream_key)
        return Found("found")

    async def main():
        async with guard.step("chat-42", "refund"):
            assert await refund("ord_1") == "found"

    asyncio.run(main())
    assert seen == [keys_of("stripe.v1")[0]] * 2


def test_it_is_the_key_that_key_as_makes():
    guard = Guard("memory://")

    @guard.tool(kind="write", provider="stripe.v1")
    def refund(order: str) -> bool:
        return current_effect().downstream_key == current_effect().key_as("uuid")

    with guard.step("chat-42", "refund"):
        assert refund("ord_1")


def test_without_a_provider_nothing_is_different():
    guard = Guard("memory://")

    @guard.tool(kind="write", downstream="key")
    def refund(order: str) -> list[str]:
        effect = current_effect()
        assert effect.sent_key is None
        return [effect.downstream_key, downstream_key(effect.key, "refund")]

    with guard.step("chat-42", "refund"):
        one, other = refund("ord_1")
    assert one == other
    assert refund.contract.rules == ()
    assert (refund.contract.terms.provider, refund.contract.terms.key_shape) == ("", "")


# ---------------------------------------------------------------- terms


@pytest.mark.parametrize("name", providers())
def test_the_downstream_is_what_a_page_of_the_provider_promises(name):
    facts, given = provider(name), terms_of(name, None).downstream
    stated = not facts.facts.key.unverified and not facts.facts.repeat.unverified

    assert given.capability == ("key" if stated and facts.repeat in SAFE else "none")
    if given.capability == "key":
        published = facts.window_s is not None and not facts.facts.window_s.unverified
        window_s = inf if facts.window_s == "no end" else facts.window_s
        assert given.window_s == (window_s if published else 300)
        assert given.stores_rejections == (facts.stored in ("all", "refusals too"))


def test_what_is_stricter_wins():
    assert terms_of("stripe.v1", "none").downstream == Downstream.none()
    assert terms_of("stripe.v1", "probe").downstream == Downstream.probe()
    shorter = Downstream.key(window=60)
    assert terms_of("stripe.v1", shorter).downstream == shorter
    assert terms_of("stripe.v1", "key") == terms_of("stripe.v1", None)


def test_where_no_page_says_how_long_the_tool_may():
    longer = Downstream.key(window=86_400, stores_rejections=True)

    assert terms_of("razorpay.refunds", longer).downstream == longer
    assert terms_of("brevo", "key").downstream == Downstream.key(window=900)


@pytest.mark.parametrize(
    ("name", "declared", "said"),
    [
        (
            "stripe.v1",
            Downstream.key(window=7 * 86_400),
            r"for 24 h \(https://docs.stripe.com/\S+ read on \S+\), and not for 7 days",
        ),
        ("monday", Downstream.key(), "honours a key for 30 min .*, and not for 24 h"),
        ("checkout", Downstream.key(window=60, stores_rejections=True), "keep refusals"),
        ("twilio", "key", "takes no key, and a repeat is another effect"),
        ("github", Downstream.key(), "takes no key"),
        ("stripe.v1", "transaction", "writes nothing in your transaction"),
        ("stripe.v1", Downstream.probe(delay=5), "may lag 1 h behind"),
    ],
)
def test_what_promises_more_than_the_provider_is_refused(name, declared, said):
    guard = Guard("memory://")

    with pytest.raises(ContractViolation, match=said) as refused:
        guard.tool(kind="write", provider=name, downstream=declared)

    assert f"provider={name!r}" in str(refused.value)
    assert f"effectonce provider show {name}" in refused.value.corrective_action


def test_a_wrong_name_is_refused_where_it_is_written():
    guard = Guard("memory://")

    with pytest.raises(ContractViolation, match=r"Did you mean 'stripe\.v1'"):
        guard.tool(kind="write", provider="stirpe.v1")
    with pytest.raises(ContractViolation, match="give a name"):
        guard.tool(kind="write", provider=provider("stripe.v1"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"length_max": 12}, "62 bits, and 96 are needed"),
        ({"pattern": "[01]{1,40}", "length_max": 40}, "40 bits, and 96 are needed"),
        ({"pattern": "[A-Z]+"}, "fewer than two characters"),
        ({"pattern": "key_.*"}, "fewer than two characters"),
        ({"form": "uuid", "length_max": 32}, "it takes 1 to 32 characters"),
        ({"length_min": 5, "pattern": "0+|1+|2+"}, "96 are needed|it takes"),
    ],
)
def test_a_provider_whose_keys_cannot_be_made_is_refused(changed, said):
    facts = provider("zendesk")
    odd = replace(facts, key=replace(facts.key, length_max=None))
    odd = replace(odd, key=replace(odd.key, **changed))

    with pytest.raises(ContractViolation, match="no key fits provider='zendesk'") as refused:
        terms_from(odd, None)
    assert re.search(said, str(refused.value))


@pytest.mark.cover(1)
@pytest.mark.parametrize("url", ["memory", "sqlite", "postgres", "redis"])
@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ({"downstream": "key"}, {"provider": "stripe.v1"}, 1),
        ({"provider": "stripe.v1"}, {"downstream": "key"}, 1),
        ({"provider": "stripe.v1"}, {"provider": "checkout"}, 1),
        ({"provider": "stripe.v1"}, {"provider": "stripe.v1"}, 2),
        ({"downstream": "key"}, {"downstream": "key"}, 2),
    ],
)
def test_a_change_of_the_key_is_a_doubt_and_not_another_effect(
    request, tmp_path, url, before, after, runs
):
    """What was sent before the tool named its provider was sent under another key."""
    store = {
        "memory": MemoryStore,
        "sqlite": lambda: f"sqlite:///{tmp_path / 'effects.db'}",
        "postgres": lambda: request.getfixturevalue("database"),
        "redis": lambda: redis.emptied(redis.server()).url,
    }[url]()
    ran, counts = [], {}

    for declared in (before, after):
        guard = Guard(store)

        @guard.tool(kind="write", retry=Retry(attempts=1), name="refund", **declared)
        def refund(order: str) -> str:
            ran.append(current_effect().downstream_key)
            raise ConnectionResetError

        with guard.step("chat-42", "refund"), suppress(GaveUp, InDoubt):
            refund("ord_1")
        counts = guard.counts()
        if url != "memory":
            guard.close()

    assert len(ran) == runs
    assert counts == ({"in_doubt": 1} if runs == 1 else {"dispatched": 1})


@pytest.mark.cover(1)
@pytest.mark.parametrize("how", ["def", "async def"])
@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ({}, {"provider": "checkout"}, 1),
        ({"provider": "checkout"}, {}, 1),
        ({"provider": "checkout"}, {"provider": "adyen"}, 1),
        ({"provider": "checkout"}, {"provider": "checkout"}, 2),
        ({}, {}, 2),
    ],
)
def test_a_probe_that_looks_for_another_key_proves_nothing(how, before, after, runs):
    """It did not find the key of today: what landed has the key of then."""
    clock = FakeClock()
    store, ran = MemoryStore(clock=clock), []

    for declared in (before, after):
        guard = Guard(store, reconcile=False)
        contract = {"kind": "write", "name": "pay", "retry": Retry(attempts=1), **declared}

        def send():
            ran.append(current_effect().downstream_key)
            raise TimeoutError

        if how == "def":

            @guard.tool(downstream=Downstream.probe(delay=1), **contract)
            def pay(order: str) -> str:
                send()

            pay.probe(lambda order: NotFound())
        else:

            @guard.tool(downstream=Downstream.probe(delay=1), **contract)
            async def pay(order: str) -> str:
                send()

            @pay.probe
            async def find(order: str):
                return NotFound()

        with guard.step("chat-42", "pay"), suppress(InDoubt):
            done = pay("ord_1")
            if how == "async def":
                asyncio.run(done)
        clock.advance(3600)

    assert len(ran) == runs
    assert guard.counts() == {"in_doubt": 1}


def test_a_change_of_the_key_does_no_harm_where_a_repeat_does_none():
    store, ran = MemoryStore(), []

    for declared in ({"downstream": "key"}, {"provider": "stripe.v1"}):
        guard = Guard(store)

        @guard.tool(kind="idempotent_write", retry=Retry(attempts=1), name="save", **declared)
        def save(order: str) -> str:
            ran.append(current_effect().downstream_key)
            raise ConnectionResetError

        with guard.step("chat-42", "save"), suppress(GaveUp):
            save("ord_1")

    assert len(ran) == 2


# ---------------------------------------------------------------- on the wire


def by_httpx(shop):
    client = httpx_client(shop, retry=SOON)
    return lambda path: client.post(path, json={"a": 1}).raise_for_status()


def by_requests(shop):
    client = protect(shop.opened.enter_context(requests.Session()), retry=SOON)
    return lambda path: client.post(shop.url + path, json={"a": 1}).raise_for_status()


def refunded(send, paths=("/v1/refunds",), guard=None, **declared):
    """A refund by *send*, in a tool of its own."""
    guard = guard or Guard("memory://")

    @guard.tool(**{"kind": "write", "provider": "stripe.v1", "retry": SOON} | declared)
    def refund(order: str) -> list[str]:
        for path in paths:
            send(path)
        return [current_effect().request_key("POST", path, 0) for path in paths]

    with guard.step("chat-42", "refund"):
        return refund("ord_1")


each_client = pytest.mark.parametrize("by", [by_httpx, by_requests])


@each_client
@pytest.mark.cover(1)
@pytest.mark.parametrize("name", [name for name in KEYED if provider(name).key.where == "header"])
def test_a_protected_client_sends_the_key_in_the_header_of_the_provider(shop, by, name):
    facts = provider(name).key
    shop.header = facts.name

    sent = refunded(by(shop), ("/v1/refunds", "/v1/notes"), provider=name)

    assert shop.keys == sent
    assert len(set(sent)) == 2
    assert all(re.fullmatch(facts.pattern or ".+", key) for key in sent)


@each_client
def test_a_key_that_goes_into_the_body_is_in_no_header_and_a_client_does_not_repeat_it(shop, by):
    send, guard = by(shop), Guard("memory://")
    shop.faults = ["lose"]

    @guard.tool(kind="write", provider="square", retry=SOON)
    def pay(order: str) -> None:
        send("/payments")

    with guard.step("chat-42", "pay"), pytest.raises(InDoubt):
        pay("ord_1")

    assert shop.keys == [None]


def test_a_tool_that_sends_its_key_in_the_body_is_sent_again(shop):
    client, keys = httpx_client(shop), []
    guard = Guard("memory://")

    @guard.tool(kind="write", provider="square", retry=SOON)
    def pay(order: str) -> None:
        keys.append(current_effect().downstream_key)
        client.post("/payments", json={"idempotency_key": keys[-1]}).raise_for_status()

    shop.faults = ["lose"]
    with guard.step("chat-42", "pay"):
        pay("ord_1")

    assert keys == [keys[0]] * 2
    assert shop.keys == [None, None]


def test_a_header_that_the_client_names_for_a_host_stays(shop):
    shop.header = "x-key-of-the-host"
    client = httpx_client(shop, keys={"127.0.0.1": "X-Key-Of-The-Host", "*": "Other"})

    sent = refunded(lambda path: client.post(path))

    assert shop.keys == sent


def test_a_client_without_keys_sends_none(shop):
    client = httpx_client(shop, keys=None)

    refunded(lambda path: client.post(path))

    assert shop.keys == [None]


def stripe_client(shop, retry=SOON):
    http = stripe.RequestsClient(timeout=30)
    made = stripe.StripeClient("sk_test_1", base_addresses={"api": shop.url}, http_client=http)
    return protect(made, retry=retry)


def refund_by_stripe(client):
    return lambda path: client.v1.refunds.create({"payment_intent": "pi_1"})


@theirs
def test_the_sdk_of_stripe_sends_the_key_of_the_effect(shop):
    sent = refunded(refund_by_stripe(stripe_client(shop)))

    assert shop.requests == [("POST", "/v1/refunds", sent[0])]
    assert re.fullmatch(UUID, sent[0])


@theirs
def test_a_key_that_the_tool_gives_to_the_sdk_is_the_one_that_is_sent(shop):
    client, guard = stripe_client(shop), Guard("memory://")

    @guard.tool(kind="write", provider="stripe.v1")
    def refund(order: str) -> str:
        key = current_effect().downstream_key
        client.v1.refunds.create({"payment_intent": "pi_1"}, {"idempotency_key": key})
        return key

    with guard.step("chat-42", "refund"):
        sent = refund("ord_1")

    assert shop.keys == [sent]


@theirs
def test_the_sdk_of_stripe_in_an_async_tool(shop):
    http = stripe.HTTPXClient()
    made = stripe.StripeClient("sk_test_1", base_addresses={"api": shop.url}, http_client=http)
    client, guard = protect(made, retry=SOON), Guard("memory://")

    @guard.tool(kind="write", provider="stripe.v1", retry=SOON)
    async def refund(order: str) -> str:
        await client.v1.refunds.create_async({"payment_intent": "pi_1"})
        return current_effect().request_key("POST", "/v1/refunds", 0)

    async def main():
        async with guard.step("chat-42", "refund"):
            return await refund("ord_1")

    shop.faults = ["lose"]
    sent = asyncio.run(main())
    assert shop.keys == [sent, sent]
    assert shop.effects == 1


# ---------------------------------------------------------------- what is lost, refused, late


@pytest.fixture
def durable(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    yield guard
    guard.close()


@theirs
def test_a_lost_answer_is_asked_for_again_under_the_same_key(shop, durable):
    shop.faults = ["lose", "lose"]

    sent = refunded(
        refund_by_stripe(stripe_client(shop)), guard=durable, kind="irreversible", one_request=True
    )

    assert len(shop.keys) == 3
    assert len(set(shop.keys)) == 1
    assert shop.keys != sent, "one request has the key of the effect itself"
    assert shop.effects == 1


def test_after_the_window_of_the_provider_it_is_a_doubt(shop):
    clock = FakeClock()
    store, once = MemoryStore(clock=clock), Retry(attempts=1)
    client = httpx_client(shop, retry=once)

    def again():
        refunded(lambda path: client.post(path).raise_for_status(), guard=Guard(store), retry=once)

    shop.faults = ["lose", "lose"]
    with pytest.raises(GaveUp):
        again()
    clock.advance(86_400 - 120)
    with pytest.raises(GaveUp):
        again()
    clock.advance(61)
    with pytest.raises(InDoubt):
        again()

    assert len(shop.keys) == 2
    assert shop.effects == 1


MISMATCHES = {
    "stripe.v1": (400, {}, {"error": {"type": "idempotency_error", "message": "no"}}),
    "telnyx": (422, {}, {"errors": [{"detail": "Idempotency key used with another body"}]}),
    "increase": (409, {}, {"type": "idempotency_key_already_used_error"}),
    "resend": (409, {}, {"name": "invalid_idempotent_request"}),
    "razorpay.payouts": (
        400,
        {},
        {"error": {"code": "BAD_REQUEST_ERROR", "description": "idempotency key: other body"}},
    ),
}


@each_client
@pytest.mark.cover(1)
@pytest.mark.parametrize("name", MISMATCHES)
def test_a_key_that_was_used_with_another_request_is_a_doubt_and_no_refusal(
    shop, durable, by, name
):
    """By a client that saw that nothing else was sent: it could tell a refusal."""
    shop.faults = ["lose", MISMATCHES[name]]

    with pytest.raises(GaveUp, match="may have run"):
        refunded(by(shop), guard=durable, kind="irreversible", provider=name, through="protected")

    assert durable.counts() == {"dispatched": 1}
    assert len(shop.keys) == 2


@each_client
def test_a_mismatch_is_no_refusal_of_the_first_request_either(shop, durable, by):
    shop.faults = [MISMATCHES["telnyx"]]

    with pytest.raises(GaveUp, match="may have run"):
        refunded(by(shop), guard=durable, provider="telnyx", one_request=True)

    assert durable.counts() == {"dispatched": 1}


@each_client
@pytest.mark.parametrize(("name", "status"), [("stripe.v1", 400), ("telnyx", 422)])
def test_an_invalid_request_is_refused_as_ever(shop, durable, by, name, status):
    shop.faults = [(status, {}, {"error": {"message": "amount is missing"}})]

    with pytest.raises(Exception, match=str(status)) as refused:
        refunded(by(shop), guard=durable, provider=name, one_request=True)

    assert not isinstance(refused.value, GaveUp)
    assert durable.counts() == {"failed": 1}


DECLINED = (402, {}, {"error": {"type": "card_error", "message": "declined"}})


@theirs
@pytest.mark.parametrize("attempts", [1, 3], ids=["by the tool", "by the client"])
def test_a_refusal_that_the_provider_keeps_settles_what_was_lost(shop, durable, attempts):
    client = stripe_client(shop, Retry(attempts=attempts, base_s=0.001))
    shop.faults = ["lose", DECLINED]

    with pytest.raises(stripe.CardError):
        refunded(refund_by_stripe(client), guard=durable, kind="irreversible", one_request=True)

    assert durable.counts() == {"failed": 1}
    assert len(shop.keys) == 2


@each_client
def test_a_refusal_that_it_does_not_keep_settles_nothing(shop, durable, by):
    shop.faults = ["lose", (400, {}, {"error": "amount"})]

    with pytest.raises((GaveUp, InDoubt)):
        refunded(by(shop), guard=durable, provider="checkout", one_request=True)

    assert "failed" not in durable.counts()


@pytest.mark.parametrize("name", ["stripe.v1", "monday", "worldline", "mercadopago"])
def test_a_request_that_is_still_running_is_waited_for(shop, durable, name):
    shop.header = provider(name).key.name
    shop.faults = ["lose", (409, {})]

    refunded(by_httpx(shop), guard=durable, kind="irreversible", provider=name)

    assert len(shop.keys) == 3
    assert len(set(shop.keys)) == 1
    assert shop.effects == 1


def test_a_rule_of_the_tool_comes_before_those_of_its_provider():
    mine = Rule(409, Verdict(Bucket.DECLINED, Certainty.REJECTED, "mine"))
    guard = Guard("memory://")

    @guard.tool(kind="write", provider="stripe.v1", rules=[mine])
    def refund(order: str) -> None: ...

    assert refund.contract.rules[0] == mine
    assert len(refund.contract.rules) > 1


def test_an_answer_says_how_long_to_wait():
    from effectonce import classify

    response = {"status": 409, "headers": {"retry-after": "7"}, "body": ""}
    verdict = classify(response, rules=terms_of("monday", None).rules)

    assert (verdict.bucket, verdict.certainty) == ("conflict_in_flight", "ambiguous")
    assert verdict.retry_after_s == 7
    assert verdict.matched == "rule: monday 409"


def test_every_key_of_a_shape_is_that_of_shaped_key():
    shape = terms_of("google.calendar", None).sent_key.shape

    assert re.fullmatch("[0-9a-v]{52}", shaped_key(shape, "0" * 40, "book"))


# ---------------------------------------------------------------- contracts of adapters


def test_a_contract_of_an_agents_tool_may_name_its_provider():
    from effectonce.integrations._contracts import declare

    declared = declare("refund", kind="irreversible", provider="stripe.v1").contract

    @Guard("memory://").tool(kind="write", provider="stripe.v1")
    def refund(order: str) -> None: ...

    assert declared.downstream == refund.contract.downstream
    assert declared.sent_key == refund.contract.sent_key
    assert declared.rules == refund.contract.rules
    assert declared.terms.provider == "stripe.v1"
    with pytest.raises(ContractViolation, match="contradict"):
        declare("refund", provider="twilio", downstream="key")


@pytest.mark.parametrize(
    ("written", "window_s"),
    [
        ({"provider": "monday", "key_argument": "key"}, 1800),
        ({"provider": "monday", "downstream": "key"}, 1800),
        ({"provider": "monday", "downstream": "key", "honours_key_s": 60}, 60),
        ({"downstream": "key"}, 86_400),
        ({"downstream": "key", "honours_key_s": 60}, 60),
        ({"provider": "monday"}, None),
        ({"provider": "twilio", "key_argument": "key"}, None),
        ({}, None),
    ],
)
def test_a_contract_of_an_mcp_server_may_name_its_provider_if_the_key_gets_there(written, window_s):
    from effectonce.mcp._contracts import read_contracts

    contracts = read_contracts(None, {"tools": {"post": written}})
    made = contracts.of("post", {}).contract("post", hosted=False)

    assert made.downstream == (
        Downstream.none() if window_s is None else Downstream.key(window=window_s)
    )
    assert made.provider == written.get("provider", "")
    shape = None if made.sent_key is None else str(made.sent_key.shape)
    assert shape == ("uuid" if made.provider == "monday" else None)


def test_a_contract_file_that_promises_more_than_the_provider_is_refused():
    from effectonce.mcp._contracts import read_contracts

    wrong = {"provider": "monday", "downstream": "key", "honours_key_s": 7200}
    with pytest.raises(ContractViolation, match="for 30 min"):
        read_contracts(None, {"tools": {"post": wrong}})
