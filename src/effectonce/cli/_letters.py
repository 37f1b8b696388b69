"""Dead letters for the command line: which ones, as data, as rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from effectonce.cli._filters import StateChoice, as_option
from effectonce.cli._options import with_options
from effectonce.cli._output import EFFECT, TOOL, WHERE, Column, field, number, since, words
from effectonce.cli._settings import setting
from effectonce.views.times import iso, span_s

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce.dead_letters import Group, Letter, Wanted

F = TypeVar("F", bound=Callable[..., Any])
STATES = ("never_started", "in_doubt", "failed")
PAGE = 100


def letter_filters(command: F) -> F:
    """Give a command the options that say which letters; it gets them as `wanted`."""

    @functools.wraps(command)
    def with_filters(*, older_than: float | None, failed: bool, **given: Any) -> Any:
        asked = {name: given.pop(name) for name in ("tool", "error", "bucket", "state")}
        asked["older_than_s"] = older_than
        chosen = {name: value for name, value in asked.items() if value is not None}
        return command(wanted=_checked({**chosen, "failed": failed}), **given)

    errors = "Only this type of the last error, such as TimeoutError."
    buckets = "Only what the last error was taken for, such as transient."
    states = "Only effects that never started, or are in doubt, or failed."
    ages = "Only what was given up that long ago: 30m, 2h, 7d."
    failures = "Definite failures as well: they have an outcome, and are not redriven."
    return with_options(  # type: ignore[return-value]
        click.option("--tool", metavar="NAME", help="Only letters of this tool."),
        click.option("--error", metavar="TYPE", help=errors),
        click.option("--bucket", metavar="NAME", help=buckets),
        click.option("--state", type=StateChoice(STATES), help=states),
        click.option("--older-than", type=as_option(span_s), metavar="SPAN", help=ages),
        click.option("--failed", is_flag=True, help=failures),
    )(with_filters)


def _checked(chosen: dict[str, Any]) -> Wanted:
    from effectonce import ContractViolation
    from effectonce.dead_letters._letter import LetterQuery

    wanted: Any = {**chosen, "tenant": setting("tenant") or None}
    try:
        LetterQuery(**wanted)
    except ContractViolation as error:
        raise click.UsageError(f"{error}.") from None
    return wanted  # type: ignore[no-any-return]


def every(guard: Guard, wanted: Wanted, after: tuple[float, str] = (0.0, "")) -> Iterator[Letter]:
    """All that fit, oldest first, page by page."""
    while True:
        page = guard.dead_letters.list(limit=PAGE, after=after, **wanted)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].cursor


def as_data(letter: Letter, *, reveal: bool = False) -> dict[str, Any]:
    """A letter as `effectonce.letter/1`."""
    from effectonce.views.effects import step_of
    from effectonce.views.history import asked_data, attempt_data, is_run, run_of

    data: dict[str, Any] = {
        "reference": letter.reference,
        "tool": letter.tool,
        "tenant": letter.tenant,
        "scope": letter.scope,
        "step": step_of(letter.record),
        "effect_state": letter.effect_state,
        "state": str(letter.record.state),
        "error": letter.error or None,
        "bucket": letter.bucket or None,
        "reason": letter.reason or None,
        "sends": letter.record.sends,
        "attempts": [attempt_data(attempt) for attempt in letter.attempts],
        "asked": [asked_data(asked) for asked in letter.asked],
        "late_results": len(letter.late_results),
        "gave_up": letter.gave_up,
        "given_up_at": iso(letter.given_up_at),
        "not_before": None if letter.not_before is None else iso(letter.not_before),
        "age_s": round(letter.age_s, 3),
        "is_run": is_run(letter.record),
        "run": run_of(letter.record),
        "_tried": sum(attempt.number > 0 for attempt in letter.attempts),
    }
    if reveal:
        data |= {
            "key": letter.key,
            "arguments": letter.arguments,
            "unreadable": letter.unreadable or None,
        }
    return data


def _effect_is(item: dict[str, Any]) -> str:
    """Nothing of a run itself is ever sent: its steps are."""
    waits = item["is_run"] and item["state"] == "claimed"
    return "a waiting run" if waits else item["effect_state"].replace("_", " ")


ERROR = Column(
    "ERROR", lambda item: item["error"] or "no error recorded", lambda item: item["error"]
)
LETTERS = [
    EFFECT,
    TOOL,
    Column("EFFECT IS", _effect_is, plain=lambda item: item["effect_state"], whole=True),
    WHERE,
    field("TRIED", "_tried", right=True, whole=True),
    ERROR,
    since("FOR", "age_s", "given_up_at"),
]


def group_data(group: Group, now: float) -> dict[str, Any]:
    """A group as `effectonce.group/1`."""
    return {
        "count": group.count,
        "tool": group.tool,
        "error": group.error or None,
        "bucket": group.bucket or None,
        "oldest_at": iso(group.oldest),
        "newest_at": iso(group.newest),
        "sample": group.sample.reference,
        "_oldest_s": now - group.oldest,
    }


GROUPS = [
    number("LETTERS", "count"),
    TOOL,
    ERROR,
    words("TAKEN FOR", "bucket"),
    since("OLDEST", "_oldest_s", "oldest_at"),
    field("ONE OF THEM", "sample", whole=True),
]
