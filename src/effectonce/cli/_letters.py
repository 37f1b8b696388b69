"""Dead letters for the command line: which ones, as data, as rows."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from effectonce.cli._commands import runnable
from effectonce.cli._filters import filter_options
from effectonce.cli._output import EFFECT, TOOL, WHERE, Column, field, number, since, words
from effectonce.views.filter_fields import LETTERS, ListFilter
from effectonce.views.times import iso

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce.dead_letters import Group, Letter, Wanted

F = TypeVar("F", bound=Callable[..., Any])
PAGE = 100


def letter_filters(command: F, *, without: tuple[str, ...] = ()) -> F:
    """Give a command the options that say which letters; it gets them as `wanted`."""

    @functools.wraps(command)
    def with_filters(*, asked: ListFilter, failed: bool, **given: Any) -> Any:
        return command(wanted=_checked(asked, failed=failed), **given)

    failures = "Definite failures as well: they have an outcome, and are not redriven."
    failing = click.option("--failed", is_flag=True, help=failures)
    given = failing(with_filters)
    return filter_options(LETTERS, without=without)(given)  # type: ignore[return-value]


def _checked(asked: ListFilter, *, failed: bool) -> Wanted:
    from effectonce import ContractViolation
    from effectonce.dead_letters._letter import LetterQuery

    wanted = asked.wanted(time.time())
    wanted["failed"] = failed
    try:
        LetterQuery(**wanted)
    except ContractViolation as error:
        raise click.UsageError(f"{error}.") from None
    return wanted


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
LETTER_ROWS = [
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
    again = f"effectonce dlq redrive --group {group.group} --reason TEXT --app MODULE:GUARD"
    never = f"effectonce dlq discard --group {group.group} --reason TEXT"
    return {
        "group": group.group,
        "count": group.count,
        "tool": group.tool,
        "tenant": group.tenant,
        "cause": group.cause or None,
        "settle": [runnable(again), runnable(never)],
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
    field("GROUP", "group", whole=True),
]
