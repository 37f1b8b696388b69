"""Other sites, other names, old links: what is refused, and how."""

import re
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from effectonce import Guard
from effectonce.dashboard import Access, app
from effectonce.dashboard._login import LASTS_S, LoginLink
from effectonce.dashboard._security import HEADERS
from effectonce.dashboard._serve import served, served_here
from tests.server.shop import Shop

ADA = Access("ada", acts=True)


@pytest.fixture
def doubt(shop):
    return shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)


class Tags(HTMLParser):
    """The tags of a page, their attributes, and what stands inside scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.inline = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.cdata_elem == "script" and data.strip():
            self.inline.append(data)


class Outside:
    """A dashboard on a machine of its own, and the links that it has printed."""

    def __init__(self, guard):
        self.links = []
        self.app = served_here(
            guard, ADA, ["testserver", "127.0.0.1"], "effectonce_8642", self.links.append
        )

    def browser(self, **options):
        return TestClient(self.app, follow_redirects=False, **options)


@pytest.fixture
def outside(guard, shop):
    return Outside(guard)


def posted(client, reference, **headers):
    return client.post(
        f"/effects/{reference}/refute", data={"reason": "x", "seen": "in_doubt-1"}, headers=headers
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"sec-fetch-site": "none"}, 303),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://testserver"}, 403),
        ({"origin": "http://testserver"}, 303),
        ({"origin": "https://testserver"}, 403),
        ({"origin": "http://testserver:81"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 403),
        ({"authorization": "Bearer t"}, 303),
        ({"authorization": "Bearer t", "cookie": "a=b"}, 403),
    ],
)
def test_only_a_page_of_ours_may_decide(guard, shop, doubt, headers, status):
    client = TestClient(served(guard, lambda _: ADA, ["testserver"]), follow_redirects=False)

    answer = posted(client, doubt, **headers)

    assert answer.status_code == status
    assert shop.state(doubt) == ("failed" if status == 303 else "in_doubt")


DECISIONS = [
    route.path
    for route in app(Guard("memory://"), access=lambda _: None).routes
    if "POST" in (getattr(route, "methods", None) or ())
]


@pytest.mark.parametrize("path", DECISIONS)
def test_no_decision_is_made_by_another_site_or_by_a_viewer(viewer, operator, path):
    address = re.sub(r"{\w+}", "x", path)

    assert operator.post(address, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    if path != "/approve/{reference}":  # a signature lets in
        assert "This is read-only" in viewer.post(address).text


def test_a_decision_has_an_address_that_takes_nothing_but_posts(guard):
    methods = {
        frozenset(route.methods)
        for route in app(guard, access=lambda _: None).routes
        if getattr(route, "path", "") in DECISIONS and "POST" in route.methods
    }

    assert methods == {frozenset({"POST"})}
    assert {"/effects/{reference}/{act}", "/in-doubt/groups/{group}"} <= set(DECISIONS)


def test_another_name_is_refused(guard, shop, doubt):
    """That is how a page of somebody else's would reach this machine: by a name that leads to
    127.0.0.1.
    """
    client = TestClient(served(guard, lambda _: ADA, ["127.0.0.1"]), base_url="http://evil.example")

    assert client.get("/").status_code == 400
    assert posted(client, doubt, **{"sec-fetch-site": "same-origin"}).status_code == 400
    assert shop.state(doubt) == "in_doubt"


def test_every_answer_carries_what_protects_it(guard, shop, outside, doubt):
    known = outside.browser()
    answers = [
        known.get("/"),
        known.get(f"/?token={outside.links[0]}"),
        known.get("/"),
        known.get(f"/effects/{doubt}"),
        known.get("/nothing"),
        posted(known, doubt),
        known.get("/static/style.css"),
        TestClient(outside.app, base_url="http://evil.example").get("/"),
    ]

    assert [answer.status_code for answer in answers] == [401, 303, 200, 200, 404, 403, 200, 400]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert [answer.headers["cache-control"] for answer in answers] == ["no-store"] * 6 + [
        "no-cache",
        "no-store",
    ]


def test_pages_have_nothing_that_their_own_policy_forbids(outside, doubt):
    known = outside.browser()
    known.get(f"/?token={outside.links[0]}")

    for path in ("/", "/effects", f"/effects/{doubt}", "/workflows", "/nothing"):
        seen = Tags()
        seen.feed(known.get(path).text)
        assert "style" not in seen.tags
        assert not [
            name
            for name, _ in seen.attributes
            if name.startswith(("on", "hx-on")) or name == "style"
        ]
        assert not [
            value
            for _, value in seen.attributes
            if (value or "").strip().lower().startswith("javascript:")
        ]
        assert seen.inline == []


def test_the_link_lets_one_browser_in_once(outside):
    first, second = outside.browser(), outside.browser()

    assert first.get("/").status_code == 401
    entered = first.get(f"/?token={outside.links[0]}")
    late = second.get(f"/?token={outside.links[0]}")

    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=lax", "max-age=43200"))
    assert outside.links[0] not in cookie
    assert first.get("/").status_code == 200
    assert late.status_code == 401
    assert "does not work any more" in late.text
    assert second.get("/").status_code == 401


def test_whoever_only_asks_whether_the_link_is_there_does_not_use_it_up(outside):
    assert outside.browser().head(f"/?token={outside.links[0]}").status_code == 401
    assert outside.browser().get(f"/?token={outside.links[0]}").status_code == 303


def test_another_browser_gets_a_link_of_its_own(outside):
    first, second = outside.browser(), outside.browser()

    first.get(f"/?token={outside.links[0]}")
    second.get(f"/?token={outside.links[1]}")

    assert len(set(outside.links)) == 3
    assert [client.get("/").status_code for client in (first, second)] == [200, 200]


@pytest.mark.parametrize(
    "path", ["/?token=", "/?token=guessed", "/?token=%00%ff", "/?token", "/?token=é"]
)
def test_a_guess_is_no_link(outside, path):
    assert outside.browser().get(path).status_code == 401


@pytest.mark.parametrize("cookie", ["", "guessed", "é"])
def test_a_cookie_that_was_made_up_is_none(outside, cookie):
    client = outside.browser()

    assert (
        client.get("/", headers={"cookie": f"effectonce_8642={cookie}".encode()}).status_code == 401
    )


def test_a_session_ends(guard):
    shop, now, links = Shop(guard), [0.0], []
    door = LoginLink(ADA, "session", links.append, clock=lambda: now[0])
    client = TestClient(door.around(app(guard, access=door.access)))
    client.get(f"/?token={links[0]}")
    assert client.get("/").status_code == 200

    now[0] = LASTS_S
    assert client.get("/").status_code == 401
    assert shop.ledger == []


def test_nothing_is_decided_without_a_session(outside, shop, doubt):
    assert posted(outside.browser(), doubt, **{"sec-fetch-site": "same-origin"}).status_code == 401
    assert shop.state(doubt) == "in_doubt"
