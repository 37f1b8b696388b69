"""`effectonce effect`: what was done, what was not, and what is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from effectonce.cli._app import guard_here
from effectonce.cli._commands import runnable
from effectonce.cli._console import busy, say
from effectonce.cli._filters import Filters, after, filters, limit_option
from effectonce.cli._options import (
    app_options,
    effect_options,
    reason_option,
    takes,
    with_options,
    yes_option,
)
from effectonce.cli._output import print_line, print_one, print_rows

if TYPE_CHECKING:
    from effectonce._core.record import Record

PAGE = 20_000  # each page of an export looks at the whole store, so there should be few


@click.group()
def effect() -> None:
    r"""Look at effects: lists, and the whole story of one.

    \b
    Examples:
      effectonce effect list --state in-doubt
      effectonce effect show eff_3fa94c1f22d0
    """


@effect.command("list")
@filters
@limit_option
@effect_options
def list_effects(*, filters: Filters) -> None:
    r"""List effects, the newest first.

    On a terminal this is a table; in a pipe each effect is a line: reference, tool, state,
    place, sends, when it was claimed. With a filter, 2,000 effects are looked at. If there are
    more, you get the --cursor of the next page.

    \b
    Examples:
      effectonce effect list --tool refund --since 2h
      effectonce effect list --state in-doubt --json | jq '.effects[].reference'
      effectonce effect list --cursor eff_3fa94c1f22d0
    """
    from effectonce.cli._effects import COLUMNS, listed
    from effectonce.views.effects import now_of, reference

    with guard_here() as guard:
        now = now_of(guard)
        with busy("Looking for effects"):
            page = filters.page(guard, now)
    cursor = None if page.further is None else reference(page.further)
    print_rows(
        [listed(record, now) for record in page.records],
        COLUMNS,
        schema="effect",
        empty=_empty() if cursor is None else "No effect fits among those that were looked at.",
        cursor=cursor,
    )
    if cursor is not None:
        say(f"There may be more: --cursor {cursor}")


def _empty() -> str:
    return (
        "No effect fits. An effect appears when a guarded tool is called: `effectonce demo` shows"
        f" one, `{runnable('effectonce store check')}` says which store this is."
    )


@effect.command()
@click.argument("reference", metavar="EFFECT")
@click.option("--reveal", is_flag=True, help="Show arguments, result and key as well.")
@click.option(
    "--no-audit",
    is_flag=True,
    help="Do not read the audit, which takes its time where it is large.",
)
@effect_options
def show(*, reference: str, reveal: bool, no_audit: bool) -> None:
    r"""Tell the whole story of one effect.

    EFFECT is a reference such as eff_3fa94c1f22d0, the first digits of one, or a key. You get
    what is known, when it was claimed, sent and decided, how each attempt failed, who owns it,
    what was found out later, who asked for it again, settled or undid it and why, what the audit
    has about it, and the commands for what can be done now. Arguments and the result are hidden
    unless you ask for them.

    \b
    Examples:
      effectonce effect show eff_3fa94c1f22d0
      effectonce effect show 3fa9 --reveal --json | jq .result
    """
    from effectonce.cli._find import find_one
    from effectonce.cli._story import tell
    from effectonce.views.audit import as_data as entry_data
    from effectonce.views.audit import entries_about
    from effectonce.views.effects import as_data, now_of
    from effectonce.views.effects import reference as reference_of
    from effectonce.views.undo import undo_data, undo_sentence

    with guard_here() as guard:
        record, now = find_one(guard, reference), now_of(guard)
        with busy("Reading the audit"):
            entries = [] if no_audit else entries_about(guard, record, reference_of(record))
        undo = undo_data(record, guard.find)
    audit = [entry_data(entry) for entry in entries]
    data = {**as_data(record, now, reveal=reveal), **undo, "audit": audit}
    said = undo_sentence(undo)
    print_one(data, lambda: tell(record, now, entries, reveal=reveal, undo=said), schema="effect")


@effect.command("undo")
@click.argument("reference", metavar="EFFECT")
@with_options(reason_option, yes_option, takes("by", "no_input", "tenant"), app_options)
def undo_effect(*, reference: str, reason: str | None, yes: bool) -> None:
    r"""Undo an effect that happened, by the undo that its tool declares.

    It is done once, however often you ask: asked again, you get what came of it. An effect that
    is in doubt has to be settled first. It needs --app, because tools are your code. The exit
    code is 1 if it is not undone.

    \b
    Examples:
      effectonce effect undo eff_3fa94c1f22d0 --reason 'wrong customer' --app shop.agents:guard
      effectonce effect undo 3fa9 --reason 'ticket 812' --by ada --yes --app shop.agents:guard
    """
    from effectonce.cli._undo import run_undo

    run_undo(reference, reason, yes=yes)


@effect.command()
@filters
@click.option("--reveal", is_flag=True, help="Arguments, results and keys as well.")
@takes("tenant", "store", "app", "config")
def export(*, filters: Filters, reveal: bool) -> None:
    r"""Write effects as JSON Lines, the newest first.

    One effect to a line, as `effectonce effect show --json` has it. What is claimed while this
    runs may be missing.

    \b
    Examples:
      effectonce effect export > effects.jsonl
      effectonce effect export --since 7d --tool refund --reveal | gzip > refunds.jsonl.gz
    """
    from effectonce.views.effects import as_data, now_of

    written = 0
    with guard_here() as guard, busy("Exporting") as how_far:
        now = now_of(guard)
        search = filters.search(guard, now, PAGE)
        while True:
            page: tuple[Record, ...] = guard.store.apply(search)
            found = [record for record in page if filters.fits(record, now)]
            for record in found:
                print_line(as_data(record, now, reveal=reveal), "effect")
            written += len(found)
            how_far(f"{written:,}")
            if len(page) < PAGE:
                break
            search = after(search, page[-1].created_at, page[-1].request.key)
    say(f"{written:,} effects.")
