"""Which rule for keys is right? Recorded conversations are replayed under each, and every write
is judged.

python bench/keys.py [FILE] [--json]

FILE holds recorded conversations of an agent as tau-bench writes them: a list of {"task_id",
"trial", "traj": [messages]}. Nothing was retried when they were recorded: each write is a wish
of its own, decided by a model that had been shown all that came before. A trial is a world of
its own: the same tasks once more, so keys that are the same in two trials are not held against a
rule.

  suppressed     a rule gives a write the key of an earlier one that succeeded: its result is shown
                 again, or a conflict, and nothing is done
  repeated       the answer is lost before the model is shown it, and the same write comes again:
                 another key, and it is done twice.
                 Once as a framework retries it (the same id), once as a model decides it anew (a
                 new id), for each write that succeeded.

A rule that decides wrongly is wrong by one for each. Ours is computed by the code that ships:
`guard.step(..., delivered=...)`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _paired import Goal, Row, options, report

from effectonce import Delivered, Guard

DEFAULT = Path(__file__).parents[1] / ".." / "shared" / "data" / "tau-bench-gpt-4o-airline.json"
WRITES = (
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
)
OURS = "conversation + intent + ordinal (ours)"


@dataclass(frozen=True, slots=True)
class Write:
    """One write as it was recorded: where, what, and what the model had been shown before."""

    world: int  # the trial: the same tasks once more, and nothing of the others
    conversation: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    shown: tuple[Delivered, ...]
    succeeded: bool

    @property
    def request(self) -> str:
        return f"{self.tool} {json.dumps(self.arguments, sort_keys=True)}"

    def decided_anew(self) -> Write:
        """The model did not see a result and makes the same call again: the provider gives it
        another id.
        """
        return Write(
            self.world,
            self.conversation,
            f"{self.call_id} again",
            self.tool,
            self.arguments,
            self.shown,
            self.succeeded,
        )


Rule = Callable[[Write], str]


def rules() -> dict[str, Rule]:
    def digest(write: Write) -> str:
        return hashlib.sha256(write.request.encode()).hexdigest()

    return {
        "tool_call_id": lambda write: write.call_id,
        "conversation + tool_call_id": lambda write: f"{write.conversation} {write.call_id}",
        "hash(arguments)": digest,
        "conversation + hash(arguments)": lambda write: f"{write.conversation} {digest(write)}",
        OURS: shipped(),
    }


def shipped() -> Rule:
    guard = Guard("memory://")

    def tool(name: str) -> Any:
        def call(**arguments: Any) -> None:
            """Nothing runs here: only the key is asked for."""

        return guard.tool(kind="write", name=name)(call)

    tools = {name: tool(name) for name in WRITES}

    def key(write: Write) -> str:
        with guard.step(write.conversation, delivered=write.shown):
            return tools[write.tool].explain(**write.arguments).key

    return key


# ---------------------------------------------------------------- the recording


def recorded(path: Path) -> list[Write]:
    return [write for run in json.loads(path.read_text()) for write in writes_of(run)]


def writes_of(run: dict[str, Any]) -> Iterator[Write]:
    """The writes of one conversation. Results follow their calls, in the same order."""
    conversation = f"task {run['task_id']}, trial {run['trial']}"
    messages, shown = run["traj"], []
    for at, message in enumerate(messages):
        results = [
            result
            for result in messages[at + 1 : at + 1 + len(calls_of(message))]
            if result["role"] == "tool"
        ]
        before = tuple(shown)
        for call, result in zip(calls_of(message), results, strict=False):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            if name not in WRITES:
                continue
            succeeded = not str(result["content"]).startswith("Error")
            yield Write(run["trial"], conversation, call["id"], name, arguments, before, succeeded)
            if succeeded:
                shown.append(Delivered(name, arguments))


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


# ---------------------------------------------------------------- judged


@dataclass(slots=True)
class Wrong:
    """How often a rule decides wrongly."""

    suppressed: int = 0
    repeated_by_framework: int = 0
    repeated_by_model: int = 0


def judge(rule: Rule, writes: list[Write]) -> Wrong:
    wrong, done = Wrong(), set()
    for write in writes:
        key = rule(write)
        wrong.suppressed += (write.world, key) in done
        if write.succeeded:
            wrong.repeated_by_framework += rule(write) != key
            wrong.repeated_by_model += rule(write.decided_anew()) != key
            done.add((write.world, key))
    return wrong


def rows_of(rule: str, wrong: Wrong) -> list[Row]:
    goal = Goal("==", 0) if rule == OURS else None
    figures = {
        "suppressed": wrong.suppressed,
        "repeated by a framework": wrong.repeated_by_framework,
        "repeated by a model": wrong.repeated_by_model,
    }
    return [
        Row(f"{rule}: {what}", count, None, "", count, "writes", goal)
        for what, count in figures.items()
    ]


def main() -> None:
    given = options(
        __doc__,
        more=lambda parser: parser.add_argument(
            "file", nargs="?", type=Path, help="recorded conversations"
        ),
    )
    path = given.file or DEFAULT
    if not path.is_file():
        print(
            f"There are no recorded conversations at {path}. Give a file of the public tau-bench,"
            " such as gpt-4o-airline.json from its historical_trajectories: python bench/keys.py"
            " FILE",
            file=sys.stderr,
        )
        # what is not there by default is left out; what was asked for is missed
        sys.exit(0 if given.file is None else 2)
    writes = recorded(path)
    conversations, succeeded = (
        len({write.conversation for write in writes}),
        sum(write.succeeded for write in writes),
    )
    notes = {
        "recorded": (
            f"{len(writes)} writes in {conversations} conversations, of which {succeeded} succeeded"
        )
    }
    rows = [row for name, rule in rules().items() for row in rows_of(name, judge(rule, writes))]
    report(rows, given, notes)
    if not all(row.goal.met_by(row.reached) for row in rows if row.goal is not None):
        sys.exit(1)


if __name__ == "__main__":
    main()
