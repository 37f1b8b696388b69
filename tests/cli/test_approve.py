"""`effectonce approve`: what waits for a person, and what they decide."""

import shlex
import time

import pytest
from tests.cli import till
from tests.cli.desk import Desk
from tests.cli.test_printed_commands import give, printed

from effectonce import Conflict, NotApproved
from effectonce.stores.sqlite import SqliteStore

APP = ("--app", "tests.cli.till:guard")
SIGNED = ("--reason", "the parcel came back", "--by", "ada", "--yes")


class TillDesk(Desk):
    """A desk at the till's store; what really happened is in its ledger."""

    def here(self):
        ledger = str(self.folder / "ledger")
        return {**super().here(), "TILL_STORE": self.url, "TILL_LEDGER": ledger}

    def done(self):
        file = self.folder / "ledger"
        return file.read_text().splitlines() if file.exists() else []

    def waiting(self, *options):
        return self.json("approve", "list", *options)["wishes"]


@pytest.fixture
def desk(tmp_path):
    return TillDesk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")


@pytest.fixture
def guard(desk):
    guard = till.made(desk.url, desk.folder / "ledger")
    yield guard
    guard.close()


@pytest.fixture
def wish(desk, guard):
    """One refund that was done, and one that waits; the reference of the latter."""
    till.ask(guard, "refund", step="1", payment="pay_1", amount=900, iban="DE1", note="late")
    till.ask(guard, "refund", step="2", payment="pay_2", amount=70000, iban="DE1", note="late")
    (found,) = desk.waiting()
    return found["reference"]


def test_what_waits_is_listed(desk, wish):
    (found,) = desk.waiting()

    assert (found["tool"], found["scope"], found["step"]) == ("refund", "chat-1", "2")
    assert (found["asked_by"], found["expired"]) == ("agent-7", False)
    assert found["arguments"]["amount"] == 70000
    assert "DE1" not in str(found)
    assert desk.waiting("--tool", "mail") == []
    assert desk.waiting("--tenant", "other") == []


def test_nothing_waits(desk, guard):
    guard.counts()

    assert desk.run("approve", "list").stderr == "Nothing waits for approval.\n"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits(desk, guard, width):
    for n in range(3):
        what = {"payment": f"pay_{n}", "amount": 70000, "note": "ж" * 200}
        till.ask(guard, "refund", step=str(n), asked_by="a very long name of an agent", **what)

    code, screen = desk.terminal("approve", "list", width=width)

    lines = screen.splitlines()
    assert code == 0
    assert all(len(line) <= width for line in lines if "effectonce " not in line)
    assert all("eff_" in line for line in lines[1:4])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_wish_fits(desk, wish, width):
    code, screen = desk.terminal("approve", "show", wish, width=width)

    assert code == 0
    assert all(len(line) <= width for line in screen.splitlines() if "effectonce " not in line)


def test_a_wish_says_what_it_asks_for_and_what_is_new(desk, wish):
    screen = desk.run("approve", "show", wish).stdout

    assert "agent-7" in screen
    assert "900 → 70000" in screen
    assert '"pay_1" → "pay_2"' in screen
    assert "DE1" not in screen
    changed = desk.json("approve", "show", wish)["differs"]["changed"]
    assert [each["name"] for each in changed] == ["payment", "amount"]


def test_a_wish_without_an_earlier_call_says_so(desk, guard):
    till.ask(guard, "mail", to="ada", text="hello")

    (found,) = desk.waiting()
    screen = desk.run("approve", "show", found["reference"]).stdout
    assert "no completed call of this tool in this scope" in screen


def test_a_call_that_was_approved_is_sent_once_by_the_next_call(desk, guard, wish):
    done = desk.run("approve", "yes", wish, *SIGNED, "--for", "2h")

    assert (done.returncode, desk.done()) == (0, ["pay_1"])
    assert "Written down: let it be sent, says ada." in done.stderr
    assert desk.waiting() == []
    for _ in range(2):
        till.ask(guard, "refund", step="2", payment="pay_2", amount=70000, iban="DE1", note="late")
    assert desk.done() == ["pay_1", "pay_2"]


def test_how_long_it_is_good_can_be_given(desk, wish):
    shown = desk.json("approve", "yes", wish, *SIGNED, "--for", "2h")

    assert shown["approval"]["state"] == "approved"
    assert "if it comes within 1 h" in shown["verdict"] or "within 2 h" in shown["verdict"]
    assert desk.run("approve", "yes", wish, *SIGNED, "--for", "soon").returncode == 2


def test_a_store_alone_does_not_know_how_long_a_tool_lets_approvals_be_good(desk, wish):
    unknown = "is not known here, so an approval is good for a day"

    assert unknown in desk.run("approve", "yes", wish, *SIGNED, "--dry-run").stderr
    for known in (APP, ("--for", "2h")):
        assert unknown not in desk.run("approve", "yes", wish, *SIGNED, "--dry-run", *known).stderr


def test_a_call_that_was_rejected_is_never_sent(desk, guard, wish):
    done = desk.run("approve", "no", wish, "--reason", "not before Friday", "--by", "ada", "--yes")

    assert done.returncode == 0
    with pytest.raises(NotApproved, match=r"rejected by ada .*: not before Friday"):
        till.ask(guard, "refund", step="2", payment="pay_2", amount=70000, iban="DE1", note="late")
    assert desk.done() == ["pay_1"]
    assert "rejected by ada" in desk.run("effect", "show", wish).stdout


def test_an_approval_that_was_not_used_is_taken_back(desk, wish):
    desk.run("approve", "yes", wish, *SIGNED)

    assert desk.run("approve", "no", wish, *SIGNED).returncode == 0
    assert desk.json("effect", "show", wish)["approval"]["state"] == "rejected"


def test_who_asked_does_not_approve(desk, wish):
    done = desk.run("approve", "yes", wish, "--reason", "x", "--by", "agent-7", "--yes")

    assert done.returncode == 4
    assert "agent-7 asked for it, and another person has to approve it" in done.stderr
    assert len(desk.waiting()) == 1


@pytest.mark.parametrize("act", ["yes", "no", "show"])
def test_what_does_not_wait_is_not_decided(desk, guard, wish, act):
    done = desk.json("effect", "list", "--state", "completed")["effects"][0]["reference"]

    said = desk.run("approve", act, done, *(() if act == "show" else SIGNED))
    assert said.returncode == 6
    assert "does not wait for approval. It happened." in said.stderr


def test_what_is_approved_is_not_approved_by_another_one(desk, wish):
    desk.run("approve", "yes", wish, *SIGNED)

    done = desk.run("approve", "yes", wish, "--reason", "too", "--by", "grace", "--yes")
    assert done.returncode == 6
    assert "ada approved it, and no call has used that yet" in done.stderr


def test_arguments_that_changed_while_a_person_thought_are_not_approved(desk, guard):
    till.ask(guard, "mail", to="ada", text="hello")
    (found,) = desk.waiting()

    def change():
        with pytest.raises(Conflict):
            till.ask(guard, "mail", to="ada", text="another text")

    signed = ("--reason", "fine", "--by", "ada")
    code, screen = desk.terminal(
        "approve", "yes", found["reference"], *signed, dialogue=[("?", "y")], between=change
    )

    assert code == 6
    assert "its arguments are others by now" in " ".join(screen.split())
    seen = ("--fingerprint", found["fingerprint"])
    assert desk.run("approve", "yes", found["reference"], *SIGNED, *seen).returncode in (4, 6)
    assert len(desk.waiting()) == 1


def test_without_a_reason_nothing_is_decided(desk, wish):
    assert desk.run("approve", "yes", wish, "--by", "ada", "--yes").returncode == 2
    assert desk.run("approve", "no", wish, "--reason", "x", "--by", "ada").returncode == 2
    dry = desk.run("approve", "yes", wish, *SIGNED, "--dry-run")
    assert "Nothing was changed" in dry.stderr
    assert len(desk.waiting()) == 1


def test_commands_that_are_printed_run_as_they_are_printed(desk, wish):
    screens = [
        desk.run(*command).stdout + desk.run(*command).stderr
        for command in (
            ("approve", "list"),
            ("approve", "show", wish),
            ("effect", "show", wish),
            ("status",),
        )
    ]

    commands = {command for screen in screens for command in printed(screen)}
    assert {"list", "show", "yes", "no"} <= {
        shlex.split(each)[2] for each in commands if " approve " in each
    }
    for each in commands:
        done = give(desk, each)
        assert done.returncode == 0, (each, done.stderr)


def test_the_status_says_what_waits(desk, wish):
    done = desk.run("status", "--check")

    assert done.returncode == 3
    assert "1 waits for approval: `effectonce approve list`" in done.stdout
    assert "given up" not in done.stdout
    assert desk.json("status")["waiting_approval"] == 1


def test_lists_say_that_it_needs_approval(desk, wish):
    assert "needs approval" in desk.terminal("effect", "list")[1]
    assert "needs approval" in desk.terminal("tail", "--once")[1]
    assert desk.run("dlq", "list").stdout == ""


def test_an_approval_that_ended_says_so(tmp_path):
    desk = TillDesk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    then = time.time() - 3 * 3600
    store = SqliteStore(tmp_path / "effects.db", clock=lambda: then)
    guard = till.made(store, tmp_path / "ledger")
    till.ask(guard, "refund", payment="pay_1", amount=70000)
    (wish,) = guard.approvals.waiting()
    guard.approvals.approve(wish.key, by="ada", reason="yes", valid_s=3600)
    guard.close()

    (found,) = desk.waiting()
    assert found["expired"]
    shown = desk.run("effect", "show", found["reference"]).stdout
    assert "ada approved it, and that ended" in " ".join(shown.split())
    assert "that ended unused" in desk.run("approve", "show", found["reference"]).stdout


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("asked", "needed", "why"),
    [
        (("refund", "--arg", "amount=70000"), True, "its rule says yes to amount=70000"),
        (("refund", "--arg", "amount=7"), False, "its rule says no to amount=7"),
        (("mail",), True, "every call of this tool needs one"),
        (("free", "--arg", "note=17"), False, "the tool declares no approval"),
        (("pay", "--arg", "total=12.50"), True, "its rule says yes to total=Decimal('12.50')"),
    ],
)
def test_a_rule_can_be_asked(desk, asked, needed, why):
    judged = desk.json("approve", "policy", "check", *asked, *APP)

    assert (judged["needs_approval"], judged["why"]) == (needed, why)
    code = desk.run("approve", "policy", "check", *asked, "--check", *APP).returncode
    assert code == (3 if needed else 0)
    assert desk.done() == []


def test_what_is_never_allowed_is_said(desk):
    asked = ("approve", "policy", "check", "refund", "--arg", "amount=99000000", *APP)

    judged = desk.json(*asked)
    assert (judged["allowed"], judged["needs_approval"]) == (False, False)
    assert "refund is never allowed" in desk.run(*asked).stdout
    assert desk.run(*asked, "--check").returncode == 3


def test_a_rule_is_shown_with_where_it_is(desk):
    said = desk.run("approve", "policy", "check", "refund", "--arg", "amount=70000", *APP).stdout

    assert "refund needs an approval" in said
    assert "till.py:" in said
    assert "by another person than who asks" in said


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("refund",), "give --arg amount=VALUE"),
        (("refund", "--arg", "price=1"), "refund has no parameter 'price'"),
        (("refund", "--arg", "amount"), "give --arg NAME=VALUE"),
        (("refund", "--arg", "amount=lots"), "--arg amount=lots"),
    ],
)
def test_a_rule_that_cannot_be_asked_says_why(desk, asked, why):
    done = desk.run("approve", "policy", "check", *asked, *APP)

    assert done.returncode == 2
    assert why in done.stderr
