"""Asking providers, by real clients, of servers that answer in the documented format. Those whose
SDK is not installed here are asked in tests/sdks.
"""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from xml.sax.saxutils import escape

import botocore.session
import httpx
import pytest
import stripe as stripe_sdk
from botocore.config import Config

from effectonce import CannotTell, Found, GaveUp, Guard, InDoubt, Retry, current_effect
from effectonce.http.client import protect
from effectonce.providers.probes import (
    dynamodb,
    google_calendar,
    imap,
    in_thread,
    increase,
    jira,
    mangopay,
    paypal,
    s3,
    stripe,
    twilio,
)
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.providers.answering import Provider, asked, facts, page
from tests.providers.post_office import Mailbox
from tests.providers.test_providers import printed_by


def test_stripe():
    def answer(server, method, path, query, body):
        first = 0
        if "starting_after" in query:
            first = 1 + [o["id"] for o in server.objects].index(query["starting_after"])
        data = server.objects[first : first + 2]
        more = len(server.objects) > first + 2
        assert (path, method) == ("/v1/payment_intents", "GET")
        assert float(query["created[gte]"]) <= time.time()
        return 200, {"object": "list", "data": data, "has_more": more, "url": path}, {}

    numbers = iter(range(1000))

    def make(*, marked):
        mark = {stripe.MARK: stripe.mark()} if marked else {}
        name = "pi_mine" if marked else f"pi_{next(numbers)}"
        return {"id": name, "object": "payment_intent", "metadata": mark}

    with Provider(answer) as server:
        client = stripe_sdk.StripeClient(
            "sk_test_1", base_addresses={"api": server.url}, max_network_retries=0
        )
        listing = client.v1.payment_intents.list
        facts(server, make, "pi_mine", lambda **o: stripe.listed(listing, **o))
        for declined in ({"status": "failed"}, {"last_payment_error": {"code": "card_declined"}}):

            def leave(to, declined=declined):
                server.objects = [make(marked=True) | declined]

            answer, why = asked(leave, stripe.listed(listing))
            assert (answer, "declined" in why) == ("cannot_tell", True), why

        def leave(to):
            unpaid = {"status": "requires_payment_method", "last_payment_error": None}
            server.objects = [make(marked=True) | unpaid]

        assert asked(leave, stripe.listed(listing)) == ("found", "pi_mine")


def test_paypal():
    def answer(server, method, path, query, body):
        assert path == "/v1/reporting/transactions"
        number = int(query["page"])
        found = server.objects[2 * number - 2 : 2 * number]
        details = [{"transaction_info": each} for each in found]
        pages = -(-len(server.objects) // 2)
        return 200, {"transaction_details": details, "page": number, "total_pages": pages}, {}

    def make(*, marked):
        invoice = {"invoice_id": paypal.invoice_id()} if marked else {}
        return {"transaction_id": "5TY05013RG002845M", **invoice}

    with Provider(answer) as server, httpx.Client(base_url=server.url) as client:
        facts(server, make, "5TY05013RG002845M", lambda **o: paypal.transaction(client, **o))

        def leave(to):
            server.objects = [make(marked=True) | {"transaction_status": "D"}]

        answer, why = asked(leave, paypal.transaction(client))
        assert (answer, "denied" in why) == ("cannot_tell", True), why


def test_jira():
    def answer(server, method, path, query, body):
        assert path == "/rest/api/3/search/jql"
        assert query["properties"] == "effectonce"
        assert query["jql"].startswith('project = "ada" AND created >= -')
        issues, token = page(server, query, name="nextPageToken")
        if query.get("fields") != "key":  # without fields, ids are all that is answered
            issues = [{"id": "1", "properties": issue["properties"]} for issue in issues]
        return 200, {"issues": issues, **({"nextPageToken": token} if token else {})}, {}

    def make(*, marked):
        prop = jira.issue_property()
        return {"key": "OPS-7", "properties": {prop["key"]: prop["value"]} if marked else {}}

    with Provider(answer) as server, httpx.Client(base_url=server.url) as client:
        facts(server, make, "OPS-7", lambda **o: jira.issue(client, lambda to: to, **o))


class Outbox:
    """What a client of Twilio lists. The SDK itself is asked in tests/sdks."""

    def __init__(self, *ages_s):
        now = datetime.now(UTC)
        self.messages, self._made = self, [now + timedelta(seconds=age_s) for age_s in ages_s]

    def stream(self, *, to, from_):
        for number, made in enumerate(self._made):
            yield SimpleNamespace(sid=f"SM{number}", body="hello", date_created=made)


@pytest.mark.parametrize(
    ("ages_s", "answer"),
    [
        ([0], ("found", "SM0")),
        ([86_400], ("cannot_tell", "later")),
        ([86_400, 0], ("found", "SM1")),
        ([-60], ("not_found", "")),
    ],
)
def test_a_message_of_another_day_is_not_taken_for_one_that_is_in_doubt(ages_s, answer):
    """A reminder has the same text every day."""
    where = lambda to: {"to": to, "from_": "+15550001", "body": "hello"}
    probe = twilio.message(Outbox(*ages_s), where, proof_after_s=0)

    said, why = asked(lambda to: None, probe)

    assert (said, answer[1] in why) == (answer[0], True)


class Calendar:
    """What a service of Google's Calendar answers: the error of one request."""

    class Answered(Exception):
        def __init__(self, status):
            self.resp = SimpleNamespace(status=status)

    def __init__(self, status):
        self.status = status

    def events(self):
        return self

    def get(self, **_):
        return self

    def execute(self):
        raise self.Answered(self.status)


@pytest.mark.parametrize(("status", "answer"), [(404, "not_found"), (410, "cannot_tell")])
def test_an_event_that_was_deleted_was_there(status, answer):
    probe = google_calendar.event(Calendar(status), proof_after_s=0)

    assert asked(lambda to: None, probe)[0] == answer


def test_increase():
    def answer(server, method, path, query, body):
        assert path == "/ach_transfers"
        server.objects = [o for o in server.objects if o["key"] == query["idempotency_key"]]
        found, cursor = page(server, query, size=1, name="cursor")
        return 200, {"data": found, "next_cursor": cursor}, {}

    def leave(count):
        def put(to):
            server.objects = [{"id": "ach_1", "key": increase.key()}] * count

        return put

    with Provider(answer) as server, httpx.Client(base_url=server.url) as client:
        probe = increase.listed(client, "/ach_transfers")
        assert asked(leave(1), probe) == ("found", "ach_1")
        assert asked(leave(0), probe)[0] == "cannot_tell"
        assert asked(leave(2), probe)[0] == "cannot_tell"
        late = increase.listed(client, "/ach_transfers", proof_after_s=0)
        assert asked(leave(0), late)[0] == "not_found"


POSTED = "/v2.01/us/payouts/bankwire"


def test_mangopay_is_asked_for_what_it_answered_to_the_key():
    def answer(server, method, path, query, body):
        kept = dict(server.objects).get(path.removeprefix("/v2.01/us/responses/"))
        return (200, kept, {}) if kept else (404, {"Message": "not found"}, {})

    def leave(status, resource):
        def put(to):
            kept = {"StatusCode": status, "Resource": resource}
            server.objects = [(mangopay.key(), kept)]

        return put

    with Provider(answer) as server, httpx.Client(base_url=server.url) as client:
        probe = mangopay.answered(client, "/v2.01/us", POSTED)
        assert asked(leave("200", {"Id": "pay_1"}), probe) == ("found", "pay_1")
        said, why = asked(leave("400", {"Message": "no money"}), probe)
        assert (said, "it answered 400: {'Message': 'no money'}" in why) == ("cannot_tell", True)
        server.objects = []
        assert asked(lambda to: None, probe)[0] == "cannot_tell"
        late = mangopay.answered(client, "/v2.01/us", POSTED, proof_after_s=0)
        assert asked(lambda to: None, late)[0] == "not_found"
        server.status = 503
        assert asked(leave("200", {"Id": "pay_1"}), late)[0] == "cannot_tell"


def test_mangopay_forgets_after_a_day_and_does_not_deny_what_it_forgot():
    clock = FakeClock()
    guard = Guard(MemoryStore(clock=clock), reconcile=False)
    sent = []

    @guard.tool(kind="write", provider="mangopay", downstream="probe", retry=Retry(attempts=1))
    def pay(order: str):
        sent.append(mangopay.key())
        assert mangopay.key() == current_effect().downstream_key
        raise TimeoutError

    with (
        Provider(lambda *_: (404, {"Message": "not found"}, {})) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        pay.probe(mangopay.answered(client, "/v2.01/us", POSTED, proof_after_s=60))
        with guard.step("chat", 1), pytest.raises((InDoubt, GaveUp)):
            pay("ord_1")
        clock.advance(86_401)
        forgotten = guard.reconcile()
    guard.close()

    assert (forgotten.settled, forgotten.in_doubt) == (0, 1)
    assert len(set(sent)) == 1


@pytest.mark.parametrize("name", ["mangopay", "increase"])
def test_what_a_protected_client_sent_is_found_by_the_key_that_it_sent(name):
    """It makes a key for each request of a tool, of the effect's own."""

    def answer(server, method, path, query, body):
        if method == "POST":
            return 503, {}, {}
        wanted = query.get("idempotency_key") or path.rpartition("/")[2]
        found = wanted in server.sent_keys
        if name == "increase":
            return 200, {"data": [{"id": "tr_1"}] if found else []}, {}
        return (
            (200, {"StatusCode": "201", "Resource": {"Id": "tr_1"}}, {}) if found else (404, {}, {})
        )

    guard = Guard("memory://", reconcile=False)
    with Provider(answer) as server, httpx.Client(base_url=server.url) as plain:
        protected = protect(httpx.Client(base_url=server.url), retry=Retry(attempts=1))

        @guard.tool(kind="write", provider=name, downstream="probe", retry=Retry(attempts=1))
        def pay(order: str):
            protected.post(POSTED, json={"order": order}).raise_for_status()

        asked_for = {
            "mangopay": lambda: mangopay.answered(plain, "/v2.01/us", POSTED),
            "increase": lambda: increase.listed(plain, POSTED),
        }
        pay.probe(asked_for[name]())
        with guard.step("chat", 1):
            assert pay("ord_1") == "tr_1"
        protected.close()
    guard.close()


def aws(name, server):
    return botocore.session.get_session().create_client(
        name,
        region_name="eu-west-1",
        endpoint_url=server.url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
    )


def test_s3_is_read_back_and_what_is_not_there_was_not_written():
    def answer(server, method, path, query, body):
        if method == "HEAD":
            mark = server.objects and {"x-amz-meta-effectonce": server.objects[0], "ETag": '"e"'}
            return (200, b"", mark) if mark else (404, b"", {})
        return 200, b"", {}

    def leave(*marks):
        def put(to):
            server.objects = [escape(mark or s3.mark()) for mark in marks]

        return put

    with Provider(answer) as server:
        client = aws("s3", server)
        probe = s3.written(client, lambda to: {"Bucket": "reports", "Key": to})
        assert asked(leave(""), probe) == ("found", '"e"')
        assert asked(leave(), probe)[0] == "not_found"
        assert asked(leave("of another"), probe)[0] == "cannot_tell"
        server.status = 503
        assert asked(leave(""), probe)[0] == "cannot_tell"


def test_dynamodb_is_read_back_consistently():
    def answer(server, method, path, query, body):
        assert b'"ConsistentRead": true' in body
        item = {"Item": {"effectonce": {"S": server.objects[0]}}} if server.objects else {}
        return 200, item, {"Content-Type": "application/x-amz-json-1.0"}

    def leave(*marks):
        def put(to):
            server.objects = [mark or dynamodb.mark() for mark in marks]
            server.mark = dynamodb.mark()

        return put

    with Provider(answer) as server:
        client = aws("dynamodb", server)
        where = lambda to: {"TableName": "orders", "Key": {"pk": {"S": to}}}
        probe = dynamodb.put(client, where)
        assert asked(leave(""), probe) == ("found", server.mark)
        assert asked(leave(), probe)[0] == "not_found"
        assert asked(leave("of another"), probe)[0] == "cannot_tell"
        server.status = 500
        assert asked(leave(""), probe)[0] == "cannot_tell"


def test_imap():
    with Mailbox() as server:

        def leave(count):
            def put(to):
                server.mine = imap.message_id("shop.example")
                server.sent = ["<other@shop.example>"] + [server.mine] * count

            return put

        probe = imap.message(server.connect, "shop.example")
        assert asked(leave(1), probe) == ("found", server.mine)
        assert asked(leave(0), probe)[0] == "cannot_tell"
        assert asked(leave(2), probe)[0] == "cannot_tell"
        server.refuses = True
        assert asked(leave(1), probe)[0] == "cannot_tell"


def test_a_list_without_an_end_proves_nothing(monkeypatch):
    monkeypatch.setattr("effectonce.providers.probes._asking.LOOKED_AT_MAX", 3)

    class Page:
        def auto_paging_iter(self):
            return iter([{"id": "pi_1", "metadata": {}}] * 4)

    answer, why = asked(lambda to: None, stripe.listed(lambda params: Page(), proof_after_s=0))
    assert (answer, "TooMany" in why) == ("cannot_tell", True)


def test_an_async_tool_asks_in_a_thread():
    guard = Guard("memory://", reconcile=False)

    @guard.tool(kind="write", downstream="probe", retry=Retry(attempts=1))
    async def send(to: str):
        raise TimeoutError

    def probe(to: str):
        return CannotTell() if threading.current_thread() is threading.main_thread() else Found(to)

    send.probe(in_thread(probe))

    async def main():
        async with guard.step("chat", 1):
            return await send("ada")

    assert asyncio.run(main()) == "ada"


def test_no_recipe_imports_an_sdk():
    code = (
        "import sys\n"
        "from effectonce.providers.probes import gmail, github, slack, stripe, twilio\n"
        "print({'stripe', 'twilio', 'github', 'slack_sdk', 'googleapiclient'} & set(sys.modules))"
    )

    assert printed_by(code) == "set()\n"
