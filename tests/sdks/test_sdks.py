"""Recipes for providers whose SDKs are not installed beside everything else: `make test-sdks`."""

import time
from email.utils import formatdate

import github as github_sdk
import pytest
from googleapiclient.discovery import build
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from twilio.http.http_client import TwilioHttpClient
from twilio.rest import Client

from effectonce.providers.probes import github, gmail, google_calendar, slack, twilio
from tests.providers.answering import Provider, asked, facts, page


class Loopback(TwilioHttpClient):
    """The SDK has no setting for its address."""

    def __init__(self, url):
        super().__init__(max_retries=0)
        self.url = url

    def request(self, method, url, *args, **kwargs):
        url = url.replace("https://api.twilio.com", self.url)
        return super().request(method, url, *args, **kwargs)


def test_twilio():
    def answer(server, method, path, query, body):
        assert (query["To"], query["From"]) == ("ada", "+15550001")
        found, following = page(server, query, name="Page")
        uri = f"{path}?To=ada&From=%2B15550001&Page={following}" if following else None
        return 200, {"messages": found, "next_page_uri": uri, "page": 0}, {}

    def make(*, marked):
        made = formatdate(time.time() if marked else time.time() - 60, usegmt=False)
        return {
            "sid": "SM1",
            "to": "ada",
            "from": "+15550001",
            "body": "hello",
            "status": "queued",
            "date_created": made.replace("-0000", "+0000"),
            "date_sent": None,
        }

    with Provider(answer) as server:
        client = Client("AC1", "token", http_client=Loopback(server.url))
        where = lambda to: {"to": to, "from_": "+15550001", "body": "hello"}
        facts(server, make, "SM1", lambda **o: twilio.message(client, where, **o))


def test_slack():
    def answer(server, method, path, query, body):
        if server.status_of_slack:
            return 200, {"ok": False, "error": "ratelimited"}, {}
        given = query or dict(p.split("=") for p in body.decode().split("&"))
        assert path == "/api/conversations.history"
        assert given["channel"] == "ada"
        assert given["include_all_metadata"] in ("1", "true")
        found, cursor = page(server, given, name="cursor")
        return 200, {"ok": True, "messages": found, "response_metadata": {"next_cursor": cursor or ""}}, {}  # fmt: skip

    def make(*, marked):
        return {"ts": "1.2", "text": "hi", **({"metadata": slack.metadata()} if marked else {})}

    with Provider(answer) as server:
        server.status_of_slack = False
        client = WebClient(token="x", base_url=f"{server.url}/api/", retry_handlers=[])
        where = lambda to: {"channel": to}
        facts(server, make, "1.2", lambda **o: slack.message(client, where, **o))
        server.status_of_slack = True
        with pytest.raises(SlackApiError):
            client.conversations_history(channel="ada")
        assert asked(lambda to: None, slack.message(client, where))[0] == "cannot_tell"


def test_github():
    def answer(server, method, path, query, body):
        if path == "/repos/shop/web/issues/7":
            return 200, {"number": 7, "url": f"{server.url}{path}"}, {}
        assert path == "/repos/shop/web/issues/7/comments"
        assert query["since"] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        first = int(query.get("page", 1)) - 1
        found = server.objects[2 * first : 2 * first + 2]
        link = {}
        if len(server.objects) > 2 * first + 2:
            after = f"{server.url}{path}?since={query['since']}&page={first + 2}"
            link = {"Link": f'<{after}>; rel="next"'}
        return 200, found, link

    def make(*, marked):
        return {"id": 42, "body": f"hello\n{github.marker()}" if marked else None}

    with Provider(answer) as server:
        client = github_sdk.Github(base_url=server.url, retry=None, lazy=True)
        repo = client.get_repo("shop/web")
        listing = lambda since, to: repo.get_issue(7).get_comments(since=since)
        facts(server, make, 42, lambda **o: github.marked(listing, **o))


def google(name, version, server):
    return build(
        name,
        version,
        developerKey="x",
        client_options={"api_endpoint": server.url},
        static_discovery=True,
    )


def test_gmail():
    def answer(server, method, path, query, body):
        assert query["q"].startswith("rfc822msgid:")
        wanted = query["q"].removeprefix("rfc822msgid:")
        server.objects = [o for o in server.objects if o["mid"] == f"<{wanted}>"]
        found, token = page(server, query, size=1, name="pageToken")
        return 200, {"messages": found, **({"nextPageToken": token} if token else {})}, {}

    def leave(count):
        def put(to):
            server.objects = [{"id": "m1", "mid": gmail.message_id("shop.example")}] * count

        return put

    with Provider(answer) as server:
        probe = gmail.message(google("gmail", "v1", server), "shop.example")
        assert asked(leave(1), probe) == ("found", "m1")
        assert asked(leave(0), probe)[0] == "cannot_tell"
        assert asked(leave(2), probe)[0] == "cannot_tell"
        server.status = 403
        assert asked(leave(1), probe)[0] == "cannot_tell"


def test_google_calendar():
    def answer(server, method, path, query, body):
        wanted = path.rsplit("/", 1)[-1]
        found = [o for o in server.objects if o["id"] == wanted]
        if not found:
            return 404, {"error": {"code": 404, "message": "Not Found"}}, {}
        return 200, found[0], {}

    def leave(count):
        def put(to):
            server.mine = google_calendar.event_id()
            assert set(server.mine) <= set(google_calendar.ALPHABET)
            server.objects = [{"id": server.mine, "status": "cancelled"}] * count

        return put

    with Provider(answer) as server:
        service = google("calendar", "v3", server)
        probe = google_calendar.event(service)
        assert asked(leave(1), probe) == ("found", server.mine)
        assert asked(leave(0), probe)[0] == "cannot_tell"
        late = google_calendar.event(service, proof_after_s=0)
        assert asked(leave(0), late)[0] == "not_found"
        server.status = 500
        assert asked(leave(1), late)[0] == "cannot_tell"
