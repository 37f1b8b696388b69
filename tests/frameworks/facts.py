"""What has to hold in every framework, told once. A framework's `desk.py` says how an agent of
it is run with a scripted model:

    desk = Desk(guard, folder)                      the sessions of its agents are kept in *folder*
    desk.tool(function)                             *function* as a tool of the framework
    desk.run(tool, *lines, ...) -> Ran              run an agent; a line is what the model asks for, DONE, or an error that it raises
    desk.schemas(tool, protected=True)              what the model sees of the tool

A conversation goes on if it is run again in the same scope, unless it is forgotten: `run(...,
forget=True)` is a run whose history was lost.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any, NamedTuple

import pytest

from effectonce import InDoubt
from effectonce.testing.bank import Bank, read_ledger

ROOT = Path(__file__).resolve().parent.parent.parent
CONTRACTS = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}
DONE = "done"


class Ask(NamedTuple):
    """A call of the tool `refund`."""

    call_id: str
    arguments: dict


@dataclass
class Ran:
    """What the model got in this run, in the order of its calls: the id of the call, and a text
    or data.
    """

    told: list[tuple[str, Any]]

    @property
    def said(self):
        return [said for _, said in self.told]

    @property
    def codes(self):
        return [said["code"] for said in self.said]


def one(call_id, payment_id="pay_7", **arguments):
    return [Ask(call_id, {"payment_id": payment_id, "reason": "late"} | arguments)]


def readable(text):
    """Data, if it is that."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def refund_of(bank, *faults):
    faults = list(faults)

    async def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor, fault=faults.pop(0) if faults else None)[
            "receipt"
        ]

    return refund


def a_lost_answer_is_told_as_a_doubt_and_nothing_is_sent_again(desk, guard, bank):
    ran = desk.run(desk.tool(refund_of(bank, "lose-answer")), one("a"), one("b"), DONE)

    assert ran.codes == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1
    assert guard.in_doubt()[0].request.key not in str(ran.told)


def what_a_person_settled_is_told_to_the_model(desk, guard, bank):
    tool = desk.tool(refund_of(bank, "lose-answer", "lose-answer"))
    desk.run(tool, one("a"), DONE)
    desk.run(tool, one("b", "pay_8"), DONE)
    for result, doubt in zip(({"receipt": "rcpt_1"}, "rcpt_2"), guard.in_doubt(), strict=True):
        guard.confirm(doubt.request.key, result=result, by="ada", reason="seen in the ledger")

    ran = desk.run(tool, one("c"), one("d", "pay_8"), DONE, forget=True)

    assert ran.told == [("c", {"receipt": "rcpt_1"}), ("d", "rcpt_2")]
    assert len(bank.ledger()) == 2


def a_model_that_decides_again_gets_the_first_result_under_its_new_id(desk, guard, bank):
    with pytest.raises(RuntimeError):
        desk.run(desk.tool(refund_of(bank)), one("a"), RuntimeError("crashed before the next turn"))

    again = one("b", reason="the parcel was late", amount_minor=100)
    ran = desk.run(desk.tool(refund_of(bank)), again, DONE, forget=True)

    assert ran.told == [("b", "rcpt_1")]
    assert len(bank.ledger()) == 1


def a_model_that_saw_the_result_and_asks_again_means_it(desk, guard, bank):
    assert desk.run(desk.tool(refund_of(bank)), one("a"), one("b"), DONE).said == [
        "rcpt_1",
        "rcpt_2",
    ]
    assert desk.run(desk.tool(refund_of(bank)), one("c"), DONE).told == [("c", "rcpt_3")]


def an_id_that_comes_again_is_no_sign(desk, guard, bank):
    assert desk.run(desk.tool(refund_of(bank)), one("a"), one("a"), DONE).said == [
        "rcpt_1",
        "rcpt_2",
    ]


def equal_calls_of_one_message_are_one_and_others_run_beside_them(desk, guard, bank):
    ran = desk.run(desk.tool(refund_of(bank)), [*one("a"), *one("b", "pay_8"), *one("c")], DONE)

    said = dict(ran.told)
    assert said["a"] == said["c"] != said["b"]
    assert len(bank.ledger()) == 2


def another_conversation_is_another_effect(desk, guard, bank):
    for scope in ("chat-42", "chat-43"):
        desk.run(desk.tool(refund_of(bank)), one("a"), DONE, scope=scope)

    assert len(bank.ledger()) == 2


def the_model_sees_the_schema_that_it_saw_before(desk, guard, bank):
    tool = desk.tool(refund_of(bank))

    assert desk.schemas(tool, protected=True) == desk.schemas(tool, protected=False)
    assert len(desk.schemas(tool, protected=True)) == 1


def arguments_that_do_not_fit_leave_nothing_in_doubt(desk, guard, bank):
    ran = desk.run(desk.tool(refund_of(bank)), [Ask("a", {"reason": "late"})], one("b"), DONE)

    assert ran.told[1] == ("b", "rcpt_1")
    assert guard.in_doubt() == ()


def a_tool_that_is_guarded_already_keeps_its_contract(desk, guard, bank):
    @guard.tool(kind="write", volatile=["reason"])
    async def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    for name, reason in (("a", "late"), ("b", "the parcel was late")):
        ran = desk.run(
            desk.tool(refund), one(name, reason=reason), DONE, contracts=None, forget=True
        )
        assert ran.told == [(name, "rcpt_1")]

    assert len(bank.ledger()) == 1


def a_guarded_tool_of_the_other_colour_keeps_its_contract_and_tells_its_doubt(desk, guard, bank):
    @guard.tool(kind="write", volatile=["reason"])
    def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor, fault="lose-answer")["receipt"]

    ran = desk.run(
        desk.tool(refund), one("a"), one("b", reason="the parcel was late"), DONE, contracts=None
    )

    assert ran.codes == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def without_a_conversation_nothing_is_sent(desk, guard, bank):
    ran = desk.run(desk.tool(refund_of(bank)), one("a"), DONE, scope=None)

    assert ran.codes == ["CONTRACT_VIOLATION"]
    assert bank.ledger() == []


def a_read_is_run_by_the_framework_as_it_likes(desk, guard, bank):
    contracts = {"refund": {"kind": "read"}}

    ran = [
        desk.run(desk.tool(refund_of(bank)), one("a"), DONE, contracts=contracts, forget=True).said
        for _ in range(2)
    ]

    assert ran == [["rcpt_1"], ["rcpt_2"]]
    assert guard.in_doubt() == ()


FACTS = [
    a_lost_answer_is_told_as_a_doubt_and_nothing_is_sent_again,
    what_a_person_settled_is_told_to_the_model,
    a_model_that_decides_again_gets_the_first_result_under_its_new_id,
    a_model_that_saw_the_result_and_asks_again_means_it,
    an_id_that_comes_again_is_no_sign,
    equal_calls_of_one_message_are_one_and_others_run_beside_them,
    another_conversation_is_another_effect,
    the_model_sees_the_schema_that_it_saw_before,
    arguments_that_do_not_fit_leave_nothing_in_doubt,
    a_tool_that_is_guarded_already_keeps_its_contract,
    a_guarded_tool_of_the_other_colour_keeps_its_contract_and_tells_its_doubt,
    without_a_conversation_nothing_is_sent,
    a_read_is_run_by_the_framework_as_it_likes,
]


def facts(*, without=()):
    """A test of each of them, without those that the framework has no words for."""
    return pytest.mark.parametrize(
        "fact",
        [fact for fact in FACTS if fact.__name__ not in without],
        ids=lambda fact: fact.__name__,
    )


def killed_after_the_effect_and_resumed_there_is_one(name, folder):
    """Two real processes, the first of which is killed when the bank has said yes. The second
    asks with another id.
    """
    with Bank(folder / "ledger", honours_keys=True) as bank:

        def run(call_id, end):
            command = [
                sys.executable,
                "-m",
                "tests.frameworks.killed",
                name,
                str(bank.port),
                str(folder),
                call_id,
                end,
            ]
            return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

        killed = run("call-1", "die")
        assert killed.returncode == -SIGKILL, killed.stderr
        resumed = run("call-2", "live")

    assert resumed.stdout.splitlines()[-1:] == ["[('call-2', 'rcpt_1')]"], resumed.stderr
    assert len(read_ledger(folder / "ledger")) == 1


# ---------------------------------------------------------------- tools of an MCP server


def server(bank, ends):
    """How the server is started whose tool refunds, and *ends* as it is told to: see
    `server.py`.
    """
    return {
        "command": sys.executable,
        "args": [str(ROOT / "tests/frameworks/server.py"), str(bank.port), ends],
    }


def a_tool_of_a_server_lands_once(desk, tool_of, bank):
    """*tool_of* makes the framework's client of a server that is started so."""
    first = desk.run(tool_of(server(bank, "answers")), one("a"), DONE)
    again = desk.run(tool_of(server(bank, "answers")), one("b"), DONE, forget=True)

    assert "rcpt_1" in str(first.said)
    assert again.said == first.said
    assert len(bank.ledger()) == 1


def a_lost_answer_of_a_server_is_a_doubt(desk, tool_of, bank, ends):
    first = desk.run(tool_of(server(bank, ends)), one("a"), one("b"), DONE)
    again = desk.run(tool_of(server(bank, ends)), one("c"), DONE, forget=True)

    assert [*first.codes, *again.codes] == [InDoubt.code] * 3
    assert len(bank.ledger()) == 1


LOSES = pytest.mark.parametrize("ends", ["fails", "breaks", "dies"])
