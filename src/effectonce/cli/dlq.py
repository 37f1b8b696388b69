"""`effectonce dlq`: work off dead letters. A letter is an effect that was given up on without an
outcome.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import app_here, guard_here
from effectonce.cli._ask import make_sure, reason_given, refuse_sealed, who
from effectonce.cli._console import busy, echo, say
from effectonce.cli._exits import FAILED, INTERRUPTED, NOT_ALLOWED
from effectonce.cli._filters import cursor_option, limit_option, pace_option, read_options
from effectonce.cli._letters import letter_filters
from effectonce.cli._options import (
    app_options,
    decision_options,
    dry_run_option,
    effect_options,
    reason_option,
    store_options,
    takes,
    yes_option,
)
from effectonce.cli._output import (
    WHY,
    field,
    for_machines,
    print_one,
    print_rows,
    shape,
)
from effectonce.cli._settings import setting
from effectonce.views.filter_fields import LETTERS

if TYPE_CHECKING:
    from effectonce.dead_letters import Wanted

EMPTY = "No dead letter fits. One appears when a call gives up, or when an effect is in doubt."
_Written = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
_List = click.Path(dir_okay=False, path_type=Path)
_LISTED = "Where to write what was discarded.  [default: a new file here, if there are several]"
_Read = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group()
def dlq() -> None:
    r"""Work off dead letters: what gave up, or cannot go on.

    A letter is an effect that was given up on without an outcome. Nothing is ever dropped: a
    letter ends when its effect has an outcome.

    \b
    Examples:
      effectonce dlq list --group
      effectonce dlq redrive --all --tool refund --dry-run --app shop.agents:guard
    """


# ---------------------------------------------------------------- looking


@dlq.command("list")
@partial(letter_filters, without=("group",))
@click.option(
    "--group",
    is_flag=False,
    flag_value="",
    metavar="[GROUP]",
    help="Only dead letters of this group; without a name, as `effectonce dlq groups` does.",
)
@cursor_option("letter")
@limit_option
@effect_options
def list_letters(*, wanted: Wanted, group: str | None, cursor: str | None) -> None:
    r"""List dead letters, the oldest effect first.

    In a pipe each letter is a line: reference, tool, what became of the effect, place, attempts,
    error, when it was given up.

    \b
    Examples:
      effectonce dlq list --tool refund --older-than 1h
      effectonce dlq list --group
      effectonce dlq list --state never-started --json | jq '.letters[].reference'
    """
    from effectonce.cli._find import find_one
    from effectonce.cli._letters import LETTER_ROWS, as_data
    from effectonce.recovery.in_doubt import place

    if group == "":
        _print_groups(wanted)
        return
    if group is not None:
        wanted["group"] = read_options(LETTERS, {"group": group}).group or ""
    limit = setting("limit")
    with guard_here() as guard, busy("Looking for letters"):
        after = (0.0, "") if cursor is None else place(find_one(guard, cursor))
        letters = guard.dead_letters.list(limit=limit, after=after, **wanted)
    last = letters[-1].reference if len(letters) == limit else None
    print_rows(
        [as_data(letter) for letter in letters],
        LETTER_ROWS,
        schema="letter",
        empty=EMPTY,
        cursor=last,
    )
    if last is not None:
        say(f"There may be more: --cursor {last}")


@dlq.command()
@letter_filters
@effect_options
def groups(*, wanted: Wanted) -> None:
    r"""Count dead letters by what they have in common, the largest group first.

    Letters of one tool and one tenant, with the same error and the same cause, are a group.

    \b
    Examples:
      effectonce dlq groups
      effectonce dlq groups --older-than 1d --json | jq '.groups[0]'
    """
    _print_groups(wanted)


def _print_groups(wanted: Wanted) -> None:
    from effectonce.cli._letters import GROUPS, group_data
    from effectonce.views.effects import now_of

    with guard_here() as guard, busy("Counting letters"):
        now, found = now_of(guard), guard.dead_letters.groups(**wanted)
    items = [group_data(group, now) for group in found]
    print_rows(items, GROUPS, schema="group", empty=EMPTY)
    if items and shape() == "table":
        say("The first group:")
        for command in items[0]["settle"]:
            echo(f"  {command}", err=True)  # in two lines it could not be copied


@dlq.command()
@click.argument("reference", metavar="EFFECT")
@click.option("--reveal", is_flag=True, help="Show arguments and key as well.")
@effect_options
def show(*, reference: str, reveal: bool) -> None:
    r"""Show one dead letter with every attempt, and what can be done with it.

    \b
    Examples:
      effectonce dlq show eff_3fa94c1f22d0
      effectonce dlq show 3fa9 --reveal --json | jq .attempts
    """
    from effectonce.cli._discarding import the_letter
    from effectonce.cli._find import find_one
    from effectonce.cli._letters import as_data
    from effectonce.cli._story import tell
    from effectonce.views.effects import now_of

    with guard_here() as guard:
        record, now = find_one(guard, reference), now_of(guard)
        letter = the_letter(guard, record, now, failed=True)
    print_one(
        as_data(letter, reveal=reveal), lambda: tell(record, now, reveal=reveal), schema="letter"
    )


# ---------------------------------------------------------------- redriving


@dlq.command()
@click.argument("references", metavar="[EFFECT]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that fit the filters.")
@letter_filters
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="At most this many.  [default: none]"
)
@pace_option(10.0, "--rps")
@click.option("--early", is_flag=True, help="Even before the time that the downstream asked for.")
@reason_option
@yes_option
@dry_run_option
@takes("by", "no_input", "tenant")
@app_options
def redrive(
    *,
    references: tuple[str, ...],
    everything: bool,
    wanted: Wanted,
    limit: int | None,
    pace: float,
    early: bool,
    reason: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    r"""Call the tools of dead letters again, with the stored arguments, under the same keys.

    A letter that is redriven twice, or by two people, is one effect; what is in doubt is settled
    by its probe, or stays. You are shown what would be done and asked. It needs --app, because
    tools are your code. Ctrl-C stops after the letter at hand; the rest can be done later. The
    exit code is 1 if something that was redriven is not done.

    \b
    Examples:
      effectonce dlq redrive eff_3fa94c1f22d0 --reason 'the bank is back' --app shop.agents:guard
      effectonce dlq redrive --group g_91c2a04be7 --pace 5/s --reason 'the bank is back' --app shop.agents:guard
      effectonce dlq redrive --all --tool refund --dry-run --app shop.agents:guard
      effectonce dlq redrive --all --error NotSent --rps 2 --reason 'ticket 812' --by ada --yes --app shop.agents:guard
    """
    from effectonce.cli._redriving import DONE, ROWS, Redriving, due, preview, summary

    everything = everything or "group" in wanted
    if everything is bool(references):
        raise click.UsageError("Say which: EFFECT, or --all, which takes filters, or --group.")
    with closing(app_here()) as guard:
        redriving = Redriving(guard, early=early)
        items = redriving.plan(references, wanted, limit)
        if not dry_run and due(items):
            say(preview(items))
            by, why = who(), reason_given(reason)
            make_sure(f"Redrive {len(due(items)):,} under the same keys?", yes=yes)
            items = redriving.go(items, by=by, reason=why, rps=pace)
    counts = dict(sorted(Counter(item["what"] for item in items).items()))
    print_rows(items, ROWS, schema="redriven", plural="redriven", empty=EMPTY, counts=counts)
    if items and not for_machines():
        say(summary(items) + (" Nothing was changed." if dry_run else ""))
    if redriving.stopped:
        say("Stopped. What was not tried is a letter as before.")
        raise SystemExit(INTERRUPTED)
    tried = [item for item in items if references or item["ran"]]
    if not dry_run and any(item["what"] not in DONE for item in tried):
        raise SystemExit(FAILED)


# ---------------------------------------------------------------- discarding


@dlq.command()
@click.argument("references", metavar="[EFFECT]...", nargs=-1)
@letter_filters
@pace_option(20.0)
@click.option("--undo-list", "file", type=_List, help=_LISTED)
@decision_options
def discard(
    *,
    references: tuple[str, ...],
    wanted: Wanted,
    pace: float,
    file: Path | None,
    reason: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    r"""Say that it will never be done: every later call gets that as a failure.

    What was never sent can be discarded without looking anywhere. What is in doubt is refuted by
    this, so look downstream first. What was sent under a key that is still honoured is refused:
    redrive it, and it is done once. Instead of EFFECT you may give a group, or filters: you are
    shown what fits and asked.

    \b
    Examples:
      effectonce dlq discard eff_3fa94c1f22d0 --reason 'the customer has withdrawn'
      effectonce dlq discard 3fa9 71bc --reason 'ticket 812' --by ada --yes
      effectonce dlq discard --group g_91c2a04be7 --reason 'the campaign is over'
    """
    from effectonce.cli._discarding import DISCARDED, Discarding

    filtered = {*wanted} - {"tenant"} != {"failed"} or wanted["failed"]
    if filtered is bool(references):
        raise click.UsageError("Say which: EFFECT, or --group, or filters such as --tool.")
    by = who()
    with guard_here() as guard:
        discarding = Discarding(guard, pace=pace, file=file)
        records = discarding.plan(references, wanted)
        why = reason_given(reason) if records else ""
        if records and not dry_run:
            make_sure(f"Discard {_letters(len(records))}?", yes=yes)
        items = discarding.foresee() if dry_run else discarding.go(by, why)
    print_rows(items, DISCARDED, schema="discarded", plural="discarded", empty=EMPTY)
    if not for_machines():
        verb = "would be discarded. Nothing was changed" if dry_run else f"discarded, says {by}"
        say(f"{_letters(sum(item['why'] is None for item in items))} {verb}.")
    if discarding.stopped:
        say("Stopped. What was not tried is a letter as before.")
        raise SystemExit(INTERRUPTED)
    if not dry_run and not all(item["discarded"] for item in items):
        raise SystemExit(NOT_ALLOWED)


def _letters(count: int) -> str:
    return f"{count:,} letter{'s' * (count != 1)}"


# ---------------------------------------------------------------- carrying


@dlq.command("export")
@click.argument("file", type=_Written, default="-")
@letter_filters
@takes("tenant", "store", "app", "config")
def export_letters(*, file: Path, wanted: Wanted) -> None:
    r"""Write dead letters as JSON Lines, to FILE or standard output.

    Each line is whole: arguments, key, terms and evidence, with a digest. What a keyring seals
    in the store is in the clear in it, so FILE is made for its owner alone. Definite failures
    are outcomes, and stay; so do runs of workflows, which only their own store can go on with.

    \b
    Examples:
      effectonce dlq export letters.jsonl
      effectonce dlq export --tool refund | gzip > refunds.jsonl.gz
    """
    with guard_here() as guard, busy("Exporting"):
        for letter in guard.dead_letters.list(limit=1, **wanted):
            refuse_sealed(letter.record)
        target = sys.stdout.buffer if str(file) == "-" else str(file)
        written = guard.dead_letters.export(target, **wanted)
    say(f"{_letters(written)}. Arguments are in the clear.")


@dlq.command("import")
@click.argument("file", type=_Read, default="-")
@store_options
def import_letters(*, file: Path) -> None:
    r"""Take dead letters from FILE or standard input into this store, keys and evidence too.

    Importing the same file twice has no effect. Invalid lines are reported with their number and
    the reason, and the other lines are imported; then the exit code is 1.

    \b
    Examples:
      effectonce dlq import letters.jsonl --store postgresql://app@db/effects
      zcat refunds.jsonl.gz | effectonce dlq import --json | jq .problems
    """
    from effectonce._core.pages import Recent

    with guard_here(create=True) as guard, busy("Importing"):
        for record in guard.store.apply(Recent(limit=1)).records:
            refuse_sealed(record)
        came_to = guard.dead_letters.load(sys.stdin.buffer if str(file) == "-" else str(file))
    items = [{"line": problem.line, "why": problem.why} for problem in came_to.problems]
    bad = len(items)
    words = (
        f"{came_to.imported:,} imported, {came_to.known:,} known already, {bad:,} bad"
        f" line{'s' * (bad != 1)}."
    )
    columns = [field("LINE", "line", right=True, whole=True), WHY]
    counts: dict[str, Any] = {"imported": came_to.imported, "known": came_to.known}
    print_rows(items, columns, schema="problem", empty=words, **counts)
    if items:
        if not for_machines():
            say(words)
        raise SystemExit(FAILED)
