"""`effectonce audit`: what happened and who decided it, whether that was changed, and calls that
should have been one.
"""

from __future__ import annotations

import difflib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import guard_here, made_here
from effectonce.cli._commands import runnable
from effectonce.cli._console import busy, console, echo, in_markup, say
from effectonce.cli._exits import FAILED, NEEDS_YOU
from effectonce.cli._filters import limit_option, since_option
from effectonce.cli._options import Number, effect_options, store_options, value_option
from effectonce.cli._output import (
    Column,
    field,
    for_machines,
    print_one,
    print_pairs,
    print_rows,
    shape,
    since,
    words,
)
from effectonce.cli._settings import setting
from effectonce.views.times import iso, moment, span

if TYPE_CHECKING:
    from effectonce.observe import Verified

WRITES = "A guard writes one once it has it: guard.observe(Audit(guard))."
SHOWN = 20
UNSIGNED = "If your guard has a secret, give --app: without it every mark looks wrong."
NOT_CHECKED = (
    "Whether an entry was changed can only be checked with the secret: give --app MODULE:GUARD."
)
REWRITABLE = (
    "These marks are made without a secret: any process that can write to this store can write"
    " another audit that fits. Give your guard a secret, or keep an anchor elsewhere: effectonce"
    " audit anchor FILE"
)
_Anchors = click.Path(exists=True, dir_okay=False, path_type=Path)
_Written = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
_since_option = since_option("Only what happened since")


@click.group()
def audit() -> None:
    r"""Read the audit, verify it, and look in it for calls that should have been one.

    \b
    Examples:
      effectonce audit list --effect eff_3fa94c1f22d0
      effectonce audit verify --app shop.agents:guard
    """


@audit.command("list")
@click.option("--effect", metavar="EFFECT", help="Only about this effect.")
@click.option(
    "--event",
    metavar="NAME",
    help="Only events of this name, such as completed, settled or conflict.",
)
@click.option("--actor", metavar="NAME", help="Only what this person, or `probe`, decided.")
@click.option("--tool", metavar="NAME", help="Only effects of this tool.")
@_since_option
@limit_option
@effect_options
def list_entries(
    *, effect: str | None, event: str | None, since: float | None, **wanted: str | None
) -> None:
    r"""List the newest entries of the audit, oldest first.

    In a pipe each entry is a line: when, event, tool, effect, what it says.

    \b
    Examples:
      effectonce audit list --effect eff_3fa94c1f22d0
      effectonce audit list --event settled --since 7d --json | jq '.entries[].by'
      effectonce audit list --actor ada --limit 10
    """
    from effectonce.cli._audit import entries
    from effectonce.cli._find import find_one
    from effectonce.observe import EVENTS
    from effectonce.views.audit import as_data, describe

    if event is not None and event not in EVENTS:
        near = difflib.get_close_matches(event, EVENTS, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(EVENTS)}."
        raise click.UsageError(f"There is no event {event!r}. {hint}")
    with guard_here() as guard:
        about = None if effect is None else find_one(guard, effect).request.key
        with busy("Reading the audit"):
            wanted |= {"effect": about, "event": event}
            found = entries(guard, limit=setting("limit"), since=_when(since), **wanted)
    items = [{**as_data(entry), "_at": entry.at, "_text": describe(entry)} for entry in found]
    print_rows(
        items,
        _ENTRIES,
        schema="entry",
        plural="entries",
        empty=f"The audit has no such entry. {WRITES}",
    )


_ENTRIES = [
    Column("WHEN", lambda item: moment(item["_at"]), plain=lambda item: item["at"], whole=True),
    words("EVENT", "event"),
    Column("TOOL", lambda item: item.get("tool", "")),
    Column("EFFECT", lambda item: item.get("effect", ""), whole=True),
    field("WHAT", "_text"),
]


def _when(since: float | None) -> float | None:
    """By this machine's clock, as the audit has it."""
    return since if since is None or since >= 0 else time.time() + since


# ---------------------------------------------------------------- verifying


@audit.command()
@click.option(
    "--expect",
    metavar="LINE",
    help="What `audit.head()` gave at some time, and was kept elsewhere: does it still hold?",
)
@click.option(
    "--anchor",
    type=_Anchors,
    metavar="FILE",
    help="What `audit anchor` wrote, and was kept elsewhere: does it still hold?",
)
@store_options
def verify(*, expect: str | None, anchor: Path | None) -> None:
    r"""Find out whether an entry of the audit was changed or removed.

    Give --app if your guard has a secret, because the marks are made with it: without it they
    are not checked. Marks without a secret can be made by any process that can write to the
    store; then only --anchor or --expect shows a change. Nothing is written. The exit code is 0
    if everything was checked and fits, 1 if not. A process that was killed leaves a stream
    without an end; that is no flaw.

    \b
    Examples:
      effectonce audit verify --app shop.agents:guard
      effectonce audit verify --anchor /mnt/elsewhere/audit.anchors --json | jq .flaws
    """
    from msgspec.structs import asdict

    from effectonce import ContractViolation
    from effectonce.cli._audit import anchors_in, audit_of

    with guard_here() as guard, busy("Verifying the audit"):
        unsigned = made_here(guard)
        try:
            verified = audit_of(guard).verify(
                expect=expect, anchors=() if anchor is None else anchors_in(anchor)
            )
        except ContractViolation as error:
            raise click.UsageError(str(error)) from None
    data = {
        "ok": verified.ok,
        "entries": verified.entries,
        "with_secret": verified.keyed,
        "unchecked": list(verified.unchecked),
        "streams": [
            {**asdict(s), "started_at": iso(s.started_at), "written_at": iso(s.written_at)}
            for s in verified.streams
        ],
        "flaws": [asdict(flaw) for flaw in verified.flaws],
    }
    print_one(data, lambda: _tell(verified, known=bool(expect or anchor)), schema="verified")
    if not verified.ok:
        if unsigned and verified.flaws:
            say(UNSIGNED)
        raise SystemExit(FAILED)


def _tell(verified: Verified, *, known: bool) -> None:
    """*known*: something that was kept elsewhere was compared."""
    screen, count = console(), len(verified.streams)
    among = f"{verified.entries:,} entries in {_streams(count)}"
    if not verified.streams and verified.ok:
        screen.print(f"There is no audit in this store. {WRITES}")
    elif verified.flaws:
        _tell_flaws(verified, among)
    elif verified.unchecked:
        screen.print(
            f"[bold yellow]! not checked[/]  {among}: {_streams(len(verified.unchecked))} marked"
            " with a secret."
        )
        screen.print(
            f"The numbers fit together{' and what was kept elsewhere is there' * known}."
            f" {NOT_CHECKED}"
        )
    elif verified.keyed:
        screen.print(f"[green]✓ all fits[/]  {among}; nothing was changed or removed.")
    elif known:
        screen.print(
            f"[green]✓ all fits[/]  {among}; nothing that was kept elsewhere was changed or"
            " removed."
        )
    else:
        screen.print(f"[green]✓ all fits[/]  {among}.")
        screen.print(REWRITABLE)


def _streams(count: int) -> str:
    return f"{count:,} stream{'s' * (count != 1)}"


def _tell_flaws(verified: Verified, among: str) -> None:
    screen, flaws = console(), len(verified.flaws)
    screen.print(f"[bold red]✗ {flaws:,} flaw{'s' * (flaws != 1)}[/]  {among} were looked at.")
    screen.print()
    print_pairs([(flaw.what, flaw.stream, flaw.found) for flaw in verified.flaws[:SHOWN]])
    if flaws > SHOWN:
        screen.print(f"[dim]and {flaws - SHOWN:,} more: --json has them all[/]")


@audit.command()
@click.argument("file", type=_Written, default="-")
@store_options
def anchor(*, file: Path) -> None:
    r"""Write down how far the audit has come: a line of JSON, to FILE or standard output.

    Keep FILE where those who can write to the store cannot write. `effectonce audit verify
    --anchor FILE` then finds an audit that was rewritten or cut since. Nothing is written to the
    store, and no secret is needed to write an anchor.

    \b
    Examples:
      effectonce audit anchor /mnt/elsewhere/audit.anchors
      effectonce audit anchor | ssh vault 'cat >> audit.anchors'
    """
    from effectonce.cli._audit import append_line, audit_of

    with guard_here() as guard, busy("Reading the heads of the audit"):
        line = audit_of(guard).anchor()
    if str(file) == "-":
        echo(line)
    else:
        append_line(file, line)
        streams = [each["entries"] for each in json.loads(line)["streams"].values()]
        data = {"file": str(file), "entries": sum(streams), "streams": len(streams)}
        done = f"Anchored {sum(streams):,} entries in {_streams(len(streams))}."
        keep = f"Keep {file} where writers of the store cannot write."
        print_one(data, lambda: say(f"{done} {keep}"), schema="anchored")


# ---------------------------------------------------------------- symptoms


@audit.command()
@value_option("--within", 10.0, Number(0.0), "How close two calls are.", "SECONDS")
@value_option("--deploy", 120.0, Number(0.0), "The same after a start.", "SECONDS")
@click.option("--check", is_flag=True, help="Exit with 3 if something was found.")
@_since_option
@store_options
def scan(*, within: float, deploy: float, check: bool, since: float | None) -> None:
    r"""Look for calls that were probably one, and got two keys.

    Same tool and same arguments within seconds under different keys, or around a deploy: most
    often something is in the key that changes from one attempt to the next. Each line says what,
    and what to do about it.

    \b
    Examples:
      effectonce audit scan --since 7d
      effectonce audit scan --within 60 --check --json | jq '.symptoms[].likely'
    """
    from msgspec.structs import asdict

    from effectonce.cli._audit import audit_of, entries

    with guard_here() as guard, busy("Reading the audit"):
        entries(guard, limit=1)  # one that is sealed is not free of symptoms
        found = audit_of(guard).scan(within_s=within, deploy_s=deploy, since=_when(since))
    items = [{**asdict(s), "at": iso(s.at), "apart_s": round(s.apart_s, 3)} for s in found]
    if items and shape() == "table":
        _tell_symptoms(items)
    else:
        empty = "No two calls look as if they should have been one."
        print_rows(items, _SYMPTOMS, schema="symptom", empty=empty)
    if items and not for_machines():
        first = runnable(f"effectonce effect show {items[0]['effects'][0]}")
        say(f"{len(items):,} found. Compare two: {first}")
    if check and items:
        raise SystemExit(NEEDS_YOU)


def _tell_symptoms(items: list[dict[str, Any]]) -> None:
    """What is likely wrong is a sentence, and must not be cut."""
    screen = console()
    for item in items:
        which = f"{' and '.join(item['effects'])}, {span(item['apart_s'])} apart"
        screen.print(f"[bold]{in_markup(item['tool'])}[/]  {which}")
        print_pairs([("", item["likely"])])


_SYMPTOMS = [
    field("TOOL", "tool"),
    Column("EFFECTS", lambda item: " ".join(item["effects"]), whole=True),
    since("APART", "apart_s", "apart_s"),
    field("DIFFERS", "differs"),
    field("LIKELY", "likely"),
]
