"""The demo as people see it: a timeline while it happens, the bank's ledger, and a verdict.
Everything shown was measured.
"""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from effectonce.cli._demo_acts import DemoAct, DemoActs, money
from effectonce.cli._demo_agent import AMOUNT_MINOR, LEASE_S, TIMEOUT_S
from effectonce.cli._demo_stage import StageEvent

GOOD, BAD, UNSURE, QUIET = "green", "red", "yellow", "dim"
SNIPPET = """\
from effectonce import Guard, current_effect

guard = Guard("sqlite:///effects.db")

@guard.tool(kind="irreversible", downstream="key")
def refund(payment_id: str, amount_minor: int) -> dict:
    key = current_effect().downstream_key
    return bank.refund(payment_id, amount_minor, idempotency_key=key)

with guard.step("chat-42", "refund"):
    refund("pay_7", 1_400_000)   # runs
    refund("pay_7", 1_400_000)   # replayed: no second refund
"""
LINES = {
    "sends": ("→ pays", "bold", "{amount}, {which} {short}"),
    "timed_out": ("? no answer", UNSURE, f"after {TIMEOUT_S:.1f} s; it may have been paid"),
    "answer_lost": ("? no answer", UNSURE, "the connection broke; it may have been paid"),
    "bank_said_yes": ("✓ bank: yes", GOOD, "{receipt}"),
    "killed": ("✗ killed", BAD, "SIGKILL, before it could note that down"),
    "started": ("+ started", "bold", "{why}"),
    "restarted": ("↻ restarted", "bold", "{why}"),
    "asks": ("→ asks", "bold", "{why}"),
    "state dispatched": (
        "• dispatched",
        UNSURE,
        f"the record: sent, no outcome; claimed for {LEASE_S:.1f} s",
    ),
    "state in_doubt": ("• in_doubt", UNSURE, "the record: sent once, outcome unknown"),
    "settled": ("✓ settled", GOOD, "it happened: {state}, by {by}"),
    "in_doubt": ("! in doubt", UNSURE, "nobody can know; it is not sent again"),
    "refused": ("! refused", UNSURE, "InDoubt: nothing was sent"),
    "coalesced": ("= coalesced", GOOD, "waited for the other's result: {receipt}"),
    "replayed": ("= replayed", GOOD, "the recorded result: {receipt}"),
    "recorded": ("✓ recorded", GOOD, "{receipt} is the result from now on"),
}  # what an event is shown as; others are not


class Story:
    """Shows one demo, act by act."""

    def __init__(self, console: Console) -> None:
        self._print = console.print
        self._console = console
        self._keys: set[str] = set()

    def tell(self, acts: DemoActs, seed: int) -> list[DemoAct]:
        self._print()
        self._print(
            Text("effectonce demo", style="bold"),
            Text(f"seed {seed} · offline · SQLite in a temporary folder", QUIET),
        )
        self._print(
            f"\nAn agent is to refund pay_7: {money(AMOUNT_MINOR)}, once. The bank is a process"
            " of its own; a payment is a line in its ledger, on the disk before it answers. Agents"
            " are processes too, and they are really killed.\n"
        )
        self._begin(
            "Act 1: without effectonce",
            "The agent tries again after a time-out, and every attempt makes a fresh key.",
        )
        without = self._end(acts.without())
        self._begin(
            "Act 2: the same faults, with effectonce",
            'The tool has one decorator: kind="irreversible", downstream="key".',
        )
        protected = self._end(acts.protected())
        self._begin(
            "Act 3: a bank that ignores keys and loses its answer",
            'All it offers is an enquiry desk, closed for now: downstream="probe".',
        )
        doubt = self._end(acts.doubt())
        self._close(
            {
                "without effectonce": without,
                "with effectonce": protected,
                "with, and a bank that ignores keys": doubt,
            }
        )
        return [without, protected, doubt]

    def _begin(self, title: str, subtitle: str) -> None:
        self._keys.clear()
        self._console.rule(Text(title, style="bold"), align="left", style=QUIET)
        self._print(Text(subtitle, style=QUIET), end="\n\n")

    def show(self, event: StageEvent) -> None:
        if event.what not in LINES:
            return
        word, style, text = LINES[event.what]
        details = event.details
        if event.what == "sends":
            key = details["key"]
            which = "the same key" if key in self._keys else "a fresh key" if self._keys else "key"
            self._keys.add(key)
            details = {"amount": money(AMOUNT_MINOR), "which": which, "short": _short(key)}
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=8, justify="right", style=QUIET, no_wrap=True)
        row.add_column(width=7, no_wrap=True)
        row.add_column(width=12, no_wrap=True)
        row.add_column()
        row.add_row(
            f"{event.at_s:.2f} s", event.who, Text(word, style), Text(text.format(**details))
        )
        self._print(row)

    def _end(self, act: DemoAct) -> DemoAct:
        self._print(f"\n  The bank's ledger, {len(act.ledger)} line{'s' * (len(act.ledger) != 1)}:")
        for entry in act.ledger:
            paid = f"{entry['payment_id']}   {money(entry['amount_minor'])}"
            self._print(Text(f"    {entry['receipt']}   {paid}   key {_short(entry['key'])}"))
        good = len(act.ledger) == 1 and not act.broken
        word, style = ("✓ RIGHT", GOOD) if good else ("✗ WRONG", BAD)
        self._print()
        self._print(
            Text(f"  {word}", style=f"bold {style}"),
            Text(f" {act.verdict}", style="bold"),
            end="\n\n\n",
        )
        return act

    def _close(self, acts: dict[str, DemoAct]) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("What it came to")
        for heading in ("calls", "requests", "refunds in the ledger"):
            table.add_column(heading, justify="right")
        for name, act in acts.items():
            style = GOOD if len(act.ledger) == 1 else BAD
            refunds = Text(str(len(act.ledger)), style=f"bold {style}")
            table.add_row(name, str(act.counts["calls"]), str(act.counts["attempts"]), refunds)
        self._print(table)
        self._print("Your own tool takes one decorator and one step:\n")
        for line in SNIPPET.splitlines():
            self._print(Text(f"    {line}"))
        self._print(
            "\nNext: guard a tool of your own. `effectonce --help` shows what else there is.\n"
        )


def _short(key: str) -> str:
    return f"{key[:9]}…"
