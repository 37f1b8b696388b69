"""`effectonce workflow`: the runs of workflows: look at them, go on with them, end them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import app_here, guard_here
from effectonce.cli._ask import make_sure, reason_given, refuse_sealed, who
from effectonce.cli._commands import runnable
from effectonce.cli._console import busy, say
from effectonce.cli._exits import CHANGED, FAILED, Stop
from effectonce.cli._filters import filter_options, limit_option
from effectonce.cli._options import (
    app_options,
    decision_options,
    dry_run_option,
    effect_options,
    takes,
    yes_option,
)
from effectonce.cli._output import WHY, field, for_machines, number, print_one, print_rows
from effectonce.cli._settings import setting
from effectonce.views.filter_fields import RUNS, ListFilter
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record
    from effectonce.workflows import Resumed, RunState

STATES: tuple[RunState, ...] = ("open", "completed", "failed")
EMPTY = "No run fits. A run appears when a function with @guard.workflow is called."


@click.group()
def workflow() -> None:
    r"""See the runs of workflows, go on with them, or end them.

    \b
    Examples:
      effectonce workflow list
      effectonce workflow show eff_3fa94c1f22d0
    """


# ---------------------------------------------------------------- looking


@workflow.command("list")
@filter_options(RUNS)
@click.option("--workflow", "name", metavar="NAME", help="The same as --tool.")
@limit_option
@effect_options
def list_runs(*, asked: ListFilter, name: str | None) -> None:
    r"""List runs, the oldest first: those that are open, unless you say otherwise.

    In a pipe each run is a line: reference, workflow, state, how often it was begun, since when,
    its last error.

    \b
    Examples:
      effectonce workflow list
      effectonce workflow list --error TimeoutError --older-than 1h
      effectonce workflow list --state failed --workflow refund_order --json | jq '.runs[].error'
    """
    from effectonce.cli._runs import RUNS
    from effectonce.views.effects import now_of
    from effectonce.views.filters import fits, run_facts
    from effectonce.views.runs import as_data

    if name is not None and asked.tool not in (None, name):
        raise click.UsageError("--workflow and --tool are the same filter: give one of them.")
    asked = asked._replace(tool=name or asked.tool, state=asked.state or "open")
    with guard_here() as guard, busy("Looking for runs"):
        now = now_of(guard)
        runs = _runs(guard, asked.state or "open", asked.tool)
        found = (record for record in runs if fits(asked, run_facts(record), now))
        records = itertools.islice(found, setting("limit"))
        items = [as_data(record, now) for record in records]
    print_rows(items, RUNS, schema="run", empty=_empty(asked.state or "open", asked.tool))
    if len(items) == setting("limit"):
        say("There may be more: give a higher --limit.")


def _runs(guard: Guard, state: str, name: str | None) -> Iterator[Record]:
    for each in STATES:
        if state in (each, "all"):
            yield from guard.workflows.runs(each, workflow=name, tenant=setting("tenant") or None)


def _empty(state: str, name: str | None) -> str:
    if state != "open":
        return EMPTY
    return "No run is open." if name is None else f"No run of {name} is open."


@workflow.command()
@click.argument("reference", metavar="RUN")
@click.option("--reveal", is_flag=True, help="Show arguments and key as well.")
@effect_options
def show(*, reference: str, reveal: bool) -> None:
    r"""Show one run with its steps and compensations, and what to do next.

    \b
    Examples:
      effectonce workflow show eff_3fa94c1f22d0
      effectonce workflow show 3fa9 --json | jq '.steps[] | [.position, .name, .state]'
    """
    from effectonce.cli._runs import find_run, tell
    from effectonce.views.effects import now_of
    from effectonce.views.runs import steps_of, whole

    with guard_here() as guard, busy("Looking for its steps"):
        record, now = find_run(guard, reference), now_of(guard)
        steps = steps_of(guard, record)
    data = whole(record, steps, now, reveal=reveal)
    print_one(data, lambda: tell(record, steps, now, reveal=reveal), schema="run")


# ---------------------------------------------------------------- going on


@workflow.command()
@click.argument("references", metavar="[RUN]...", nargs=-1)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every open run that no process has, several at a time.",
)
@click.option("--workflow", "name", metavar="NAME", help="With --all: only runs of this workflow.")
@yes_option
@dry_run_option
@takes("no_input", "tenant")
@app_options
def resume(
    *, references: tuple[str, ...], everything: bool, name: str | None, yes: bool, dry_run: bool
) -> None:
    r"""Go on with runs where they stopped. What was done is not done again.

    It needs --app, because workflows are your code. A run that you name goes on however often it
    was begun; --all leaves those alone that were begun too often and never ended. The exit code
    is 1 if a run waits again or failed.

    \b
    Examples:
      effectonce workflow resume eff_3fa94c1f22d0 --app shop.agents:guard
      effectonce workflow resume --all --workflow refund_order --yes --app shop.agents:guard
    """
    if everything is bool(references) or (name is not None and not everything):
        raise click.UsageError("Say which: RUN, or --all, which takes --workflow.")
    if everything and setting("tenant"):
        raise click.UsageError("--all goes on with the runs of all tenants: name those of one.")
    with closing(app_here()) as guard:
        if everything:
            items = _resume_all(guard, name, yes=yes, dry_run=dry_run)
        else:
            items = _resume_named(guard, references, yes=yes, dry_run=dry_run)
    if any(item["_bad"] for item in items):
        raise SystemExit(FAILED)


def _resume_named(
    guard: Guard, references: tuple[str, ...], *, yes: bool, dry_run: bool
) -> list[dict[str, Any]]:
    from effectonce.cli._effects import headline
    from effectonce.cli._runs import find_run
    from effectonce.views.effects import now_of
    from effectonce.views.history import begun, run_state

    records = list(
        {r.request.key: r for r in (find_run(guard, named) for named in references)}.values()
    )
    now = now_of(guard)
    for record in records:
        state = run_state(record, now)
        if state not in ("waiting", "running"):
            raise Stop(
                f"{headline(record)} has ended: it is {state}.", CHANGED, "Nothing was changed."
            )
        say(f"{headline(record)}: {state}, {begun(record)}.")
    if dry_run:
        say("Nothing was changed.")
        return []
    make_sure(f"Go on with {_count(len(records))}?", yes=yes)
    items = []
    with busy("Going on") as how_far:
        for count, record in enumerate(records, 1):
            how_far(f"{count} of {len(records)}")
            items.append(_resumed(guard, record))
    print_rows(items, _RESUMED, schema="resumed", plural="resumed", empty=EMPTY)
    return items


def _resumed(guard: Guard, record: Record) -> dict[str, Any]:
    """An error stops this run, and no other: it is reported, and stays on the run's record."""
    import asyncio
    import inspect

    from effectonce import ContractViolation
    from effectonce.views.effects import now_of, reference
    from effectonce.views.history import run_state

    why = None
    try:
        value = guard.workflows.resume(record.request.key)
        if inspect.isawaitable(value):
            asyncio.run(_awaited(value))
    except Exception as error:  # noqa: BLE001  # a user's function
        ours = isinstance(error, ContractViolation)
        why = str(error) if ours else f"{type(error).__name__}: {error}"
    after = guard.find(record.request.key) or record
    state = run_state(after, now_of(guard))
    return {
        "reference": reference(record),
        "workflow": record.request.terms.tool,
        "state": state,
        "runs": after.epoch,
        "why": why,
        "_bad": state != "completed",
    }


async def _awaited(value: Any) -> Any:
    return await value


_RESUMED = [
    field("RUN", "reference", whole=True),
    field("WORKFLOW", "workflow"),
    field("NOW", "state", whole=True),
    field("BEGUN", "runs", right=True, whole=True),
    WHY,
]


def _resume_all(
    guard: Guard, name: str | None, *, yes: bool, dry_run: bool
) -> list[dict[str, Any]]:
    import asyncio
    from collections import Counter

    waiting = Counter(record.request.terms.tool for record in guard.workflows.runs(workflow=name))
    tools = tools_of(guard)
    known = {t: tools[t] for t in sorted(waiting) if t in tools and tools[t].terms.steps}
    items: list[dict[str, Any]] = []
    if waiting:
        counted = (
            f"{count:,} of {tool}{'' if tool in known else ' (unknown here)'}"
            for tool, count in waiting.items()
        )
        say(f"{', '.join(counted)}.")
    if dry_run and waiting:
        say("Nothing was changed.")
    elif known:
        make_sure(f"Go on with {_count(sum(waiting[tool] for tool in known))}?", yes=yes)
        with busy("Going on") as how_far:
            for tool, found in known.items():
                how_far(f"with {tool}")
                workflows = guard.workflows
                done = (
                    asyncio.run(workflows.aresume_all(workflow=tool))
                    if found.is_async
                    else workflows.resume_all(workflow=tool)
                )
                items.append(_counted(tool, done))
    unknown = sum(count for tool, count in waiting.items() if tool not in known)
    if not dry_run:
        empty = "" if waiting else _empty("open", name)
        print_rows(items, _COUNTS, schema="resumed", plural="resumed", empty=empty, unknown=unknown)
    if unknown and not for_machines():
        say(
            f"{_count(unknown)} of workflows that this app does not have: import the module that"
            " has them."
        )
    return items


def _counted(tool: str, done: Resumed) -> dict[str, Any]:
    counts = {name: getattr(done, name) for name in ("completed", "failed", "waiting", "running")}
    return {"workflow": tool, **counts, "_bad": bool(done.failed or done.waiting)}


_COUNTS = [
    field("WORKFLOW", "workflow"),
    *(number(name.upper(), name) for name in ("completed", "failed", "waiting", "running")),
]


def _count(runs: int) -> str:
    return f"{runs:,} run{'s' * (runs != 1)}"


# ---------------------------------------------------------------- ending


@workflow.command()
@click.argument("reference", metavar="RUN")
@decision_options
def cancel(*, reference: str, reason: str | None, yes: bool, dry_run: bool) -> None:
    r"""Let a run end: no new step is done, and what was done is compensated.

    A process that runs it finds out before the next step. If no process runs it, resume it: then
    it compensates, and has failed.

    \b
    Examples:
      effectonce workflow cancel eff_3fa94c1f22d0 --reason 'the customer has withdrawn'
      effectonce workflow cancel 3fa9 --reason 'ticket 812' --by ada --yes
    """
    from effectonce import ContractViolation
    from effectonce.cli._audit import say_if_left_out
    from effectonce.cli._effects import headline
    from effectonce.cli._runs import find_run
    from effectonce.views.effects import now_of
    from effectonce.views.history import begun, run_state
    from effectonce.views.runs import as_data

    by = who()
    with guard_here() as guard:
        record, now = find_run(guard, reference), now_of(guard)
        state = run_state(record, now)
        ended = Stop(f"{headline(record)} has ended already.", CHANGED, "Nothing was changed.")
        if state not in ("waiting", "running"):
            raise ended
        refuse_sealed(record)
        say(f"{headline(record)}: {state}, {begun(record)}.")
        why = reason_given(reason)
        if dry_run:
            say(f"It would be ended, by {by}: {why}. Nothing was changed.")
            return
        make_sure("End it, and compensate what was done?", yes=yes)
        try:
            guard.workflows.cancel(record.request.key, by=by, reason=why)
        except ContractViolation:
            raise ended from None
        after = guard.find(record.request.key) or record
        say_if_left_out(guard)
    data = as_data(after, now)
    resume = runnable(f"effectonce workflow resume {data['reference']} --app MODULE:GUARD")
    then = "The process that runs it ends it." if state == "running" else f"Then: {resume}"
    said = f"It is to end, says {data['cancelled']['by']}. {then}"
    print_one(data, lambda: say(said), schema="run")
