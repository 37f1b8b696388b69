"""The page that says what was prevented."""

import re

import pytest

from effectonce._core import counters as fields
from effectonce._runtime.counters import Counters
from effectonce.dashboard import Access
from effectonce.observe.report import PreventedCounts, PreventionReport
from effectonce.views.prevented import TITLES, chart_of, headline, nothing_yet
from tests.server.conftest import browser


def counting(guard, rows):
    """As other processes have counted."""
    kept = Counters(guard.store, 90)
    for (tool, tenant), numbers in rows.items():
        for name, number in numbers.items():
            kept.of(tool).row(tenant)[fields.FIELDS.index(name)] += number
    kept.flush()


@pytest.fixture
def counted(guard):
    counting(
        guard,
        {
            ("refund", "acme"): {"landed": 40, "replayed": 30, "joined": 5, "doubts": 1},
            ("mail", "beta"): {"landed": 9, "refused_in_doubt": 2},
        },
    )


def test_the_page_says_what_was_prevented(viewer, counted):
    page = viewer.get("/prevented").text

    assert (
        "37 duplicates prevented in 7 days: 30 repeated calls got the first result, 5 joined a"
        " call that ran, 2 were refused because it was in doubt." in page
    )
    assert re.search(r"Effects landed</td>.*?>49<", page)
    assert "<svg viewBox" in page
    assert "<desc" in page
    assert page.count('<td data-label="Day"') == 7


def test_a_tenants_login_sees_its_own(guard, counted):
    page = browser(guard, Access("tom", tenant="beta")).get("/prevented?tenant=acme").text

    assert "2 duplicates prevented" in page
    for word in ("refund", "acme", "By tenant"):
        assert word not in page.partition("<main")[2].partition("As of")[0].replace(
            "?tenant=acme", ""
        )


def test_one_tool_and_one_day(viewer, counted):
    page = viewer.get("/prevented?since=1d&tool=mail").text

    assert "2 duplicates prevented today" in page
    assert page.count('<td data-label="Day"') == 1


@pytest.mark.parametrize(("since", "status"), [("30d", 200), ("soon", 422), ("9999d", 409)])
def test_since_when_is_in_the_url(viewer, counted, since, status):
    assert viewer.get(f"/prevented?since={since}").status_code == status


def test_nothing_was_counted_yet(viewer):
    page = viewer.get("/prevented").text

    assert "Nothing was counted from" in page
    assert "<svg viewBox" not in page


def report(*prevented):
    days = {f"2026-11-{n + 1:02}": PreventedCounts(replayed=p) for n, p in enumerate(prevented)}
    total = PreventedCounts(replayed=sum(prevented))
    return PreventionReport(
        first="2026-11-01", last="2026-11-30", total=total, days=days, tools={}, tenants={}
    )


@pytest.mark.parametrize("days", [1, 7, 30, 90])
def test_the_chart_stays_inside_its_frame(days):
    chart = chart_of(report(*[n * 13 for n in range(days)]))

    for bar in chart.bars:
        assert 0 < bar.x < bar.x + bar.width <= 720
        for _, y, height, _ in bar.parts:
            assert 0 <= y < y + height <= 196.2
    assert sum(1 for bar in chart.bars if bar.label) <= 8
    assert chart.bars[-1].label


def test_what_is_little_beside_much_can_be_seen():
    (_, little) = chart_of(report(10_000, 1)).bars

    assert little.parts[0][2] >= 2


def test_the_sentences():
    assert (
        headline(report(1)) == "1 duplicate prevented today: 1 repeated call got the first result"
    )
    assert headline(report(0, 0)) == "No duplicate had to be prevented in 2 days: 0 effects landed"
    assert nothing_yet(report(0))
    assert not nothing_yet(report(2))
    assert set(TITLES) <= {*PreventedCounts.__struct_fields__, "prevented", "settled"}
