"""`effectonce allowance`: what a person sees of spending limits."""

import pytest
from rich.cells import cell_len
from tests.cli.desk import Desk

from effectonce import Allowance, Guard, InDoubt, LimitReached, Retry


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = Guard(desk.url)
    refunds = Allowance("refunds", limit=500_000, unit="cents", per=10 * 365 * 86_400)
    mails = Allowance("mails", limit=3, for_each="customer", per=10 * 365 * 86_400)

    @guard.tool(kind="write", allowance=refunds, spends="amount", retry=Retry(attempts=1))
    def refund(payment: str, amount: int) -> None:
        if payment == "lost":
            raise TimeoutError

    @guard.tool(kind="write", allowance=mails)
    def mail(customer: str) -> None: ...

    with guard.step("chat", 1):
        refund("pay_1", 123_456)
    with guard.step("chat", 2), pytest.raises(InDoubt):
        refund("lost", 20_000)
    with guard.step("chat", 3):
        mail("ada")
    for _ in range(2):
        with guard.step("chat", 4), pytest.raises(LimitReached):
            refund("pay_2", 400_000)
    guard.close()
    return desk


def test_accounts_are_listed_with_what_is_left(desk):
    mails, refunds = desk.json("allowance", "list")["allowances"]

    assert (mails["allowance"], mails["subject"]) == ("mails", "tenant main, customer ada")
    figures = [refunds[name] for name in ("spent", "reserved", "in_doubt", "left", "limit")]
    assert figures == [123_456, 0, 20_000, 356_544, 500_000]
    assert refunds["unit"] == "cents"
    assert (refunds["refused"], refunds["refused_amount"]) == (2, 800_000)
    assert (mails["refused"], mails["refused_amount"]) == (0, 0)
    assert refunds["refills_at"] > "2030"


def test_those_of_one_allowance(desk):
    (found,) = desk.json("allowance", "list", "mails")["allowances"]

    assert found["left"] == 2
    assert desk.json("allowance", "list", "mail")["allowances"] == []


def test_those_of_one_tenant(desk):
    assert len(desk.json("allowance", "list", "--tenant", "main")["allowances"]) == 2
    assert desk.json("allowance", "list", "--tenant", "other")["allowances"] == []


def test_what_holds_an_amount_is_named(desk):
    _, refunds = desk.json("allowance", "list")["allowances"]

    (held,) = refunds["held_by"]
    assert (held["tool"], held["amount"], held["in_doubt"]) == ("refund", 20_000, True)
    assert desk.json("effect", "show", held["reference"])["state"] == "in_doubt"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_screen_fits_and_keeps_its_figures(desk, width):
    code, screen = desk.terminal("allowance", "list", width=width)

    assert code == 0
    assert max(cell_len(line) for line in screen.splitlines()) <= width
    for figure in ("123,456", "20,000", "356,544", "REFUSED"):
        assert figure in screen


def test_nothing_was_spent(desk):
    done = desk.run("allowance", "list", "payouts")

    assert done.returncode == 0
    assert "No allowance 'payouts' was asked for in this store." in done.stderr


def test_few_of_many(desk):
    _, screen = desk.terminal("allowance", "list", "--limit", "1", width=100)

    assert "There are more: give a higher --limit." in screen
