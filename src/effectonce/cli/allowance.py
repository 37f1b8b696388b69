"""`effectonce allowance`: what is left of spending limits."""

from __future__ import annotations

import click

from effectonce.cli._app import guard_here
from effectonce.cli._console import say
from effectonce.cli._filters import filter_options, limit_option
from effectonce.cli._options import effect_options
from effectonce.cli._output import Column, field, for_machines, number, print_rows
from effectonce.cli._settings import setting
from effectonce.views.filter_fields import ALLOWANCES, ListFilter
from effectonce.views.times import span

LOOKED_AT = 1000  # accounts, to find those of a tool


@click.group()
def allowance() -> None:
    r"""See what is left of spending limits, and what holds the rest.

    \b
    Examples:
      effectonce allowance list
      effectonce allowance list refunds --json | jq '.allowances[] | select(.left == 0)'
    """


@allowance.command("list")
@click.argument("name", required=False)
@filter_options(ALLOWANCES)
@limit_option
@effect_options
def list_allowances(*, name: str | None, asked: ListFilter) -> None:
    r"""List the accounts of allowances that calls asked something of, or those of NAME.

    What is reserved belongs to calls that are under way. What is in doubt may have been spent,
    and counts until that is settled. REFUSED is how many calls did not fit since the window began:
    a call that an agent repeats counts each time.

    \b
    Examples:
      effectonce allowance list
      effectonce allowance list refunds --limit 500
      effectonce allowance list --tool refund --app shop.agents:guard
      effectonce allowance list --json | jq '.allowances[].left'
    """
    from effectonce.views.allowances import account_data, spends
    from effectonce.views.effects import now_of

    limit = setting("limit")
    with guard_here() as guard:
        now = now_of(guard)
        most = limit + 1 if asked.tool is None else LOOKED_AT
        accounts = guard.allowances.list(name, tenant=asked.tenant, limit=most)
        found = [each for each in accounts if spends(guard, asked.tool, each)]
    items = [account_data(account, now) for account in found[:limit]]
    whose = "No allowance" if name is None else f"No allowance {name!r}"
    whose += "" if asked.tool is None else f" of the tool {asked.tool!r}"
    print_rows(items, _COLUMNS, schema="allowance", empty=f"{whose} was asked for in this store.")
    if len(found) > limit and not for_machines():
        say("There are more: give a higher --limit.")


_COLUMNS = [
    field("ALLOWANCE", "allowance"),
    field("WHOSE", "subject"),
    number("SPENT", "spent"),
    Column(
        "HELD",
        lambda item: f"{item['reserved'] + item['in_doubt']:,}",
        lambda item: item["reserved"] + item["in_doubt"],
        right=True,
        whole=True,
    ),
    number("LEFT", "left"),
    number("REFUSED", "refused"),
    Column(
        "REFILLS",
        lambda item: f"in {span(item['_refills_s'])}" if item["refills_at"] else "",
        lambda item: item["refills_at"] or "",
    ),
]
