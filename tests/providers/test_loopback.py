"""Every provider on this machine: a tool that names it has one effect there, whatever is lost,
and what its caller gets to know is true.

`loopback_outcomes.txt` has all of it, one line for each provider. A word is what one call gets:

    done     its result, and the effect is in the ledger of the provider
    made     ResultUnavailable: it is there, and its result is not known
    failed   the provider's refusal, and nothing was done
    open     GaveUp: it may have been done, and the next call goes on under the same key
    doubt    InDoubt: it may have been done, and is not sent again
    expired  Expired: our own record is older than its window, and nothing is sent

Behind it stands how many requests the provider got, and how many effects it had.
"""

from math import inf
from pathlib import Path

import botocore.session
import httpx
import pytest
import stripe
from botocore.config import Config

from effectonce import Expired, Found, GaveUp, Guard, InDoubt, NotFound, Retry, current_effect
from effectonce._core.key_shapes import shaped_key
from effectonce._tools.provider_terms import terms_of
from effectonce.errors import ResultUnavailable
from effectonce.http.client import protect
from effectonce.providers import provider, providers
from effectonce.providers.probes import stripe as probes_of_stripe
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.providers.loopback import Loopback, window_of
from tests.providers.sending import GraphQLError, post, result

NAMES = providers()
KEYED = [name for name in NAMES if provider(name).key.where != "none"]
WITHOUT = [name for name in NAMES if name not in KEYED]
SOON = Retry(attempts=4, base_s=0.001, throttled_base_s=0.001, cap_s=0.002)
ONCE = Retry(attempts=1)
# how long before the end of a window nothing is sent any more: a request takes time
SLACK_S = 120.0
OUTCOMES = Path(__file__).with_name("loopback_outcomes.txt").read_text().splitlines()
theirs = pytest.mark.filterwarnings("ignore")  # what an SDK leaves open


@pytest.fixture(scope="module")
def loopback():
    made = Loopback()
    yield made
    made.close()


# ---------------------------------------------------------------- requests


def to(there):
    return httpx.Client(base_url=there.url, timeout=30, verify=False)


# ---------------------------------------------------------------- callers


class Caller:
    """A tool of one provider, which is called by one process after another."""

    def __init__(self, loopback, name, **contract):
        self.name, self.there, self.clock = name, loopback.account(name), FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.contract = {"kind": "write", "provider": name} | contract

    def call(self, *, retry=SOON, note="late"):
        """What a caller gets to know."""
        with to(self.there) as http:
            word = self.word(protect(http, retry=retry), retry, note)
        effects = self.there.effects
        assert len(effects) <= 1, "a duplicate"
        assert len(effects) == {"done": 1, "made": 1, "failed": 0}.get(word, len(effects)), word
        return word

    def word(self, client, retry, note):
        guard = Guard(self.store)

        @guard.tool(retry=retry, identity=["order"], volatile=["note"], **self.contract)
        def refund(order: str, note: str) -> str:
            in_header = provider(self.name).key.where in ("header", "none")
            key = None if in_header else current_effect().downstream_key
            return result(post(client, self.name, key, {"order": order, "note": note}))

        if self.contract.get("downstream") == "probe":
            refund.probe(self.find)
        try:
            with guard.step("chat-42", "refund"):
                made = refund("ord_1", note)
        except InDoubt:
            return "doubt"
        except ResultUnavailable:
            return "made"
        except GaveUp:
            return "open"
        except Expired:
            return "expired"
        except (httpx.HTTPError, GraphQLError):
            return "failed"
        assert made == self.there.effects[0]["id"], "it is what was done"
        return "done"

    def find(self, order: str, note: str) -> Found | NotFound:
        with to(self.there) as http:
            found = http.get("/messages").json()["data"]
        return Found(found[0]["id"]) if found else NotFound()

    def fault(self, *faults):
        self.there.set(faults=faults)

    def wait(self, length_s):
        """On both clocks: ours, and that of the provider."""
        self.clock.advance(length_s)
        self.there.set(advance_s=length_s)

    @property
    def relied_s(self):
        """For how long the tool relies on the key."""
        downstream = terms_of(self.name, None).downstream
        return 10.0**9 if downstream.window_s == inf else downstream.window_s


def first_call(caller):
    """Its answer is lost, and the process ends."""
    caller.fault("lose")
    return caller.call(retry=ONCE)


def with_faults(*faults):
    def scene(caller):
        caller.fault(*faults)
        return [caller.call()]

    return scene


def within_the_window(caller):
    word = first_call(caller)
    caller.wait(caller.relied_s - SLACK_S)
    return [word, caller.call()]


def after_the_window(caller):
    word = first_call(caller)
    caller.wait(caller.relied_s + 1)
    return [word, caller.call()]


def mismatch(caller):
    return [first_call(caller), caller.call(note="other")]


def replay_after_the_window(caller):
    word = caller.call()
    caller.wait(caller.relied_s + 1)
    return [word, caller.call()]


MAY_HAVE_NONE = {"reset", "error_before", "refused", "in_flight"}
SCENES = {
    "lost": with_faults("lose"),
    "lost_twice": with_faults("lose", "lose"),
    "reset": with_faults("reset"),
    "error_after": with_faults("error after"),
    "error_before": with_faults("error before"),
    "refused": with_faults("refuse"),
    "in_flight": with_faults("running"),
    "within_the_window": within_the_window,
    "after_the_window": after_the_window,
    "mismatch": mismatch,
    "replay_after_the_window": replay_after_the_window,
}


@pytest.mark.parametrize("name", NAMES)
def test_one_effect_and_the_truth_about_it(loopback, name):
    row = [name]
    for scene, play in SCENES.items():
        caller = Caller(loopback, name)
        words = play(caller)
        seen = caller.there
        row.append(f"{'+'.join(words)} {len(seen.requests)}r {len(seen.effects)}e")
        assert len({key for key in seen.requests if key}) <= 1, "one key in all of them"
        assert len(seen.effects) == 1 or scene in MAY_HAVE_NONE

    assert " | ".join(row) in OUTCOMES, "change loopback_outcomes.txt only if that is better"


def test_the_table_of_outcomes_has_no_other_rows():
    head, *rows = OUTCOMES

    assert head == " | ".join(["provider", *SCENES])
    assert [row.partition(" | ")[0] for row in rows] == NAMES


# ---------------------------------------------------------------- refused as done before

REFUSES_REPEATS = ["gocardless", "google.calendar", "moov"]


@pytest.mark.parametrize("name", REFUSES_REPEATS)
def test_that_it_was_done_before_is_no_answer_to_the_first_send(loopback, name):
    caller = Caller(loopback, name)
    assert caller.call() == "done"

    caller.store = MemoryStore(clock=caller.clock)  # which knows nothing of that

    assert caller.call() == "open"
    assert (len(caller.there.requests), len(caller.there.effects)) == (2, 1)


@pytest.mark.parametrize("name", REFUSES_REPEATS)
def test_what_was_done_before_stays_done_and_is_not_sent_again(loopback, name):
    caller = Caller(loopback, name)

    caller.fault("lose")

    assert [caller.call(), caller.call()] == ["made", "made"]
    assert (len(caller.there.requests), len(caller.there.effects)) == (2, 1)


def test_a_key_that_is_used_up_by_failures_too_proves_nothing(loopback):
    caller = Caller(loopback, "mangopay")

    caller.fault("lose")

    assert [caller.call(), caller.call()] == ["open", "open"]


def test_the_first_of_two_requests_does_not_speak_for_the_second(loopback):
    there, guard = loopback.account("moov"), Guard(MemoryStore())

    with to(there) as http:
        client = protect(http, retry=ONCE)

        @guard.tool(kind="write", provider="moov", retry=SOON)
        def refund(order: str) -> str:
            result(client.post("/refunds", json={"order": order}))
            there.set(faults=["reset"])
            return result(client.post("/notes", json={"order": order}))

        with guard.step("chat-42", "refund"), pytest.raises(GaveUp):
            refund("ord_1")

    assert len(there.effects) == 1


# ---------------------------------------------------------------- without a key


@pytest.mark.parametrize("name", WITHOUT)
def test_where_there_is_no_key_the_provider_is_asked(loopback, name):
    caller = Caller(loopback, name, downstream="probe")

    caller.fault("lose")

    assert [caller.call(), caller.call()] == ["done", "done"]
    assert (len(caller.there.requests), len(caller.there.effects)) == (1, 1)


@pytest.mark.parametrize("name", WITHOUT)
def test_what_is_not_found_there_is_a_doubt_and_is_not_sent_again(loopback, name):
    caller = Caller(loopback, name, downstream="probe")

    caller.fault("reset")

    assert [caller.call(), caller.call()] == ["doubt", "doubt"]
    assert (len(caller.there.requests), len(caller.there.effects)) == (1, 0)


# ---------------------------------------------------------------- time-outs


@pytest.mark.parametrize(
    "name", ["stripe.v1", "square", "paypal.orders", "increase", "moov", "twilio"]
)
def test_an_answer_that_does_not_come_in_time(loopback, name):
    caller = Caller(loopback, name)
    caller.fault("slow")

    with httpx.Client(base_url=caller.there.url, timeout=1, verify=False) as http:
        word = caller.word(protect(http, retry=SOON), SOON, "late")

    assert word == {"moov": "made", "twilio": "doubt"}.get(name, "done")
    assert len(caller.there.effects) == 1


# ---------------------------------------------------------------- SDKs


def by_stripe(there):
    made = stripe.StripeClient(
        "sk_test_1",
        base_addresses={"api": there.url},
        http_client=stripe.RequestsClient(timeout=30),
    )
    return protect(made, retry=SOON)


def refunding(guard, there):
    """A tool with the mark and the probe of the pack beside its key."""
    client = by_stripe(there)

    @guard.tool(kind="irreversible", provider="stripe.v1", retry=SOON)
    def refund(payment: str) -> str:
        marked = {probes_of_stripe.MARK: probes_of_stripe.mark()}
        return client.v1.refunds.create({"payment_intent": payment, "metadata": marked}).id

    refund.probe(probes_of_stripe.listed(client.v1.refunds.list))
    return refund


@theirs
@pytest.mark.usefixtures("collected")
def test_a_stored_500_after_the_effect_is_found_by_the_probe_beside_the_key(loopback, tmp_path):
    there = loopback.account("stripe.v1")
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    refund = refunding(guard, there)

    there.set(faults=["error after"])
    with guard.step("chat-42", "refund"):
        found = guard.call(refund, {"payment": "pi_7"})
        again = guard.call(refund, {"payment": "pi_7"})
    guard.close()

    assert (found.value, found.settled_by, again.replayed) == ("obj_1", "probe", True)
    assert len(there.effects) == 1
    assert len(set(there.requests)) == 1


@theirs
@pytest.mark.usefixtures("collected")
def test_a_stored_500_before_the_effect_is_not_found_and_nothing_is_done(loopback, tmp_path):
    there, path = loopback.account("stripe.v1"), tmp_path / "effects.db"
    guard = Guard(f"sqlite:///{path}")
    refund = refunding(guard, there)

    there.set(faults=["error before"])
    with guard.step("chat-42", "refund"):
        for _ in range(2):
            with pytest.raises(
                GaveUp, match=r"may have run: .*the probe could not tell"
            ) as gave_up:
                refund("pi_7")
    guard.close()

    assert "no proof that it did not happen" in str(gave_up.value)
    assert there.effects == []
    assert len(set(there.requests)) == 1


@theirs
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("fault", ["lose", "running", "reset"])
def test_the_sdk_of_stripe(loopback, tmp_path, fault):
    there = loopback.account("stripe.v1")
    client, guard = by_stripe(there), Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    @guard.tool(kind="irreversible", provider="stripe.v1", retry=SOON)
    def refund(payment: str) -> str:
        return client.v1.refunds.create({"payment_intent": payment}).id

    there.set(faults=[fault])
    with guard.step("chat-42", "refund"):
        made = refund("pi_1")
    guard.close()

    assert [effect["id"] for effect in there.effects] == [made]
    assert len(set(there.requests)) == 1


def by_botocore(service, there):
    made = botocore.session.Session().create_client(
        service,
        region_name="eu-west-1",
        endpoint_url=there.url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
    )
    return protect(made, retry=SOON)


@theirs
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    ("fault", "requests"), [("lose", 2), ("reset", 2), ("error after", 2), ("running", 3)]
)
def test_the_sdk_of_aws_and_a_token(loopback, tmp_path, fault, requests):
    there = loopback.account("aws.dynamodb.TransactWriteItems")
    client = by_botocore("dynamodb", there)
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    @guard.tool(kind="irreversible", provider="aws.dynamodb.TransactWriteItems", retry=SOON)
    def move(order: str) -> None:
        client.transact_write_items(
            TransactItems=[{"Put": {"TableName": "orders", "Item": {"id": {"S": order}}}}],
            ClientRequestToken=current_effect().downstream_key,
        )

    there.set(faults=[fault])
    with guard.step("chat-42", "move"):
        move("ord_1")
    client.close()
    guard.close()

    assert len(there.effects) == 1
    assert (len(there.requests), len(set(there.requests))) == (requests, 1)


@theirs
@pytest.mark.usefixtures("collected")
def test_the_sdk_of_aws_and_a_mail_without_a_key(loopback, tmp_path):
    there = loopback.account("ses")
    client = by_botocore("sesv2", there)
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    @guard.tool(kind="irreversible", provider="ses", retry=SOON)
    def mail(address: str) -> None:
        client.send_email(
            FromEmailAddress="a@example.com",
            Destination={"ToAddresses": [address]},
            Content={"Raw": {"Data": b"hello"}},
        )

    there.set(faults=["lose"])
    for _ in range(2):
        with guard.step("chat-42", "mail"), pytest.raises(InDoubt):
            mail("b@example.com")
    client.close()
    guard.close()

    assert (len(there.requests), len(there.effects)) == (1, 1)


# ---------------------------------------------------------------- the providers themselves


def key_for(name, effect="0" * 40):
    return shaped_key(terms_of(name, None).sent_key.shape, effect, "refund")


# the outcomes above show the other answers of the providers here


@pytest.mark.parametrize("name", [name for name in KEYED if window_of(provider(name)) != inf])
def test_a_provider_forgets_a_key_with_its_window(loopback, name):
    there, facts = loopback.account(name), provider(name)

    with to(there) as client:
        for wait_s in (0, window_of(facts) - 1, 1):
            there.set(advance_s=wait_s)
            post(client, name, key_for(name), {"order": "1"})

    assert len(there.effects) == (2 if facts.repeat is not None else 3)


@pytest.mark.parametrize(
    "name", [name for name in KEYED if provider(name).key.length_max or provider(name).key.pattern]
)
def test_a_provider_refuses_a_key_of_another_shape(loopback, name):
    there = loopback.account(name)

    with to(there) as client:
        refusal = post(client, name, "é_".encode().hex() * 300, {"order": "1"})

    assert refusal.status_code == 400
    assert there.effects == []
