"""`effectonce find`: effects by what people know of them."""

from __future__ import annotations

import click

from effectonce.cli._app import guard_here
from effectonce.cli._console import busy
from effectonce.cli._filters import limit_option
from effectonce.cli._options import effect_options
from effectonce.cli._output import print_rows
from effectonce.cli._settings import setting


@click.command()
@click.argument("text", metavar="TEXT")
@limit_option
@effect_options
def find(*, text: str) -> None:
    r"""Find effects by what people know of them: a payment id, a customer.

    Found are effects of tools that declare `searchable=`, by these arguments: the whole of one,
    or its beginning. Where your guard has a secret, give --app, and the whole of it.

    \b
    Examples:
      effectonce find pay_38
      effectonce find 'Ada Lovelace' --json | jq '.effects[].reference'
    """
    from effectonce.cli._effects import COLUMNS, listed
    from effectonce.views.effects import now_of

    with guard_here() as guard:
        now = now_of(guard)
        with busy(f"Looking for {text}"):
            found = guard.search(text, tenant=setting("tenant") or None, limit=setting("limit"))
    print_rows(
        [listed(record, now) for record in found],
        COLUMNS,
        schema="effect",
        empty=f"No effect is known by {text!r}. Only tools that declare searchable= are found.",
    )
