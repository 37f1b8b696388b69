"""Spending limits in the dashboard: what is left, who sees it, and what a page reads."""

import contextlib
import html
import re

import pytest

from effectonce import Allowance, Guard, InDoubt, LimitReached, Retry, current_effect
from effectonce._core.effect_ref import reference_of
from effectonce.allowances import Allowances
from effectonce.dashboard import Access, _allowances
from effectonce.stores.memory import MemoryStore
from effectonce.views.allowances import BAR, bar_of
from tests.server.conftest import browser

CELL = r'<td data-label="([^"]+)"[^>]*>(.*?)</td>'
YEARS_S = 10 * 365 * 86_400


class Till:
    """Refunds of each tenant, and mails of all of them."""

    def __init__(self, guard):
        self.guard = guard
        refunds = Allowance("refunds", limit=1000, unit="cents", per=YEARS_S)
        mails = Allowance("mails", limit=3, for_each=None, per=YEARS_S)

        @guard.tool(kind="write", allowance=refunds, spends="amount", retry=Retry(attempts=1))
        def refund(payment: str, amount: int) -> str:
            if payment == "lost":
                raise TimeoutError
            return current_effect().key

        @guard.tool(kind="write", allowance=mails)
        def mail(to: str) -> None: ...

        self.refund, self.mail = refund, mail

    def pay(self, payment, amount, tenant=None):
        with self.guard.step("chat", payment, tenant=tenant):
            return self.refund(payment, amount)


@pytest.fixture
def till(guard):
    return Till(guard)


def rows_of(answer):
    """The cells of each row, as a person reads them."""
    assert answer.status_code == 200
    body = answer.text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [
        {
            label: " ".join(html.unescape(re.sub(r"<[^>]+>", " ", cell)).split())
            for label, cell in re.findall(CELL, row, re.DOTALL)
        }
        for row in rows
    ]


def test_an_account_is_shown_with_what_is_left_and_what_holds_the_rest(till, viewer):
    till.pay("pay_1", 400)
    with pytest.raises(InDoubt) as caught:
        till.pay("lost", 250)
    for _ in range(2):
        with pytest.raises(LimitReached):
            till.pay("pay_2", 900)

    answer = viewer.get("/allowances")
    (row,) = rows_of(answer)
    reference = caught.value.effect.reference
    assert row["Allowance"] == f"refunds tenant main, in cents {reference} 250 in doubt"
    figures = [row[name] for name in ("Limit", "Spent", "Reserved", "In doubt", "Left", "Refused")]
    assert figures == ["1,000", "400", "0", "250", "350", "2"]
    assert row["Refills"].startswith("in 36")
    assert 'aria-label="400 spent, 250 in doubt of 1,000"' in answer.text
    (link,) = re.findall(r'href="(/effects/[^"]+)"', answer.text)
    assert "It is unknown whether it happened" in viewer.get(link).text


def test_what_is_under_way_is_reserved(guard, viewer):
    seen = []

    @guard.tool(kind="write", allowance=Allowance("calls", limit=2))
    def call(to: str) -> None:
        seen.extend((rows_of(viewer.get("/allowances"))[0], current_effect().key))

    with guard.step("chat", 1):
        call("ada")

    row, key = seen
    assert (row["Reserved"], row["Left"]) == ("1", "1")
    assert row["Allowance"].endswith(f" {reference_of(key)} 1")


def test_who_belongs_to_a_tenant_sees_its_accounts_alone(till, guard):
    till.pay("pay_1", 10, tenant="acme")
    till.pay("pay_2", 20, tenant="acme, customer ada")  # its name cannot pass for another
    with guard.step("chat", 3, tenant="acme"):
        till.mail("ada")

    def shown(tenant, query=""):
        answer = browser(guard, Access("vera", tenant=tenant)).get(f"/allowances{query}")
        return [(row["Allowance"], row["Spent"]) for row in rows_of(answer)]

    assert shown("acme") == [("refunds tenant acme, in cents", "10")]
    assert shown("other") == []
    assert shown("acme", "?allowance=mails") == []
    assert sorted(shown(None)) == [
        ("mails for all together", "1"),
        ("refunds tenant acme, customer ada, in cents", "20"),
        ("refunds tenant acme, in cents", "10"),
    ]


def test_without_an_account_it_says_how_to_declare_one(guard, viewer):
    text = viewer.get("/allowances").text

    assert "No allowance was asked for" in text
    assert 'Allowance("refunds", limit=500_000' in text


def customers(guard, count, **contract):
    @guard.tool(
        kind="write", allowance=Allowance("mails", limit=5, for_each="customer"), **contract
    )
    def mail(customer: str) -> None: ...

    for number in range(count):
        with guard.step("chat", number, tenant="acme" if number % 2 else "other"):
            mail(f"c{number}")


def followed(pages, path):
    """The rows of all pages, each where the one before says that it goes on."""
    found, query, cursors = [], "", []
    while True:
        answer = pages.get(f"{path}{query}")
        found.append(rows_of(answer))
        further = re.search(r'<a href="([^"]*)">More of them</a>', answer.text)
        if further is None:
            return found, cursors
        query = html.unescape(further[1])
        cursors.append(query)


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_list_goes_on_where_it_ended(guard, monkeypatch, tenant):
    monkeypatch.setattr(_allowances, "ROWS", 4)
    monkeypatch.setattr(_allowances, "LOOKED_AT", 5)
    customers(guard, 23)

    pages, cursors = followed(browser(guard, Access("vera", tenant=tenant)), "/allowances")

    names = [row["Allowance"] for page in pages for row in page]
    assert len(names) == len(set(names)) == (23 if tenant is None else 11)
    assert max(map(len, pages)) <= 4
    # where it goes on says nothing about the account that is there
    assert all(re.fullmatch(r"\?after=mails%20[0-9a-f]{1,3}", cursor) for cursor in cursors)


def test_a_page_goes_on_on_every_store(anywhere, monkeypatch):
    monkeypatch.setattr(_allowances, "ROWS", 2)
    customers(anywhere, 5)

    pages, _ = followed(browser(anywhere, Access("vera")), "/allowances")

    assert [len(page) for page in pages] == [2, 2, 1]


class Reads(MemoryStore):
    """Counts what it is asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def apply(self, op):
        self.asked.append(type(op).__name__)
        return super().apply(op)


def reads(guard, path):
    viewer = browser(guard, Access("vera"))
    guard.store.asked.clear()
    assert viewer.get(path).status_code == 200
    return sorted(guard.store.asked)


def test_a_page_reads_its_accounts_and_what_holds_their_amounts(monkeypatch):
    guard = Guard(Reads(), cache=0, reconcile=False)
    refunds = Allowance("refunds", limit=1000)

    @guard.tool(kind="write", allowance=refunds, retry=Retry(attempts=1))
    def refund(payment: str) -> None:
        raise TimeoutError

    for number in range(30):
        with guard.step("chat", number), contextlib.suppress(InDoubt):
            refund(f"pay_{number}")
    customers(guard, 40)

    whole = reads(guard, "/allowances")
    assert whole == ["Find"] * 30 + ["ListCells"] + ["ReadCell"] * 2
    monkeypatch.setattr(_allowances, "LOOKED_AT", 45)
    monkeypatch.setattr(_allowances, "ROWS", 45)
    assert reads(guard, "/allowances") == whole
    monkeypatch.setattr(_allowances, "LOOKED_AT", 20)
    assert reads(guard, "/allowances?allowance=refunds").count("Find") == 20


def test_what_was_not_looked_at_counts_as_reserved():
    guard = Guard(Reads(), cache=0, reconcile=False)

    @guard.tool(kind="write", allowance=Allowance("mails", limit=9), retry=Retry(attempts=1))
    def mail(to: str) -> None:
        raise TimeoutError

    for number in range(3):
        with guard.step("chat", number), contextlib.suppress(InDoubt):
            mail(str(number))

    (account,) = Allowances(guard.store).page(looked_at=2).accounts
    assert (account.in_doubt, account.reserved, account.left) == (2, 1, 6)


@pytest.mark.parametrize(
    ("amounts", "parts"),
    [
        ((0, 0, 0), ((0, 0), (0, 0), (0, 0))),
        ((500, 250, 250), ((0, 80), (80, 40), (120, 40))),
        ((1, 1, 1), ((0, 2), (2, 2), (4, 2))),
        ((1000, 0, 0), ((0, 160), (160, 0), (160, 0))),
        ((998, 1, 1), ((0, 156), (156, 2), (158, 2))),
    ],
)
def test_a_bar_shows_whatever_is_not_nothing(amounts, parts):
    bar = bar_of(state(*amounts))

    assert (bar.spent, bar.reserved, bar.in_doubt) == parts
    assert bar.limit == BAR


def test_a_bar_of_more_than_the_limit_shows_where_that_is():
    bar = bar_of(state(2000, 0, 0))

    assert (bar.spent, bar.limit) == ((0, 160), 80)


def state(spent, reserved, in_doubt):
    from effectonce.allowances import AllowanceState

    return AllowanceState(
        allowance="refunds", subject="", tenant=None, unit="", limit=1000, spent=spent,
        reserved=reserved, in_doubt=in_doubt, held_by=(), refused=0, refused_amount=0,
        refills_at=0.0,
    )  # fmt: skip
