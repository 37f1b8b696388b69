"""`effectonce indoubt`: where a person, or a probe, settles what is in doubt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import app_here, guard_here
from effectonce.cli._commands import runnable, see
from effectonce.cli._console import busy, echo, say
from effectonce.cli._decide import Decision, decide
from effectonce.cli._exits import CHANGED, NOT_ALLOWED, Stop
from effectonce.cli._filters import limit_option
from effectonce.cli._options import (
    app_options,
    decision_options,
    dry_run_option,
    effect_options,
    takes,
)
from effectonce.cli._output import (
    EFFECT,
    TOOL,
    WHERE,
    WHY,
    Column,
    field,
    for_machines,
    on_a_line,
    print_rows,
    shortened,
    since,
    to_width,
    words,
)
from effectonce.cli._settings import setting
from effectonce.views.text import SHOWN_MAX
from effectonce.views.tools import prober_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record

PAGE = 100
NAME_MAX = 24  # columns, of a tool before what to do next: the table has more of it
_Result = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group()
def indoubt() -> None:
    r"""Settle effects whose outcome is unknown.

    \b
    Examples:
      effectonce indoubt list
      effectonce indoubt confirm eff_3fa94c1f22d0 --result '{"receipt": 17}' --reason 'seen in the bank portal'
    """


@indoubt.command("list")
@click.option("--tool", metavar="NAME", help="Only effects of this tool.")
@click.option("--each", is_flag=True, help="Every effect on its own, the oldest first.")
@limit_option
@effect_options
def list_doubts(*, tool: str | None, each: bool) -> None:
    r"""List what is in doubt, by tool and cause, with what to do next.

    With --app, a tool that has a probe is known as one that can ask.

    \b
    Examples:
      effectonce indoubt list
      effectonce indoubt list --each
      effectonce indoubt list --each --tool refund --json | jq '.effects | length'
    """
    empty = "Nothing is in doubt." if tool is None else f"Nothing of {tool} is in doubt."
    if each:
        _list_each(tool, empty)
        return
    from effectonce.views.doubts import grouped
    from effectonce.views.effects import now_of

    with guard_here() as guard:
        now = now_of(guard)
        groups = grouped(guard, doubts(guard, tool), now)
    limit = setting("limit")
    items = [
        {
            **group.as_data(),
            "command": runnable(group.command),
            "_for_s": now - group.since,
        }
        for group in groups[:limit]
    ]
    count = sum(group.effects for group in groups)
    columns = _GROUPS if for_machines() else _GROUPS[:-1]  # a command is not cut off
    print_rows(items, columns, schema="group", empty=empty, in_doubt=count)
    if not for_machines():
        for item in items:
            say(f"{to_width(on_a_line(item['tool']), NAME_MAX).rstrip()}: {item['action']}. Run:")
            echo(f"  {item['command']}", err=True)  # in two lines it could not be copied
    if len(groups) > limit and not for_machines():
        say("There are more: give a higher --limit.")


_GROUPS = [
    Column("EFFECTS", lambda item: f"{item['count']:,}", right=True, whole=True),
    TOOL,
    field("CAUSE", "cause"),
    since("SINCE", "_for_s", "since"),
    field("SUCH AS", "example", whole=True),
    field("NEXT", "command", whole=True),
]


def _list_each(tool: str | None, empty: str) -> None:
    from effectonce.cli._effects import SENDS
    from effectonce.views.effects import as_data, now_of

    with guard_here() as guard:
        now, limit = now_of(guard), setting("limit")
        records = list(itertools.islice(doubts(guard, tool), limit + 1))
    more = len(records) > limit
    records = records[:limit]
    items = [{**as_data(record, now), "_for_s": now - record.decided_at} for record in records]
    doubt, reason = since("IN DOUBT FOR", "_for_s", "decided_at"), field("REASON", "reason")
    columns = [EFFECT, TOOL, WHERE, SENDS, doubt, reason]
    print_rows(items, columns, schema="effect", empty=empty)
    if more and not for_machines():
        say("There are more: give a higher --limit.")


def doubts(guard: Guard, tool: str | None = None) -> Iterator[Record]:
    """What is in doubt, oldest first, page by page."""
    from effectonce._core.ops import Browse
    from effectonce._core.record import State

    after = (0.0, "")
    while True:
        page = guard.store.apply(Browse(State.IN_DOUBT, setting("tenant") or None, after, PAGE))
        yield from (record for record in page if tool in (None, record.request.terms.tool))
        if len(page) < PAGE:
            return
        after = (page[-1].created_at, page[-1].request.key)


# ---------------------------------------------------------------- probes


@indoubt.command()
@click.argument("references", metavar="[EFFECT]...", nargs=-1)
@click.option("--tool", metavar="NAME", help="Only effects of this tool.")
@dry_run_option
@takes("tenant")
@app_options
def reconcile(*, references: tuple[str, ...], tool: str | None, dry_run: bool) -> None:
    r"""Ask the downstream about effects in doubt, through the probes of your tools.

    Without EFFECT, about all of them. What a probe proves is settled; nothing is sent again. It
    needs --app, because a probe is your code.

    \b
    Examples:
      effectonce indoubt reconcile --app shop.agents:guard
      effectonce indoubt reconcile eff_3fa94c1f22d0 --app shop.agents:guard
      effectonce indoubt reconcile --tool refund --dry-run --app shop.agents:guard
    """
    from effectonce.cli._find import find_all

    items = []
    with closing(app_here()) as guard:
        records = find_all(guard, references) if references else list(doubts(guard, tool))
        for record in records:
            _refuse_unless_in_doubt(record)
        with busy("Asking") as how_far:
            for number, record in enumerate(records, 1):
                how_far(f"{number} of {len(records)}")
                items.append(_reconciled(guard, record, dry_run=dry_run))
    names = ("settled", "in doubt", "no probe", "would ask")
    counts = {name: sum(item["answer"] == name for item in items) for name in names}
    beside = {name.replace(" ", "_"): count for name, count in counts.items()}
    print_rows(items, _ANSWERS, schema="answer", empty="Nothing is in doubt.", **beside)
    if items and not for_machines():
        say(", ".join(f"{count} {name}" for name, count in counts.items() if count) + ".")


_ANSWERS = [EFFECT, TOOL, field("ANSWER", "answer", whole=True), words("NOW", "state"), WHY]


def _reconciled(guard: Guard, record: Record, *, dry_run: bool) -> dict[str, Any]:
    import asyncio

    from effectonce._core.tagged_json import NotReadable
    from effectonce.views.effects import reference

    def answer(said: str, state: str = str(record.state), why: str = "") -> dict[str, Any]:
        about = {"reference": reference(record), "tool": record.request.terms.tool}
        return {**about, "state": state, "why": why or None, "answer": said}

    tool = prober_of(guard, record)
    if tool is None:
        return answer("no probe", why="no tool of this name with a probe is registered there")
    if dry_run:
        return answer("would ask")
    try:
        outcome = asyncio.run(tool.areconcile(record)) if tool.is_async else tool.reconcile(record)
    except NotReadable as error:
        return answer("no probe", why=f"its arguments cannot be read: {error}")
    after = guard.find(record.request.key)
    state = "absent" if after is None else str(after.state)
    if outcome.status == "in_doubt":
        return answer("in doubt", state, _proved_nothing(outcome.error))
    return answer("settled", state)


def _proved_nothing(error: BaseException | None) -> str:
    """What the probe answered, without what the row shows already."""
    answer = str(error).partition(" is in doubt: ")[2].partition(" (0 s ago)")[0]
    return answer.removeprefix("; ") or str(error)


# ---------------------------------------------------------------- people


@indoubt.command()
@click.argument("reference", metavar="EFFECT")
@click.option("--result", metavar="JSON", help="What every later call gets, as JSON.")
@click.option("--result-file", type=_Result, help="The same from a file; - reads standard input.")
@decision_options
def confirm(*, reference: str, result: str | None, result_file: Path | None, **how: Any) -> None:
    r"""Say that it happened.

    The result is what every later call of the same effect gets, so it is required; `null` is one.

    \b
    Examples:
      effectonce indoubt confirm eff_3fa94c1f22d0 --result '{"receipt": 17}' --reason 'seen in the bank portal'
      effectonce indoubt confirm 3fa9 --result-file receipt.json --reason 'ticket 812' --by ada --yes
    """
    from effectonce import Guard

    value = _result(result, result_file)
    decide(_settlement("It happened", Guard.confirm, result=value), reference, **how)


@indoubt.command()
@click.argument("reference", metavar="EFFECT")
@decision_options
def refute(*, reference: str, **how: Any) -> None:
    r"""Say that it did not happen.

    Every later call of the same effect gets that as a failure. To do it after all, use a new step.

    \b
    Examples:
      effectonce indoubt refute eff_3fa94c1f22d0 --reason 'the bank has no such transfer'
      effectonce indoubt refute 3fa9 --reason 'ticket 812' --by ada --yes
    """
    from effectonce import Guard

    decide(_settlement("It did not happen", Guard.refute), reference, **how)


@indoubt.command()
@click.argument("reference", metavar="EFFECT")
@decision_options
def retry(*, reference: str, **how: Any) -> None:
    r"""Let the next call send the same request again, under the same key.

    Only while the downstream honours the key; otherwise it could be done twice, and this is
    refused. Nothing is sent by this command: the next call of the tool does it.

    \b
    Examples:
      effectonce indoubt retry eff_3fa94c1f22d0 --reason 'the bank asked us to'
      effectonce indoubt retry 3fa9 --reason 'ticket 812' --by ada --yes
    """
    from effectonce import Guard

    what = "Send it again with the next call"
    decide(_settlement(what, Guard.retry, again=True), reference, **how)


def _result(given: str | None, file: Path | None) -> Any:
    if (given is None) is (file is None):
        raise click.UsageError(
            "Give the result that later calls get: --result JSON or --result-file FILE (null is a"
            " result)."
        )
    from effectonce._core.codec import encode
    from effectonce._core.strict_json import read_exactly

    try:
        if given is None:
            with click.open_file(str(file), encoding="utf-8") as opened:
                given = opened.read()
        value = read_exactly(given)
        encode(value)  # before a question is asked
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise click.BadParameter(
            f"{error}. A text needs quotes: '\"done\"'", param_hint="the result"
        ) from None
    return value


def _settlement(
    what: str, settle: Callable[..., None], *, again: bool = False, **more: Any
) -> Decision:
    """A decision about an effect in doubt."""

    def about(guard: Guard, record: Record) -> str:
        from effectonce.recovery.in_doubt import NOT_HONOURED
        from effectonce.views.effects import may_resend, now_of

        _refuse_unless_in_doubt(record)
        # before a question is asked, and in a dry run as well
        if again and not may_resend(record, now_of(guard)):
            raise Stop(f"{NOT_HONOURED}.", NOT_ALLOWED, "Nothing was changed.")
        return f"In doubt: {shortened(record.reason, SHOWN_MAX)}"

    def write(guard: Guard, record: Record, **signed: str) -> None:
        settle(guard, record.request.key, **more, **signed)

    return Decision(what, about, write)


def _refuse_unless_in_doubt(record: Record) -> None:
    from effectonce._core.record import State
    from effectonce.views.effects import reference

    if record.state is not State.IN_DOUBT:
        state = str(record.state).replace("_", " ")
        ref = reference(record)
        raise Stop(f"{ref} is not in doubt: it is {state}.", CHANGED, see(ref))
