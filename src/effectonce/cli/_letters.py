"""Dead letters for the command line: which ones, as data, as rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from effectonce.cli._output import Column
from effectonce.cli._settings import setting
from effectonce.cli._times import span_s
from effectonce.views.times import iso, span

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce.dead_letters import Group, Letter, Wanted

F = TypeVar("F", bound=Callable[..., Any])
STATES = ("never_started", "in_doubt", "failed")
PAGE = 100


class _State(click.Choice[str]):
    """`in-doubt` and `in doubt` are what people type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).replace("-", "_").replace(" ", "_"), param, ctx)


def letter_filters(command: F) -> F:
    """Give a command the options that say which letters; it gets them as `wanted`."""

    @functools.wraps(command)
    def with_filters(
        *,
        tool: str | None,
        error: str | None,
        bucket: str | None,
        state: str | None,
        older_than: float | None,
        failed: bool,
        **others: Any,
    ) -> Any:
        given = {
            "tool": tool,
            "error": error,
            "bucket": bucket,
            "state": state,
            "older_than_s": older_than,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return command(wanted=_checked({**chosen, "failed": failed}), **others)

    for option in (
        click.option(
            "--failed",
            is_flag=True,
            help="Definite failures as well: they have an outcome, and are not redriven.",
        ),
        click.option(
            "--older-than",
            type=span_s,
            metavar="SPAN",
            help="Only what was given up that long ago: 30m, 2h, 7d.",
        ),
        click.option(
            "--state",
            type=_State(STATES),
            help="Only effects that never started, or are in doubt, or failed.",
        ),
        click.option(
            "--bucket",
            metavar="NAME",
            help="Only what the last error was taken for, such as transient.",
        ),
        click.option(
            "--error",
            metavar="TYPE",
            help="Only this type of the last error, such as TimeoutError.",
        ),
        click.option("--tool", metavar="NAME", help="Only letters of this tool."),
    ):
        with_filters = option(with_filters)
    return with_filters  # type: ignore[return-value]


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
    }
    if reveal:
        data |= {
            "key": letter.key,
            "arguments": letter.arguments,
            "unreadable": letter.unreadable or None,
        }
    return data


def _words(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda item: str(item[name] or "").replace("_", " ")


def _where(item: dict[str, Any]) -> str:
    return "/".join(part for part in (item["scope"], item["step"]) if part)


def _effect_is(item: dict[str, Any]) -> str:
    """Nothing of a run itself is ever sent: its steps are."""
    return (
        "a waiting run"
        if item["is_run"] and item["state"] == "claimed"
        else _words("effect_state")(item)
    )


LETTERS = [
    Column("EFFECT", lambda item: item["reference"], whole=True),
    Column("TOOL", lambda item: item["tool"]),
    Column("EFFECT IS", _effect_is, plain=lambda item: item["effect_state"], whole=True),
    Column("WHERE", _where),
    Column(
        "TRIED",
        lambda item: str(sum(a["number"] > 0 for a in item["attempts"])),
        right=True,
        whole=True,
    ),
    Column(
        "ERROR", lambda item: item["error"] or "no error recorded", plain=lambda item: item["error"]
    ),
    Column(
        "FOR",
        lambda item: span(item["age_s"]),
        plain=lambda item: item["given_up_at"],
        right=True,
        whole=True,
    ),
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
    Column(
        "LETTERS",
        lambda item: f"{item['count']:,}",
        plain=lambda item: item["count"],
        right=True,
        whole=True,
    ),
    Column("TOOL", lambda item: item["tool"]),
    Column(
        "ERROR", lambda item: item["error"] or "no error recorded", plain=lambda item: item["error"]
    ),
    Column("TAKEN FOR", _words("bucket"), plain=lambda item: item["bucket"], whole=True),
    Column(
        "OLDEST",
        lambda item: span(item["_oldest_s"]),
        plain=lambda item: item["oldest_at"],
        right=True,
        whole=True,
    ),
    Column("ONE OF THEM", lambda item: item["sample"], whole=True),
]
