"""`effectonce breaker`: what processes have found out about the dependencies that they share."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from effectonce.cli._app import app_here, guard_here
from effectonce.cli._console import console, in_markup
from effectonce.cli._exits import NOT_FOUND, Stop
from effectonce.cli._options import app_options, store_options
from effectonce.cli._output import Column, field, print_one, print_pairs, print_rows, words
from effectonce.cli._settings import setting
from effectonce.views.times import span


@click.group()
def breaker() -> None:
    r"""See the circuit breakers that processes share.

    \b
    Examples:
      effectonce breaker list --app shop.agents:guard
      effectonce breaker show stripe --store postgresql://app@db/effects
    """


@breaker.command("list")
@app_options
def list_breakers() -> None:
    r"""List the breakers of your tools, and what the processes that share them say.

    A breaker lives in each process. Those with `shared=` put their votes into the store, and
    these can be read from here.

    \b
    Examples:
      effectonce breaker list --app shop.agents:guard
      effectonce breaker list --app shop.agents:guard --json | jq '.breakers[] | select(.state == "open")'
    """
    from effectonce.views.breakers import NOT_SHARED, circuits_of, standing

    items = []
    with closing(app_here()) as guard:
        for name, (circuit, tools) in sorted(circuits_of(guard).items()):
            found = NOT_SHARED if circuit.shared is None else standing(circuit.shared, name)
            items.append({"name": name, "tools": tools, **found})
    columns = [
        field("BREAKER", "name", whole=True),
        words("STATE", "state", _style),
        Column("TOOLS", lambda item: ", ".join(item["tools"])),
        field("WHY", "why"),
    ]
    empty = "No tool has a breaker: @guard.tool(breaker=breaker('stripe', shared=store))."
    print_rows(items, columns, schema="breaker", empty=empty)


@breaker.command()
@click.argument("name")
@store_options
def show(*, name: str) -> None:
    r"""Show what each process says about one dependency.

    \b
    Examples:
      effectonce breaker show stripe --app shop.agents:guard
      effectonce breaker show stripe --store redis://cache:6379/0 --json | jq .processes
    """
    from effectonce.views.breakers import NOT_SHARED, circuits_of, standing

    with guard_here() as guard:
        known = circuits_of(guard)
        shared = known[name][0].shared if name in known else None
        found = standing(guard.store if shared is None else shared, name)
    if not found["processes"] and name not in known:
        advice = "Is it in another store?"
        if setting("app"):
            named = f" This app has: {', '.join(known)}." if known else ""
            advice = f"A breaker that is not shared lives in its process alone.{named}"
        raise Stop(f"no process has reported anything about {name!r} lately.", NOT_FOUND, advice)
    if name in known and shared is None:
        found = dict(NOT_SHARED)
    data = {"name": name, "tools": known[name][1] if name in known else [], **found}
    print_one(data, lambda: _tell(data), schema="breaker")


def _style(item: dict[str, Any]) -> str:
    return {"open": "bold red", "closed": "green"}.get(item["state"], "dim")


def _tell(data: dict[str, Any]) -> None:
    screen = console()
    state = f"[{_style(data)}]{data['state'].replace('_', ' ')}[/]"
    screen.print(f"{state}  [bold]{in_markup(data['name'])}[/]  {in_markup(data['why'])}")
    if data["tools"]:
        screen.print(f"[dim]tools[/]  {in_markup(', '.join(data['tools']))}")
    print_pairs(
        [(p["process"], p["state"], f"seen {span(p['seen_s'])} ago") for p in data["processes"]]
    )
