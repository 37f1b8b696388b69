"""What the pages show."""

import asyncio
import gc
import html
import re
import shlex
from urllib.parse import urljoin

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from effectonce import ApprovalNeeded, ContractViolation, Guard, InDoubt, Keyring, PartialSuccess
from effectonce._core.ops import Claim, Search
from effectonce.approvals._links import link_of
from effectonce.dashboard import Access, app
from effectonce.dashboard._request import DashboardRequest
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance.bench import request
from tests.server.conftest import browser
from tests.server.shop import NASTY, ONCE, Shop

LONG = pytest.mark.long
PAGES = (
    "/",
    "/effects",
    "/approvals",
    "/in-doubt",
    "/letters",
    "/allowances",
    "/tools",
    "/breakers",
    "/workflows",
    "/workflows?state=completed",
    "/workflows?state=failed",
)


def test_every_page_is_there_on_every_store(anywhere):
    shop = Shop(anywhere)
    refund = shop.call("chat-1", "_refund", payment_id="pay_1", amount_minor=1)
    doubt = shop.call("chat-2", "_refund", payment_id="pay_lost", amount_minor=1)
    letter = shop.call("trip", "_ship", parcel="p1")
    with pytest.raises(Exception, match="in doubt"):
        shop.order("ord_1")
    pages = browser(anywhere, Access("ada", acts=True))

    for path in PAGES:
        assert pages.get(path).status_code == 200, path
    for reference in (refund, doubt, letter):
        assert reference in pages.get("/effects").text
        assert reference in pages.get(f"/effects/{reference}").text
    assert doubt in pages.get("/in-doubt").text
    assert letter in pages.get("/letters?tool=_ship&error=NotSent").text
    assert (
        "1 of 1 letter would be redriven"
        in pages.get("/letters/redrive?tool=_ship&error=NotSent").text
    )


def test_an_empty_store_says_how_to_record_the_first_effect(guard, viewer):
    guard.counts()

    assert "guard.step" in viewer.get("/").text
    assert "No effect fits" in viewer.get("/effects").text
    assert "Nothing is in doubt" in viewer.get("/in-doubt").text
    assert "No dead letter" in viewer.get("/letters").text
    assert "No run is open" in viewer.get("/workflows").text
    assert "none of your tools" in viewer.get("/breakers").text


def test_the_overview_lists_what_needs_somebody(shop, viewer):
    shop.call("chat-1", "_refund", payment_id="pay_1", amount_minor=1)
    doubt = shop.call("chat-2", "_refund", payment_id="pay_lost", amount_minor=1)
    letter = shop.call("trip", "_ship", parcel="p1")

    page = viewer.get("/").text

    assert f"/effects/{doubt}" in page
    assert f"/effects/{letter}" in page
    assert "<b>1</b> in doubt" in page
    assert "<b>1</b> given up" in page


def test_filters_are_in_the_url(shop, viewer):
    done = shop.call("chat-1", "_refund", payment_id="pay_1", amount_minor=1)
    doubt = shop.call("chat-2", "_refund", payment_id="pay_lost", amount_minor=1)
    booked = shop.call("trip", "_book", seat="1A")

    def shown(query):
        return set(
            re.findall(
                r'href="/effects/(eff_[0-9a-f]{12})\w*"', viewer.get(f"/effects?{query}").text
            )
        )

    assert shown("") == {done, doubt, booked}
    assert shown("state=completed") == {done}
    assert shown("tool=_refund") == {done, doubt}
    assert shown("tool=_refund&state=in-doubt") == {doubt}
    assert shown("scope=trip") == {booked}
    assert shown(f"effect={booked[:10]}") == {booked}
    assert shown("since=1h") == {done, doubt, booked}
    assert shown("since=2100-01-01") == set()
    assert shown("find=pay_") == {done, doubt}
    assert shown("find=PAY_lost&state=in-doubt") == {doubt}
    assert shown("find=pay_lost&state=completed") == set()
    assert shown(f"find={booked}") == {booked}


def test_every_page_has_a_box_to_find_an_effect(shop, viewer):
    done = shop.call("chat-1", "_refund", payment_id="pay_1", amount_minor=1)

    for path in ("/", "/effects", f"/effects/{done}", "/in-doubt", "/letters", "/breakers"):
        assert '<input type="search" name="find"' in viewer.get(path).text
    assert "No effect is known by “pay_2”" in viewer.get("/effects?find=pay_2").text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("since=yesterday", "neither a span"),
        ("state=lost", "no state"),
        ("effect=zzzz", "is no reference"),
        ("find=eff_zzzz", "is no reference"),
        ("colour=red", "no filter"),
        ("group=g_0123456789", "no filter"),
    ],
)
def test_a_filter_that_cannot_be_understood_is_told(shop, viewer, query, said):
    answer = viewer.get(f"/effects?{query}")

    assert answer.status_code == 400
    assert said in answer.text


def test_no_filter_breaks_a_page_on_any_store(anywhere):
    Shop(anywhere).call("chat", "_refund", payment_id="pay_1", amount_minor=1)
    pages = browser(anywhere, Access("ada", acts=True))
    odd = (
        "%00",
        "%ff",
        "%ed%a0%80",
        "9" * 400 + "d",
        "0001-01-01",
        "'; --",
        "eff_",
        "\N{PILE OF POO}",
        "a" * 5000,
    )

    for value in odd:
        for name in ("effect", "tool", "state", "scope", "since", "after"):
            assert pages.get(f"/effects?{name}={value}").status_code in (200, 400, 404), (
                name,
                value,
            )
        for path in (
            "/allowances?after=",
            "/allowances?allowance=",
            "/in-doubt?after=",
            "/letters?tool=x&after=",
            "/letters?tool=",
            "/letters?error=",
            "/letters/redrive?tool=",
        ):
            assert pages.get(path + value).status_code in (200, 400, 404, 422), (path, value)


def test_what_is_in_doubt_is_grouped_by_cause_with_the_command_that_comes_next(
    shop, viewer, tmp_path
):
    lost = [
        shop.call(f"chat-{n}", "_refund", payment_id=f"pay_lost_{n}", amount_minor=1)
        for n in range(3)
    ]
    shop.call("mail", "_mail", to="ada")

    text = viewer.get("/in-doubt").text
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition("<h2>Each of them</h2>")[0], re.DOTALL)
    cells = [[html.unescape(c) for c in re.findall(r"<td[^>]*>(.*?)</td>", r)] for r in rows[1:]]
    (refund, mail) = cells

    assert (refund[0], refund[1], mail[0], mail[1]) == ("3", "_refund", "1", "_mail")
    assert refund[2] == "it timed out (TimeoutError)"
    assert NASTY not in text
    store = shlex.quote(f"sqlite:///{tmp_path / 'effects.db'}")
    assert refund[3] == "main"
    assert (
        "look downstream, then settle it:"
        f" <code>effectonce effect show {lost[0]} --store {store}</code>" in refund[6]
    )
    assert re.search(r'href="/in-doubt/groups/g_[0-9a-f]{10}"', refund[6])
    assert (
        "ask its probe: <code>effectonce indoubt reconcile --tool _mail --app MODULE:GUARD</code>"
        in mail[6]
    )


def test_the_proof_says_what_the_command_line_says(shop, viewer):
    doubt = shop.call("chat-2", "_refund", payment_id="pay_lost", amount_minor=1, reason="late")
    shop.audit.flush()

    page = viewer.get(f"/effects/{doubt}").text
    audited = viewer.get(f"/effects/{doubt}?audit=on").text

    assert "It is unknown whether it happened. It is not sent again until that is settled." in page
    assert "write, downstream none, version 1: at most once + in doubt" in page
    assert "chat-2/step" in page
    assert "attempt 1 failed with TimeoutError" in page
    assert "payment_id, amount_minor, reason (hidden)" in page
    assert "Read it" in page
    assert re.findall(r'class="since">(\w[\w ]*)<', audited)[-2:] == ["in doubt", "dead letter"]
    assert "--reveal" not in page


def test_arguments_results_and_keys_are_for_those_who_may_see_them(shop, operator, admin):
    done = shop.call("chat-1", "_refund", payment_id="pay_1", amount_minor=1400)
    key = shop.record(done).request.key

    for page in (
        operator.get(f"/effects/{done}?reveal=on").text,
        admin.get(f"/effects/{done}").text,
    ):
        assert "1400" not in page
        assert "90071992547409931" not in page
        assert key not in page
    revealed = admin.get(f"/effects/{done}?reveal=on").text
    assert "1400" in revealed
    assert "90071992547409931" in revealed
    assert key in revealed


def test_what_others_wrote_is_text_on_every_page(guard, admin):
    shop = Shop(guard)
    reference = shop.call(NASTY, NASTY, tenant=NASTY, text=NASTY)
    shop.guard.call(shop.nasty, {"text": NASTY}, key=NASTY)
    admin.post(f"/effects/{reference}/refute", data={"reason": NASTY, "seen": "in_doubt-1"})
    shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    shop.call("gift", "_give", customer=NASTY, amount=1)
    with guard.step("till", "wish", asked_by=NASTY), pytest.raises(ApprovalNeeded):
        shop.pay_out(NASTY, 1, NASTY)
    wish = shop.newest()

    assert shop.record(reference).reason == NASTY
    for path in (
        *PAGES,
        f"/effects/{reference}?reveal=on",
        f"/effects/{wish}",
        "/prevented",
        f"/allowances?allowance={NASTY}",
        "/effects?tool=%3Cscript%3E",
        "/effects?since=%3Cscript%3E",
        "/effects/%3Cscript%3E",
        "/%3Cscript%3E",
        f"/letters?tool={NASTY}&error=%3Cscript%3E",
        f"/letters/redrive?tool={NASTY}&error=TimeoutError",
    ):
        page = admin.get(path).text
        assert "<script>alert" not in page, path
        assert "<script>" not in page.replace("<script src=", ""), path
        assert 'onmouseover="' not in page, path


def test_text_cannot_turn_around_what_follows_it(shop, viewer):
    shop.call(
        "chat \N{RIGHT-TO-LEFT OVERRIDE}1\N{ESCAPE}[31m",
        "_refund",
        payment_id="pay_1",
        amount_minor=1,
    )

    page = viewer.get("/effects").text

    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page
    assert "\N{ESCAPE}" not in page


def test_a_run_shows_its_steps(shop, viewer):
    with pytest.raises(Exception, match="in doubt"):
        shop.order("ord_1")
    listed = viewer.get("/workflows").text
    run = re.search(r'href="/workflows/(eff_\w+)"', listed)[1]

    page = viewer.get(f"/workflows/{run}").text

    assert "reserve" in page
    assert "in doubt" in page
    assert "This run of a workflow waits" in page
    step = re.findall(r'href="/effects/(eff_[0-9a-f]{12})\w*"', page)[-1]
    back = re.search(r'href="(/workflows/eff_\w+)"', viewer.get(f"/effects/{step}").text)[1]
    assert viewer.get(back).text.count(run[:16]) == page.count(run[:16])
    assert viewer.get(f"/workflows/{step}").status_code == 404


def test_breakers_say_whose_they_are(shop, viewer):
    page = viewer.get("/breakers").text

    assert "carrier" in page
    assert "Not shared: each process has its own" in page
    assert "no process has reported anything lately" in page


def test_an_effect_that_is_not_there_is_a_page_that_says_so(shop, viewer):
    for path in (
        "/effects/eff_000000000000",
        "/effects/nonsense",
        "/workflows/eff_000000000000",
        "/nothing",
    ):
        answer = viewer.get(path)
        assert answer.status_code == 404
        assert "<h1>" in answer.text


def test_a_tenant_sees_nothing_of_another(guard):
    shop = Shop(guard)
    ours = shop.call("chat", "_refund", tenant="ours", payment_id="pay_lost", amount_minor=1)
    theirs = shop.call("chat", "_refund", tenant="theirs", payment_id="pay_lost", amount_minor=2)
    pages = browser(guard, Access("ada", acts=True, tenant="ours"))

    for path in ("/", "/effects", "/effects?find=pay_lost", "/in-doubt", "/letters?tool=_refund"):
        assert ours in pages.get(path).text
        assert theirs not in pages.get(path).text
    assert pages.get(f"/effects/{theirs}").status_code == 404
    assert (
        pages.post(
            f"/effects/{theirs}/refute", data={"reason": "no", "seen": "in_doubt-1"}
        ).status_code
        == 404
    )
    assert shop.state(theirs) == "in_doubt"


@pytest.mark.parametrize("prefix", [*(pytest.param(p, marks=LONG) for p in ("", "/x")), "/x/y"])
def test_it_can_be_mounted_under_any_prefix(shop, guard, prefix):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    made = app(guard, access=lambda _: Access("ada", acts=True))
    site = TestClient(
        Starlette(routes=[Mount(prefix, made)]) if prefix else made,
        headers={"sec-fetch-site": "same-origin"},
    )

    for page in (site.get(f"{prefix}/"), site.get(f"{prefix}/effects/{doubt}")):
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text)
        assert len(links) > 6
        for link in links:
            assert link.startswith(f"{prefix}/")
            assert site.get(link).status_code in (200, 405), link
    settled = site.post(
        f"{prefix}/effects/{doubt}/refute", data={"reason": "not there", "seen": "in_doubt-1"}
    )
    assert settled.history[0].headers["location"] == f"{prefix}/effects/{doubt}?done=refute"
    assert "Written down: it did not happen." in settled.text


def test_it_can_stand_behind_a_proxy_that_strips_a_prefix(shop, guard):
    made = TestClient(app(guard, access=lambda _: Access("vera")), root_path="/ops")

    assert 'href="/ops/effects"' in made.get("/ops/").text


def test_who_may_look_is_asked_for_every_page(shop, guard):
    async def access(request):
        await asyncio.sleep(0)
        return Access("vera") if request.headers.get("x-user") == "vera" else None

    pages = TestClient(app(guard, access=access))

    for path in (*PAGES, "/effects/eff_000000000000", "/letters/redrive"):
        assert pages.get(path).status_code == 403
    assert pages.get("/", headers={"x-user": "vera"}).status_code == 200


def test_who_is_turned_away_leaves_nothing_behind(guard):
    pages = TestClient(app(guard, access=lambda _: None))
    for _ in range(5):
        assert pages.get("/").status_code == 403

    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is DashboardRequest] == []


def test_nobody_is_let_in_by_mistake(guard):
    with pytest.raises(TypeError, match="access"):
        app(guard)
    with pytest.raises(ContractViolation, match="a function"):
        app(guard, access=Access("ada"))
    with pytest.raises(ContractViolation, match="needs a name"):
        Access(" ")


def test_a_store_that_is_away_is_a_page_that_says_so(tmp_path):
    (tmp_path / "effects.db").write_text("this is no database, and never was one")
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    answer = browser(guard, Access("vera")).get("/")

    assert answer.status_code == 503
    assert "The store cannot be reached" in answer.text


def test_what_is_sealed_is_not_decided_without_the_keys(tmp_path):
    url = f"sqlite:///{tmp_path / 'effects.db'}"
    shop = Shop(Guard(url, keyring=Keyring({"k1": bytes(32)}), secret=b"shop"))
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    shop.guard.close()
    pages = browser(Guard(url), Access("ada", acts=True, reveals=True))

    page = pages.get(f"/effects/{doubt}?reveal=on").text
    answer = pages.post(f"/effects/{doubt}/refute", data={"reason": "no", "seen": "in_doubt-1"})

    assert "does not have the keys" in page
    assert '<form method="post"' not in page
    assert answer.status_code == 409
    assert shop.state(doubt) == "in_doubt"


def test_every_link_leads_to_a_page(tmp_path):
    """From the overview on, with effects in every state that there is."""
    now = [1_000_000.0]
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=lambda: now[0]))
    shop = Shop(guard)

    @guard.tool(kind="write", window=60, retry=ONCE)
    def part(order: str) -> dict:
        raise PartialSuccess(
            "two of three were sent", done=["a", "b"], corrective_action="send c by hand"
        )

    @guard.tool(kind="write", window=60, tombstone=1e9, retry=ONCE)
    def short(order: str) -> str:
        return "done"

    shop.call("window", "short", order="o1")
    now[0] += 100
    guard.sweep()
    shop.call("part", "part", order="o1")
    shop.call("chat", "_refund", payment_id="pay_1", amount_minor=1)
    shop.call("chat-bad", "_refund", payment_id="pay_bad", amount_minor=1)
    shop.call("chat-lost", "_refund", payment_id="pay_lost", amount_minor=1)
    shop.call("trip", "_book", seat="1A")
    shop.call("parcel", "_ship", parcel="p1")
    guard.call(
        shop.refund, {"payment_id": "pay_2", "amount_minor": 1}, key=("a", "business", "key")
    )
    with guard.sequence("account/42", 1):
        shop.refund("pay_3", 1)
    with pytest.raises(InDoubt):
        shop.order("ord_1")
    pages = browser(guard, Access("ada", acts=True, reveals=True))
    seen, left = set(), ["/"]

    while left:
        path = left.pop()
        seen.add(path)
        answer = pages.get(path)
        assert answer.status_code == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            found = [
                urljoin(path, html.unescape(link)).partition("#")[0]
                for link in re.findall(r'href="([^"]*)"', answer.text)
            ]
            left += [
                link for link in set(found) - seen if link not in left and "state=" not in link
            ]

    states = {str(record.state) for record in guard.store.apply(Search())}
    assert states == {"completed", "failed", "in_doubt", "dispatched", "claimed", "tombstone"}
    assert {
        f"/effects/{link_of(record.request.key)}" for record in guard.store.apply(Search())
    } <= seen
    assert "Some of it happened" in "".join(
        pages.get(path).text for path in seen if path.startswith("/effects/")
    )
    guard.close()


def states_of(text):
    return dict(
        re.findall(
            r'data-label="Breaker" class="name">([^<]+)</td>\s*<td data-label="State">'
            r'<span class="state [\w-]+">([^<]+)<',
            text,
        )
    )


def test_a_breaker_that_is_not_shared_is_not_shown_as_closed(shop, viewer):
    text = viewer.get("/breakers").text

    assert states_of(text) == {"carrier": "not shared", "mail": "unknown"}
    assert "In this process it is closed" in text


def test_what_was_given_up_is_not_shown_as_claimed(shop, viewer):
    given_up = shop.call("trip", "_ship", parcel="p1")
    with pytest.raises(InDoubt):
        shop.order("ord_1")

    text = viewer.get("/effects").text
    shown = dict(
        re.findall(
            r'class="ref" href="[^"]+">(\w+)</a>.*?class="state [\w-]+">([^<]+)<', text, re.DOTALL
        )
    )
    assert shown[given_up] == "given up"
    assert "waiting" in shown.values()
    assert "claimed" not in shown.values()
    assert '<span class="state given-up">' in viewer.get(f"/effects/{given_up}").text


def test_every_command_on_a_page_names_the_store(shop, operator, guard, tmp_path):
    """A person copies it into a terminal that knows nothing of this dashboard."""
    for payment in ("pay_1", "pay_lost", "pay_bad"):
        shop.call(f"chat {payment}", "_refund", payment_id=payment, amount_minor=1)
    shop.call("trip", "_ship", parcel="p1")
    shop.call("seat", "_book", seat="1A")
    shop.call("till", "_pay_out", to="acct_1", amount_minor=1)
    abandoned = Claim(request("a" * 40), "t", 0.0, dispatch=True)
    guard.store.apply(abandoned)
    paths = set(PAGES)
    for page in PAGES:
        paths |= set(
            re.findall(r'href="(/(?:effects|workflows)/eff_\w+)"', operator.get(page).text)
        )

    store = f" --store {shlex.quote('sqlite:///' + str(tmp_path / 'effects.db'))}"
    found = set()
    for path in sorted(paths):
        text = operator.get(path).text
        words = html.unescape(re.sub(r"<(?!/?code)[^>]+>", " ", text))
        found |= set(re.findall(r"(effectonce (?!import)[a-z]+ [^<\n]*)", words))
    assert any(each.startswith("effectonce store gc") for each in found)
    assert [each for each in found if store not in each and "--app " not in each] == []
