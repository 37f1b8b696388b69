"""History in, verdict out. No subject's code is in it, and it asks no subject anything.

A history is what the world counted and what each caller was told, in the order it happened. The
rules, worst first:

D  the world counted more effects than were wanted.
F  a caller was told something false: done, and it never happened; another wish's result; "it has
   not happened" of what did.
L  it never happened, and no caller was told so, or told to look.
W  a person is needed, although the truth was to be had: the service honours keys, can be asked,
   or no byte ever left. One that was truly told "it has not happened", for good, is such a person.
ok everything else. A person may still be needed, where nothing could know.
N  what the subject says that it does not do. It is never counted as a pass.
U  not the same each time: neither a pass nor a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["ok", "D", "F", "L", "W", "N", "U"]
WORST: tuple[Verdict, ...] = ("D", "F", "L", "W", "ok")
HAPPENED = frozenset({"done", "happened"})
UNSENT = frozenset({"waiting", "conflict", "failed"})  # said of what no person has approved


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one call of one wish was told."""

    wish: str
    says: str
    result: Any = None
    error: str = ""
    at: float = 0.0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the world counted."""

    path: str
    order: str
    amount: Any
    receipt: str
    asked_at: float = 0.0  # when its request came, by the clock of the reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is right for one wish."""

    wish: str
    order: str
    path: str = "/pay"
    effects: int = 1
    amount: Any = None  # only effects of this amount are meant; None: all
    ends: frozenset[str] = HAPPENED  # what its caller should be told in the end
    knowable: bool = True  # whether the truth is to be had without a person
    result: Any = None  # {"value": ...}: exactly this; otherwise a receipt of the world
    faults: int = 1  # how many faults hit it


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: Verdict
    why: str
    persons: int = 0
    faults: int = 0
    effects: int = 0
    wishes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    reports: list[Report] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    events: list[str] = field(default_factory=list)  # for people: kills, faults, restarts


def judge(history: History, expected: Sequence[Expected]) -> Judgement:
    judged = [_wish(history, each) for each in expected]
    if not judged:
        return Judgement(verdict="L", why="nothing was judged: that is no pass")
    worst = min(judged, key=lambda j: WORST.index(j.verdict))
    return Judgement(
        verdict=worst.verdict,
        why=worst.why,
        persons=sum(j.persons for j in judged),
        faults=sum(j.faults for j in judged),
        effects=sum(j.effects for j in judged),
        wishes=len(judged),
    )


def _wish(history: History, expected: Expected) -> Judgement:
    counted = [
        c
        for c in history.counted
        if (c.order, c.path) == (expected.order, expected.path)
        and expected.amount in (None, c.amount)
    ]
    reports = [r for r in history.reports if r.wish == expected.wish]
    last = reports[-1].says if reports else "nothing"
    person = last not in expected.ends
    verdict, why = _verdict(expected, counted, reports, last)
    return Judgement(
        verdict=verdict,
        why=why,
        persons=int(person),
        faults=expected.faults,
        effects=len(counted),
        wishes=1,
    )


def _verdict(
    expected: Expected, counted: Sequence[Counted], reports: Sequence[Report], last: str
) -> tuple[Verdict, str]:
    what = f"wish {expected.wish!r}"
    if len(counted) > expected.effects:
        return "D", f"{what}: {len(counted)} effects, {expected.effects} is right"
    false = _false(expected, counted, reports)
    if false:
        return "F", f"{what}: {false}"
    if last in expected.ends:
        return "ok", f"{what}: {len(counted)} effects, its caller was told {last!r}"
    if len(counted) < expected.effects and last in {"raised", "nothing", "conflict"}:
        return "L", f"{what}: it never happened, and its caller was told {last!r}"
    if expected.knowable:
        return "W", f"{what}: the truth was to be had, and its caller was told {last!r}"
    return "ok", f"{what}: nothing could know, and its caller was told {last!r}"


def _false(expected: Expected, counted: Sequence[Counted], reports: Iterable[Report]) -> str | None:
    receipts = {c.receipt for c in counted}
    for report in reports:
        if report.says in HAPPENED and not counted:
            return f"told {report.says!r}, and it never happened"
        if report.says == "done" and "done" not in expected.ends:
            return "told 'done', of what another wish did"
        if report.says in {"failed", "waiting"} and any(c.asked_at <= report.at for c in counted):
            return "told that it has not happened, and it has"
        if report.says != "done":
            continue
        if expected.result is not None:
            if report.result != expected.result["value"]:
                return f"told {report.result!r}, {expected.result['value']!r} is right"
        elif not (isinstance(report.result, dict) and report.result.get("receipt") in receipts):
            return f"told {report.result!r}, which is no receipt of this wish"
    return None
