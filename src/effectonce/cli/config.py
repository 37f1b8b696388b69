"""`effectonce config`: which settings are in force, and where they come from."""

from __future__ import annotations

from typing import Any

import click

from effectonce.cli._options import takes
from effectonce.cli._output import Column, field, print_rows
from effectonce.cli._settings import (
    FILE,
    SETTINGS,
    files,
    here,
    named_file,
    setting,
    settings,
    user_file,
)


@click.group()
def config() -> None:
    r"""See which settings are in force, and where they come from.

    \b
    Examples:
      effectonce config show --origin
      effectonce config path
    """


@config.command()
@click.option("--origin", is_flag=True, help="Say where each comes from.")
@takes("store", "app", "tenant", "config", "output", "color")
def show(*, origin: bool) -> None:
    r"""Show every setting as it is in force here.

    The stronger wins: an option, a variable EFFECTONCE_*, effectonce.toml, [tool.effectonce] in
    pyproject.toml, the user's own file, the default. A password is never shown.

    \b
    Examples:
      effectonce config show --origin
      EFFECTONCE_OUTPUT=json effectonce config show
    """
    from effectonce.stores._urls import shown

    known = settings()
    items: list[dict[str, Any]] = [
        {
            "name": s.name,
            "value": shown(known[s.name].value) if s.name == "store" else known[s.name].value,
            "origin": known[s.name].origin,
            "variable": s.variable,
        }
        for s in SETTINGS
    ]
    columns = [
        field("SETTING", "name", whole=True),
        Column("VALUE", lambda item: _shown(item["value"])),
        *([field("FROM", "origin")] if origin else []),
    ]
    print_rows(items, columns, schema="setting", empty="")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "-"


@config.command()
@takes("config", "output", "color")
def path() -> None:
    r"""Show which settings files count here, the strongest first.

    \b
    Examples:
      effectonce config path
      $EDITOR "$(effectonce config path | head -1 | cut -f1)"
    """
    setting("output")  # reports a bad file
    found = files(here(), named_file())
    places = [*found, *(place for place in (here() / FILE, user_file()) if place not in found)]
    items = [{"path": str(place), "found": place in found} for place in places]
    columns = [
        field("FILE", "path"),
        Column("", lambda item: "read" if item["found"] else "not there", whole=True),
    ]
    print_rows(items, columns, schema="file", empty="")
