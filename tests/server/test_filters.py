"""A filtered list is the list, filtered: on every store, on every page, whatever is asked for."""

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effectonce import Guard
from effectonce._core.ops import Browse, Search
from effectonce._core.record import State
from effectonce.dashboard import Access
from effectonce.recovery.causes import error_type, trouble_of, without_variables
from effectonce.views import lists
from effectonce.views.effects import now_of
from effectonce.views.filter_fields import (
    ALLOWANCES,
    APPROVALS,
    EFFECTS,
    IN_DOUBT,
    LETTERS,
    RUNS,
    BadFilter,
    ListFilter,
    read_filter,
)
from tests.server.conftest import browser
from tests.server.shop import Shop

ADA = Access("ada", acts=True)
ACME = Access("eve", acts=True, tenant="acme")


def fill(shop):
    """Every kind of record, of two tenants."""
    for number, tenant in itertools.product(range(3), ("acme", "globex")):
        at = f"chat-{number}"
        shop.call(at, "_refund", tenant=tenant, payment_id=f"pay_lost_{number}", amount_minor=1)
        shop.call(f"{at}-ok", "_refund", tenant=tenant, payment_id=f"pay_{number}", amount_minor=1)
        shop.call(f"{at}-no", "_refund", tenant=tenant, payment_id="pay_bad", amount_minor=1)
        shop.call(f"{at}-s", "_ship", tenant=tenant, parcel=f"p{number}")
        shop.call(f"{at}-p", "_pay_out", tenant=tenant, to=f"acct_{number}", amount_minor=1)
        shop.call(f"{at}-m", "_mail", tenant=tenant, to="ada")


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres", "redis"])
def stocked(request, tmp_path_factory):
    from tests.servers import redis

    made = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path_factory.mktemp('filters') / 'effects.db'}",
        "postgres": lambda: request.getfixturevalue("postgres").database(),
        "redis": lambda: redis.emptied(redis.server()).url,
    }[request.param]()
    guard = Guard(made, reconcile=False)
    fill(Shop(guard))
    yield guard
    guard.close()


def maybe(*values):
    return st.none() | st.sampled_from(values)


ASKED = st.fixed_dictionaries(
    {
        "tool": maybe("_refund", "_ship", "_pay_out", "no such tool"),
        "tenant": maybe("acme", "globex", "nobody"),
        "error": maybe("TimeoutError", "NotSent", "Rejected", "none"),
        "scope": maybe("chat-1", "chat-2-ok", "chat-0-s", "chat-1-p"),
        "older_than": maybe("0s", "1h", "2020-01-01", "2100-01-01"),
        "newer_than": maybe("0s", "1h", "2020-01-01", "2100-01-01"),
    }
)


def every(page, store, asked, now, limit):
    """All pages of a list, one after the other."""
    last, found = None, []
    for _ in range(1000):
        part = page(store, asked, now, last, limit)
        assert len(part.records) <= limit
        found += part.records
        last = part.further
        if last is None:
            return [record.request.key for record in found]
    raise AssertionError("a list without an end")


def holds(asked, record, at, now):
    """The same in plain Python, written a second time."""
    request = record.request

    def moment(text):
        known = {
            "0s": now,
            "1h": now - 3600,
            "2020-01-01": 1577836800.0,
            "2100-01-01": 4102444800.0,
        }
        return known[text]

    return (
        asked["tool"] in (None, request.terms.tool)
        and asked["tenant"] in (None, request.tenant)
        and asked["scope"] in (None, request.scope)
        and (asked["error"] is None or (error_type(record) or "none") == asked["error"])
        and (asked["older_than"] is None or at <= moment(asked["older_than"]))
        and (asked["newer_than"] is None or at >= moment(asked["newer_than"]))
    )


FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FEW
@given(
    asked=ASKED,
    state=maybe("claimed", "completed", "failed", "in-doubt"),
    limit=st.sampled_from([1, 7, 50]),
)
def test_a_filtered_list_of_effects_is_the_list_filtered(stocked, asked, state, limit):
    now = now_of(stocked)
    wanted = read_filter(EFFECTS, {**asked, "state": state})

    found = every(lists.effects_page, stocked.store, wanted, now, limit)

    records = stocked.store.apply(Search(limit=10_000))
    right = {
        r.request.key
        for r in records
        if holds(asked, r, r.created_at, now) and (state or r.state).replace("-", "_") == r.state
    }
    assert len(found) == len(set(found))
    assert set(found) == right


@FEW
@given(asked=ASKED, one=st.none() | st.integers(0, 5), limit=st.sampled_from([1, 7, 50]))
def test_a_filtered_list_of_doubts_is_the_list_filtered(stocked, asked, one, limit):
    now = now_of(stocked)
    doubts = stocked.store.apply(Browse(State.IN_DOUBT, limit=10_000))
    group = None if one is None else trouble_of(doubts[one]).group
    wanted = read_filter(IN_DOUBT, {**asked, "group": group})

    found = every(lists.doubts_page, stocked.store, wanted, now, limit)

    assert found == [
        r.request.key
        for r in doubts
        if holds(asked, r, r.decided_at, now) and group in (None, trouble_of(r).group)
    ]


@FEW
@given(asked=ASKED)
def test_filtered_letters_are_the_letters_filtered(stocked, asked):
    now = now_of(stocked)
    wanted = read_filter(LETTERS, asked).wanted(now)

    found = [letter.key for letter in stocked.dead_letters.list(limit=1000, **wanted)]

    whole = stocked.dead_letters.list(limit=1000)
    right = {
        letter.key
        for letter in whole
        # a moment later a letter is a moment older
        if holds(
            {**asked, "newer_than": None if asked["newer_than"] == "0s" else asked["newer_than"]},
            letter.record,
            letter.given_up_at,
            now,
        )
    }
    assert set(found) == (right if asked["newer_than"] != "0s" else set(found) & right)


@FEW
@given(asked=ASKED)
def test_filtered_wishes_are_the_wishes_filtered(stocked, asked):
    asked = {**asked, "error": None}
    now = now_of(stocked)
    wanted = read_filter(APPROVALS, {n: v for n, v in asked.items() if n != "error"})

    found = every(lists.wishes_page, stocked.store, wanted, now, 7)

    waiting = stocked.approvals.waiting(limit=1000)
    keys = {w.effect.key: w for w in waiting}
    assert set(found) == {
        key for key, w in keys.items() if holds(asked, stocked.find(key), w.asked_at, now)
    }


# ---------------------------------------------------------------- words


@given(asked=ASKED)
def test_a_filter_reads_back_from_its_own_words(asked):
    wanted = read_filter(EFFECTS, asked)

    assert read_filter(EFFECTS, wanted.given()) == wanted
    assert set(wanted.words()) == set(wanted.given())
    assert wanted.options().count(" --") == len(wanted.given())


@pytest.mark.parametrize("listed", [EFFECTS, IN_DOUBT, LETTERS, RUNS, APPROVALS, ALLOWANCES])
def test_what_is_not_known_is_an_error_that_says_what_is(listed):
    with pytest.raises(BadFilter, match="tool"):
        read_filter(listed, {"colour": "red"})
    for state in ("lost", "", " "):
        if listed.states and state.strip():
            with pytest.raises(BadFilter, match=listed.states[0].replace("_", "-")):
                read_filter(listed, {"state": state})
        else:
            assert read_filter(listed, {"state": "" if listed.states else None}) == ListFilter()


def test_a_tenant_cannot_ask_for_another():
    assert read_filter(EFFECTS, {"tenant": "acme"}, own="acme").tenant == "acme"
    with pytest.raises(BadFilter, match="not yours"):
        read_filter(EFFECTS, {"tenant": "globex"}, own="acme")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("payment pay_17 of 30 s", "payment pay_18 of 5 s"),
        ("no answer from 10.0.0.7:443", "no answer from 10.0.0.9:443"),
        ("customer 'Ada L.' is unknown", "customer 'Bob' is unknown"),
        ("ada@example.com bounced", "bob@example.org bounced"),
    ],
)
def test_a_cause_has_nothing_of_one_request_in_it(one, other):
    assert without_variables(one) == without_variables(other)


def test_a_status_is_a_cause():
    assert without_variables("HTTP 503 for pay_1") != without_variables("HTTP 429 for pay_1")
    assert without_variables("it didn't work, and won't") == "it didn't work, and won't"


# ---------------------------------------------------------------- pages

LISTS = {
    "/effects": ("tool=_refund&state=in-doubt&error=TimeoutError", "tool _refund"),
    "/in-doubt": ("tool=_refund&scope=chat-1", "scope chat-1"),
    "/letters": ("error=NotSent&older_than=0s", "error NotSent"),
    "/approvals": ("tool=_pay_out&newer_than=1h", "newer than 1h"),
    "/workflows": ("tool=_order&state=all", "state all"),
    "/allowances": ("tool=_give", "tool _give"),
}


def references(page):
    return set(re.findall(r"eff_[0-9a-f]{12}(?=<)", page.text))


@pytest.mark.parametrize("path", LISTS)
def test_every_list_has_a_form_and_a_chip_for_each_filter(shop, guard, path):
    fill(shop)
    query, words = LISTS[path]
    pages = browser(guard, ADA)

    page = pages.get(f"{path}?{query}&live=on")

    assert page.status_code == 200
    assert '<form method="get" class="filters"' in page.text
    chips = re.findall(r'aria-label="Without the filter ([^"]+)"', page.text)
    assert len(chips) == len(query.split("&"))
    assert words in chips
    again = re.search(r'<a href="([^"]+)">Look again', page.text)[1].replace("&amp;", "&")
    assert all(part in again for part in query.split("&"))
    without = re.search(r'class="chips"><a href="([^"]+)"', page.text)[1].replace("&amp;", "&")
    assert pages.get(path + without).status_code == 200
    assert without.count("=") == len(query.split("&"))  # one fewer, and live


@pytest.mark.parametrize("path", LISTS)
def test_an_unknown_filter_is_refused_on_every_list(shop, guard, path):
    shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    page = browser(guard, ADA).get(f"{path}?colour=red")

    assert page.status_code == 400
    assert "tool" in page.text
    assert references(page) == set()


@pytest.mark.parametrize("path", LISTS)
def test_a_filter_does_not_widen_what_a_tenant_sees(shop, guard, path):
    fill(shop)
    pages, everyone = browser(guard, ACME), browser(guard, ADA)
    theirs = references(everyone.get(f"{path}?tenant=globex"))

    assert pages.get(f"{path}?tenant=globex").status_code == 400
    assert not references(pages.get(path)) & theirs
    assert "globex" not in pages.get(path).text


@pytest.mark.parametrize("path", ["/effects", "/in-doubt", "/letters", "/approvals", "/workflows"])
def test_nothing_found_says_among_how_many(shop, guard, path):
    fill(shop)
    text = browser(guard, ADA).get(f"{path}?tool=nothing").text

    assert re.search(r"0 of \d+ [a-z ]+ match", text), text


def test_a_page_of_a_large_heap_says_that_it_goes_on(shop, guard, monkeypatch):
    fill(shop)
    monkeypatch.setattr(lists, "LOOKED_AT", 5)
    pages = browser(guard, ADA)
    path, found = "/in-doubt?tool=_refund&scope=chat-2", set()

    for _ in range(10):
        page = pages.get(path)
        found |= references(page)
        further = re.search(r'href="(\?[^"]*after=[^"]*)"', page.text)
        if further is None:
            break
        path = "/in-doubt" + further[1].replace("&amp;", "&")

    right = [r for r in guard.in_doubt(tool="_refund") if r.request.scope == "chat-2"]
    assert len(found) == len(right) == 2
