"""Pictures that are drawn from the code when the site is built: the transition table, and a call.

They are SVG inside the page, so they have the colours of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from effectonce import Guard, State
from effectonce._core.ops import Find
from effectonce._core.pauses import LOOK
from effectonce._core.rules import RULES, TransitionRule
from effectonce.stores.memory import MemoryStore

ROW, NODE, HIGH, REACH = 84, 132, 40, 60  # a state to a row; an arc reaches as far as it spans
LIFELINES = ("your agent", "effectonce", "store", "downstream")
APART, STEP, TOP = 230, 46, 60


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A picture with a name, for readers who do not see it too."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" aria-label="{title}"'
        ' font-family="inherit" font-size="13" fill="currentColor">'
    )
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
        ' markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
        "</defs>"
    )
    return "\n".join(['<div class="diagram">', head, arrow, *parts, "</svg>", "</div>"])


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    halo = 'paint-order="stroke" stroke="var(--color-background-primary)" stroke-width="5"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {halo}>{words}</text>'


# ---------------------------------------------------------------- the states


def moves(rules: Sequence[TransitionRule]) -> dict[tuple[State, State], list[str]]:
    """The names of the rules by where they lead from and to, each once, in the table's order."""
    found: dict[tuple[State, State], list[str]] = {}
    for rule in rules:
        names = found.setdefault((rule.start, rule.end), [])
        if rule.name not in names:
            names.append(rule.name)
    return found


def states_svg(rules: Sequence[TransitionRule] = RULES) -> str:
    """States from top to bottom. An arc on the right leads down, one on the left leads up; what
    leaves a state as it is stands in its box.
    """
    rows = {state: number for number, state in enumerate(State)}
    known = moves(rules)
    spans = [(rows[start] - rows[end]) for start, end in known]
    left = 40 + REACH * max(0, *spans)
    width = left + NODE + 110 + REACH * max(0, *(-span for span in spans))
    parts = []
    for (start, end), names in known.items():
        if start is not end:
            parts += _arc(left, rows[start], rows[end], " ".join(names))
    for state, row in rows.items():
        y = row * ROW + 20
        parts.append(
            f'<rect x="{left}" y="{y}" width="{NODE}" height="{HIGH}" rx="6"'
            ' fill="var(--color-background-secondary)" stroke="currentColor"/>'
        )
        stays = " ".join(known.get((state, state), []))
        middle = left + NODE / 2
        name = f"<tspan font-weight='bold'>{state}</tspan>"
        parts.append(
            f'<text x="{middle:g}" y="{y + (17 if stays else 25)}" text-anchor="middle">'
            f"{name}</text>"
        )
        if stays:
            parts.append(
                f'<text x="{middle:g}" y="{y + 33}" text-anchor="middle" font-size="11">'
                f"{stays}</text>"
            )
    title = "The states of an effect, and the rules that lead from one to another"
    return svg(width, len(rows) * ROW, title, parts)


def _arc(left: int, start: int, end: int, names: str) -> list[str]:
    down = end > start
    side = 1 if down else -1
    x = left + NODE if down else left
    y1, y2 = (row * ROW + 20 + HIGH / 2 for row in (start, end))
    y1, y2 = y1 + side * 10, y2 - side * 10
    reach = REACH * abs(end - start)
    control = x + side * reach * 4 / 3
    path = f"M{x} {y1:g}C{control:g} {y1:g} {control:g} {y2:g} {x} {y2:g}"
    line = f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#arrow)"/>'
    label = _text(x + side * reach, (y1 + y2) / 2 + 4, names)
    return [line, label]


def rules_table(rules: Sequence[TransitionRule] = RULES) -> str:
    """Every rule as a row of Markdown, with what has to hold for it."""
    lines = ["| rule | op | from | to | holds if |", "|---|---|---|---|---|"]
    for rule in rules:
        guards = ", ".join(f"`{guard.__name__}`" for guard in rule.when) or "always"
        places = f"`{rule.start}` | `{rule.end}`"
        lines.append(f"| {rule.name} | `{rule.op.__name__}` | {places} | {guards} |")
    return "\n".join(lines)


# ---------------------------------------------------------------- one call


class Message(NamedTuple):
    """An arrow of a sequence: from and to by number of the lifeline, and what is said."""

    start: int
    end: int
    words: str


class _Listener:
    """A memory store that writes down what it is asked, and by which rule it did it."""

    def __init__(self, said: list[Message]) -> None:
        self._store, self._said = MemoryStore(), said

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _state(self, key: str) -> State:
        record = self._store.apply(Find(key))
        return State.ABSENT if record is None else record.state

    def apply(self, op: Any) -> Any:
        if op is LOOK:  # whether a person has paused it: asked every two seconds, not in each call
            return self._store.apply(op)
        key = op.request.key if hasattr(op, "request") else op.key
        before = self._state(key)
        reply = self._store.apply(op)
        after = self._state(key)
        rule = next((r for r in RULES if (r.op, r.start, r.end) == (type(op), before, after)), None)
        by = f" ({rule.name}: {before} → {after})" if before is not after and rule else ""
        self._said += [
            Message(1, 2, f"{type(op).__name__}{by}"),
            Message(2, 1, type(reply).__name__),
        ]
        return reply


def recorded_call() -> list[Message]:
    """What is said in a call that runs, and in the same call from another process."""
    said: list[Message] = []
    store = _Listener(said)

    def refund(payment_id: str) -> str:
        said.extend((Message(1, 3, "refund, with the key"), Message(3, 1, "receipt")))
        return "receipt"

    for call in ("refund('pay_7')", "refund('pay_7'), once more"):
        guard = Guard(store, reconcile=False)  # a process of its own remembers nothing
        tool = guard.tool(kind="write", downstream="none")(refund)
        said.append(Message(0, 1, call))
        with guard.step("chat-42", "refund"):
            tool("pay_7")
        said.append(Message(1, 0, "receipt"))
        guard.close()
    return said


def sequence_svg(said: Sequence[Message]) -> str:
    """Lifelines from left to right, time from top to bottom."""
    height = TOP + STEP * len(said) + 20
    xs = [90 + APART * number for number in range(len(LIFELINES))]
    parts = []
    for x, name in zip(xs, LIFELINES, strict=True):
        parts.append(
            f'<path d="M{x} 34V{height}" stroke="currentColor" stroke-dasharray="3 4"'
            ' opacity="0.6"/>'
        )
        parts.append(f'<text x="{x}" y="24" text-anchor="middle" font-weight="bold">{name}</text>')
    for number, (start, end, words) in enumerate(said):
        y = TOP + STEP * number + 14
        back = ' stroke-dasharray="6 4"' if end < start else ""
        parts.append(
            f'<path d="M{xs[start]} {y}H{xs[end]}" stroke="currentColor"{back}'
            ' marker-end="url(#arrow)"/>'
        )
        parts.append(_text((xs[start] + xs[end]) / 2, y - 7, words))
    title = "One call, and the same call again, as they happened when this page was made"
    return svg(xs[-1] + 90, height, title, parts)
