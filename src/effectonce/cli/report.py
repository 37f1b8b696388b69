"""`effectonce report`: what was prevented, to pass on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import guard_here
from effectonce.cli._console import console, echo, say
from effectonce.cli._options import effect_options
from effectonce.cli._output import (
    field,
    number,
    print_json,
    print_line,
    print_pairs,
    print_rows,
    shape,
)
from effectonce.cli._settings import setting

if TYPE_CHECKING:
    from effectonce.observe import PreventionReport

DAYS_SHOWN = 14  # as bars; more days are one strip


@click.command()
@click.option(
    "--since", default="7d", show_default=True, metavar="WHEN",
    help="From when on: 1d (today), 7d, 4w, or a date in UTC.",
)  # fmt: skip
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
@click.option("--markdown", "as_markdown", is_flag=True, help="As Markdown, to paste.")
@effect_options
def report(*, since: str, tool: str | None, as_markdown: bool) -> None:
    r"""Say what was prevented: duplicates, doubts, conflicts, by day, tool and tenant.

    Calls count what they came to, and the store keeps it per day of UTC for 90 days. A process
    adds its counts every 5 seconds and when it ends, so every figure is what happened at least:
    one that is killed loses its last seconds. 7d is today and the six days before.

    \b
    Examples:
      effectonce report
      effectonce report --since 30d --tool refund
      effectonce report --since 7d --markdown
      effectonce report --since 1d --json | jq .total.prevented
    """
    from effectonce.views.effects import now_of
    from effectonce.views.prevented import markdown, nothing_yet, report_data, since_s

    with guard_here() as guard:
        try:
            ago_s = since_s(since, now_of(guard))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--since") from None
        found = guard.report(ago_s, tool=tool, tenant=setting("tenant") or None)
    if shape() == "json":
        print_json({"schema": "effectonce.report/1", **report_data(found)})
    elif shape() == "jsonl":
        print_line(report_data(found), "report")
    elif nothing_yet(found):
        say(nothing_yet(found))
    elif as_markdown:
        echo(markdown(found))
    elif shape() == "plain":
        print_rows(_days(found), [*_DAY, *_COUNTS], schema="day", empty="")
    else:
        _tell(found)


def _days(found: PreventionReport) -> list[dict[str, Any]]:
    return [{"name": day, **_row(counts)} for day, counts in found.days.items()]


def _row(counts: Any) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in ("landed", "prevented", "conflicts", "doubts")}


def _tell(found: PreventionReport) -> None:
    from rich.text import Text

    from effectonce.views.prevented import AT_LEAST, figures, headline, settled_how, shown_name

    screen = console()
    screen.print(Text(f"{headline(found)}."), style="bold")
    screen.print(Text(f"{found.first} to {found.last}, UTC."), style="dim")
    screen.print()
    shown = [(title, f"{n:,}") for _, title, n in figures(found.total) if n]
    if how := settled_how(found.total):
        shown.append(("How they were settled", how))
    print_pairs(shown)
    screen.print()
    _tell_days(found)
    for title, groups in (("TOOL", found.tools), ("TENANT", found.tenants)):
        if len(groups) > (title == "TENANT"):
            screen.print()
            rows = [{"name": shown_name(name), **_row(counts)} for name, counts in groups.items()]
            columns = [_NAME[title], *_COUNTS]
            print_rows(rows, columns, schema=title.lower(), empty="")
    screen.print()
    screen.print(Text(AT_LEAST), style="dim")


def _tell_days(found: PreventionReport) -> None:
    """A bar for each day, or one strip of them all."""
    from rich.text import Text

    from effectonce.cli._charts import bar, strip

    screen = console()
    days = {day: counts.prevented for day, counts in found.days.items()}
    most = max(days.values()) or 1
    if len(days) == 1:
        return
    screen.print(Text("Prevented, by day"), style="dim")
    if len(days) > DAYS_SHOWN:
        width = max(1, -(-len(days) // screen.width))
        chunks = [list(days.values())[n : n + width] for n in range(0, len(days), width)]
        high = max(map(sum, chunks)) or 1
        screen.print(Text(strip(tuple(sum(chunk) / high for chunk in chunks))))
        return
    width = screen.width - 13 - len(f"{most:,}")
    for day, count in days.items():
        screen.print(Text(f"{day}  {bar(count / most, max(4, width))} {count:,}"))


_NAME = {title: field(title, "name") for title in ("TOOL", "TENANT")}
_DAY = [field("DAY", "name")]
_COUNTS = [
    number("LANDED", "landed"),
    number("PREVENTED", "prevented"),
    number("CONFLICTS", "conflicts"),
    number("IN DOUBT", "doubts"),
]
