"""`effectonce indoubt`: where a person, or a probe, settles what is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from effectonce.cli._app import app_here, guard_here
from effectonce.cli._commands import see
from effectonce.cli._console import busy, echo, say
from effectonce.cli._decide import Decision, decide
from effectonce.cli._exits import CHANGED, NOT_ALLOWED, Stop
from effectonce.cli._filters import filter_options, limit_option, pace_option
from effectonce.cli._options import (
    app_options,
    decision_options,
    dry_run_option,
    effect_options,
    takes,
    with_options,
)
from effectonce.cli._output import (
    EFFECT,
    TOOL,
    WHY,
    field,
    for_machines,
    print_rows,
    shortened,
    words,
)
from effectonce.views.filter_fields import IN_DOUBT, ListFilter
from effectonce.views.text import SHOWN_MAX
from effectonce.views.tools import prober_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record
    from effectonce.recovery.bulk import Act
    from effectonce.views.doubts import DoubtGroup

F = TypeVar("F", bound=Callable[..., Any])
_Result = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
_Written = click.Path(dir_okay=False, path_type=Path)


@click.group()
def indoubt() -> None:
    r"""Settle effects whose outcome is unknown.

    \b
    Examples:
      effectonce indoubt list
      effectonce indoubt confirm eff_3fa94c1f22d0 --result '{"receipt": 17}' --reason 'seen in the bank portal'
    """


@indoubt.command("list")
@filter_options(IN_DOUBT)
@click.option("--each", is_flag=True, help="Every effect on its own, the oldest first.")
@limit_option
@effect_options
def list_doubts(*, asked: ListFilter, each: bool) -> None:
    r"""List what is in doubt, by tool and cause, with what to do next.

    With --app, a tool that has a probe is known as one that can ask.

    \b
    Examples:
      effectonce indoubt list
      effectonce indoubt list --each --error TimeoutError --older-than 1h
      effectonce indoubt list --each --tool refund --json | jq '.effects | length'
    """
    from effectonce.cli._doubts import list_each, print_groups, short_tool

    if each:
        list_each(asked)
        return

    def tell(group: DoubtGroup, item: dict[str, Any]) -> None:
        say(f"{short_tool(item)}: {group.action}. Run:")
        echo(f"  {item['command']}", err=True)  # in two lines it could not be copied

    print_groups(asked, field("SUCH AS", "example", whole=True), tell)


@indoubt.command()
@filter_options(IN_DOUBT)
@limit_option
@effect_options
def groups(*, asked: ListFilter) -> None:
    r"""List the groups of what is in doubt, with the commands that settle a whole group.

    Effects of one tool and one tenant, with the same error and the same cause, are a group.

    \b
    Examples:
      effectonce indoubt groups
      effectonce indoubt groups --older-than 1d --json | jq '.groups[0].group'
    """
    from effectonce.cli._doubts import print_groups, short_tool

    def tell(group: DoubtGroup, item: dict[str, Any]) -> None:
        say(f"{short_tool(item)} of {item['tenant']}: {group.action}. One of:")
        for command in item["settle"]:
            echo(f"  {command}", err=True)

    print_groups(asked, field("GROUP", "group", whole=True), tell)


# ---------------------------------------------------------------- probes


@indoubt.command()
@click.argument("references", metavar="[EFFECT]...", nargs=-1)
@filter_options(IN_DOUBT)
@dry_run_option
@takes("tenant")
@app_options
def reconcile(*, references: tuple[str, ...], asked: ListFilter, dry_run: bool) -> None:
    r"""Ask the downstream about effects in doubt, through the probes of your tools.

    Without EFFECT, about all of them that fit. What a probe proves is settled; nothing is sent again. It
    needs --app, because a probe is your code.

    \b
    Examples:
      effectonce indoubt reconcile --app shop.agents:guard
      effectonce indoubt reconcile eff_3fa94c1f22d0 --app shop.agents:guard
      effectonce indoubt reconcile --tool refund --dry-run --app shop.agents:guard
    """
    from effectonce.cli._doubts import doubts
    from effectonce.cli._find import find_all
    from effectonce.views.effects import now_of

    items = []
    with closing(app_here()) as guard:
        found = find_all(guard, references) if references else doubts(guard, asked, now_of(guard))
        records = list(found)
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


def many_options(command: F) -> F:
    """Give a command what it needs to settle many: which ones, how fast, and where they stand."""
    text = "Where to write what was settled, and what can mend it.  [default: a new file here]"
    return with_options(
        filter_options(IN_DOUBT),
        pace_option(20.0),
        click.option("--undo-list", "file", type=_Written, help=text),
        decision_options,
    )(command)


@indoubt.command()
@click.argument("reference", metavar="[EFFECT]", required=False)
@click.option("--result", metavar="JSON", help="What every later call gets, as JSON.")
@click.option("--result-file", type=_Result, help="The same from a file; - reads standard input.")
@click.option("--from", "source", type=_Result, help="A CSV file with what became of each.")
@click.option("--match", metavar="COLUMN", help="With --from: the column that names the effects.")
@many_options
def confirm(
    *,
    reference: str | None,
    result: str | None,
    result_file: Path | None,
    source: Path | None,
    match: str | None,
    **how: Any,
) -> None:
    r"""Say that it happened: of one effect, of a group, of all that fit, or row by row.

    The result is what every later call of the same effect gets, so it is required; `null` is one.
    Instead of EFFECT you may give a group, or filters: you are shown what fits and asked.

    With --from, each row of a CSV file is about one effect. A column `key`, `effect` (its
    reference), or one that your tools declare as searchable, such as payment_id, names it;
    `result` is JSON; `verdict` is confirm, refute or retry. Nothing is settled before the whole
    file was read and checked. Rows that cannot be used are reported by their line, and the exit
    code is 1.

    \b
    Examples:
      effectonce indoubt confirm eff_3fa94c1f22d0 --result '{"receipt": 17}' --reason 'seen in the bank portal'
      effectonce indoubt confirm 3fa9 --result-file receipt.json --reason 'ticket 812' --by ada --yes
      effectonce indoubt confirm --group g_91c2a04be7 --result null --reason 'all on the statement'
      effectonce indoubt confirm --from results.csv --match payment_id --reason 'statement of 3 May'
    """
    from effectonce import Guard

    if source is not None:
        if reference is not None:
            raise click.UsageError("Say which: EFFECT, or --from FILE.")
        _settle_rows(source, match, result, result_file, **how)
        return
    if match is not None:
        raise click.UsageError("--match goes with --from FILE.")
    value = _result(result, result_file)
    one = _settlement("It happened", Guard.confirm, rearmed=True, result=value)
    _decide("confirm", one, reference, value, **how)


@indoubt.command()
@click.argument("reference", metavar="[EFFECT]", required=False)
@many_options
def refute(*, reference: str | None, **how: Any) -> None:
    r"""Say that it did not happen: of one effect, of a group, or of all that fit.

    Every later call of the same effect gets that as a failure. To do it after all, use a new step.

    \b
    Examples:
      effectonce indoubt refute eff_3fa94c1f22d0 --reason 'the bank has no such transfer'
      effectonce indoubt refute 3fa9 --reason 'ticket 812' --by ada --yes
      effectonce indoubt refute --tool refund --older-than 1d --reason 'the bank lost the batch'
    """
    from effectonce import Guard

    _decide("refute", _settlement("It did not happen", Guard.refute), reference, None, **how)


@indoubt.command()
@click.argument("reference", metavar="[EFFECT]", required=False)
@many_options
def retry(*, reference: str | None, **how: Any) -> None:
    r"""Let the next call send the same request again, under the same key.

    Only while the downstream honours the key; otherwise it could be done twice, and this is
    refused. Nothing is sent by this command: the next call of the tool does it. Instead of EFFECT
    you may give a group, or filters.

    \b
    Examples:
      effectonce indoubt retry eff_3fa94c1f22d0 --reason 'the bank asked us to'
      effectonce indoubt retry 3fa9 --reason 'ticket 812' --by ada --yes
      effectonce indoubt retry --group g_91c2a04be7 --pace 5/s --reason 'the bank asked us to'
    """
    from effectonce import Guard

    what = "Send it again with the next call"
    _decide("retry", _settlement(what, Guard.retry, again=True), reference, None, **how)


def _decide(
    act: Act,
    one: Decision,
    reference: str | None,
    result: Any,
    *,
    asked: ListFilter,
    pace: float,
    file: Path | None,
    **how: Any,
) -> None:
    """About one effect, or about all that fit."""
    filtered = asked != ListFilter(tenant=asked.tenant)
    if filtered is (reference is not None):
        raise click.UsageError("Say which: EFFECT, or a --group, or filters such as --tool.")
    if reference is not None:
        decide(one, reference, **how)
        return
    from effectonce.cli._doubts import doubts
    from effectonce.cli._settling import Settling
    from effectonce.views.effects import now_of

    reason = how.pop("reason")
    with guard_here() as guard:
        with busy("Looking for effects"):
            records = list(doubts(guard, asked, now_of(guard)))
        Settling(guard, per_s=pace, file=file, **how).settle(act, records, reason, result)


def _settle_rows(
    source: Path,
    match: str | None,
    result: str | None,
    result_file: Path | None,
    *,
    asked: ListFilter,
    pace: float,
    file: Path | None,
    reason: str | None,
    **how: Any,
) -> None:
    if asked != ListFilter(tenant=asked.tenant):
        raise click.UsageError("Say which: --from FILE, or a --group, or filters such as --tool.")
    from effectonce.cli._settling import Settling

    more: dict[str, Any] = {"column": match, "tenant": asked.tenant}
    if result is not None or result_file is not None:
        more["result"] = _result(result, result_file)
    with click.open_file(str(source), "rb") as opened:
        data = opened.read()
    with guard_here() as guard:
        settling = Settling(guard, per_s=pace, file=file, **how)
        settling.settle_rows(str(source), data, "confirm", reason, **more)


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
    what: str,
    settle: Callable[..., None],
    *,
    again: bool = False,
    rearmed: bool = False,
    **more: Any,
) -> Decision:
    """A decision about an effect in doubt; or *rearmed*, which no call has sent again yet."""

    def about(guard: Guard, record: Record) -> str:
        from effectonce.recovery.in_doubt import NOT_HONOURED
        from effectonce.views.effects import may_confirm_rearmed, may_resend, now_of

        if rearmed and may_confirm_rearmed(record, now_of(guard)):
            return f"{record.settled_by} asked for another attempt, which no call has made yet."
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
