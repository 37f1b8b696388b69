"""The demo as people see it: a timeline while it happens, the bank's ledger, and a verdict.
Everything shown was measured.
"""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from effectonce.cli._demo_acts import (
    AMOUNT_MINOR,
    LEASE_S,
    PAYMENT,
    DemoDoubt,
    ProtectedAgent,
    Theatre,
    Unprotected,
)
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


def money(amount_minor: int) -> str:
    return f"₹{amount_minor // 100:,}.{amount_minor % 100:02d}"


class Story:
    """Tells one demo, act by act. The theatre calls `show` while an act is played."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._keys: set[str] = set()
        self._senders: set[str] = set()

    # ------------------------------------------------------------ around the acts

    def opening(self, seed: int) -> None:
        self._console.print()
        self._console.print(
            Text("effectonce demo", style="bold"),
            Text(f"seed {seed} · offline · SQLite in a temporary folder", QUIET),
        )
        self._console.print(
            f"\nAn agent is to refund {PAYMENT}: {money(AMOUNT_MINOR)}, once. The bank is a process"
            " of its own; a payment is a line in its ledger, on the disk before it answers. Agents"
            " are processes too, and they are really killed.\n"
        )

    def without(self, theatre: Theatre) -> Unprotected:
        self._curtain(
            "Act 1: without effectonce",
            "The agent tries again after a time-out, and every attempt makes a fresh key.",
        )
        act = theatre.without()
        too_much = money(AMOUNT_MINOR * (len(act.ledger) - 1))
        self._end(
            act.ledger,
            f"{_refunds(act)} instead of 1: {too_much} too much.",
            good=len(act.ledger) == 1,
        )
        return act

    def protected(self, theatre: Theatre) -> ProtectedAgent:
        self._curtain(
            "Act 2: the same faults, with effectonce",
            'The tool has one decorator: kind="irreversible", downstream="key".',
        )
        act = theatre.protected()
        verdict = (
            f"{_refunds(act)} for {act.calls} calls: {act.coalesced} coalesced, {act.replayed}"
            " replayed."
        )
        self._end(act.ledger, verdict, good=not list(act.broken_promises()))
        return act

    def doubt(self, theatre: Theatre) -> DemoDoubt:
        self._curtain(
            "Act 3: a bank that ignores keys and loses its answer",
            'All it offers is an enquiry desk, closed for now: downstream="probe".',
        )
        act = theatre.doubt()
        verdict = (
            f"{_refunds(act)} for {act.calls} calls: {act.refused} refused in doubt, {act.replayed}"
            " replayed once settled."
        )
        self._end(act.ledger, verdict, good=not list(act.broken_promises()))
        return act

    def _curtain(self, title: str, subtitle: str) -> None:
        self._keys, self._senders = set(), set()
        self._console.rule(Text(title, style="bold"), align="left", style=QUIET)
        self._console.print(Text(subtitle, style=QUIET), end="\n\n")

    def _end(self, entries: list[dict[str, Any]], verdict: str, *, good: bool) -> None:
        lines = "1 line" if len(entries) == 1 else f"{len(entries)} lines"
        self._console.print(f"\n  The bank's ledger, {lines}:")
        for entry in entries:
            line = (
                f"    {entry['receipt']}   {entry['payment_id']}   {money(entry['amount_minor'])}  "
                f" key {_short(entry['key'])}"
            )
            self._console.print(Text(line))
        symbol, word, style = ("✓", "RIGHT", GOOD) if good else ("✗", "WRONG", BAD)
        self._console.print()
        self._console.print(
            Text(f"  {symbol} {word}", style=f"bold {style}"),
            Text(f" {verdict}", style="bold"),
            end="\n\n\n",
        )

    # ------------------------------------------------------------ the timeline

    def show(self, event: StageEvent) -> None:
        shown = self._tell(event)
        if shown is None:
            return
        symbol, word, style, text = shown
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=8, justify="right", style=QUIET, no_wrap=True)
        row.add_column(width=7, no_wrap=True)
        row.add_column(width=12, no_wrap=True)
        row.add_column()
        row.add_row(
            f"{event.at_s:.2f} s", event.who, Text(f"{symbol} {word}", style=style), Text(text)
        )
        self._console.print(row)

    def _tell(self, event: StageEvent) -> tuple[str, str, str, str] | None:
        """A symbol, a word, how to paint them, and the rest of the line. None: not worth a line."""
        details = event.details
        match event.what:
            case "sends":
                return "→", "pays", "bold", self._key_of(event)
            case "timed_out":
                return (
                    "?",
                    "no answer",
                    UNSURE,
                    f"after {details['after_s']:.1f} s; it may have been paid",
                )
            case "answer_lost":
                return "?", "no answer", UNSURE, "the connection broke; it may have been paid"
            case "bank_said_yes":
                return "✓", "bank: yes", GOOD, str(details["receipt"])
            case "ended" if details["killed"]:
                return "✗", "killed", BAD, "SIGKILL, before it could note that down"
            case "started" | "restarted" | "asks":
                return _BEGINNINGS[event.what], event.what, "bold", details["why"]
            case "state":
                return "•", details["state"], UNSURE, _STATES.get(details["state"], "")
            case "settled":
                return "✓", "settled", GOOD, f"it happened: {details['state']}, by {details['by']}"
            case "outcome" if "replayed" in details:
                return self._outcome(event)
        return None

    def _key_of(self, event: StageEvent) -> str:
        key = event.details["key"]
        which = "the same key" if key in self._keys else "a fresh key" if self._keys else "key"
        self._keys.add(key)
        self._senders.add(event.who)
        return f"{money(AMOUNT_MINOR)}, {which} {_short(key)}"

    def _outcome(self, event: StageEvent) -> tuple[str, str, str, str]:
        details = event.details
        match details:
            case {"status": "in_doubt"} if event.who in self._senders:
                return "!", "in doubt", UNSURE, "nobody can know; it is not sent again"
            case {"status": "in_doubt"}:
                return "!", "refused", UNSURE, "InDoubt: nothing was sent"
            case {"coalesced": True}:
                return (
                    "=",
                    "coalesced",
                    GOOD,
                    f"waited for the other's result: {details['receipt']}",
                )
            case {"replayed": True}:
                return "=", "replayed", GOOD, f"the recorded result: {details['receipt']}"
            case _:
                return "✓", "recorded", GOOD, f"{details['receipt']} is the result from now on"

    # ------------------------------------------------------------ the end

    def closing(self, *acts: Unprotected | ProtectedAgent | DemoDoubt) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("What it came to")
        for heading in ("calls", "requests", "refunds in the ledger"):
            table.add_column(heading, justify="right")
        for name, act in zip(_ROWS, acts, strict=True):
            refunds = Text(
                str(len(act.ledger)), style=f"bold {GOOD if len(act.ledger) == 1 else BAD}"
            )
            table.add_row(name, str(act.calls), str(act.attempts), refunds)
        self._console.print(table)
        self._console.print("Your own tool takes one decorator and one step:\n")
        for line in SNIPPET.splitlines():
            self._console.print(Text(f"    {line}"))
        self._console.print(
            "\nNext: guard a tool of your own. `effectonce --help` shows what else there is.\n"
        )


_ROWS = ("without effectonce", "with effectonce", "with, and a bank that ignores keys")
_BEGINNINGS = {"started": "+", "restarted": "↻", "asks": "→"}
_STATES = {
    "dispatched": f"the record: sent, no outcome; claimed for {LEASE_S:.1f} s",
    "in_doubt": "the record: sent once, outcome unknown",
}


def _refunds(act: Unprotected | ProtectedAgent | DemoDoubt) -> str:
    return "1 refund" if len(act.ledger) == 1 else f"{len(act.ledger)} refunds"


def _short(key: str | None) -> str:
    return "-" if key is None else f"{key[:9]}…"
