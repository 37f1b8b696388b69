"""`effectonce provider`: what the APIs of others do with a repeated request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._console import say
from effectonce.cli._exits import NOT_FOUND, Stop
from effectonce.cli._options import takes
from effectonce.cli._output import Column, field, print_one, print_pairs, print_rows, shape
from effectonce.views.providers import answers, overview, remark, sources

if TYPE_CHECKING:
    from effectonce.providers import Provider


@click.group()
def provider() -> None:
    r"""See what the APIs of others do with a repeated request.

    \b
    Examples:
      effectonce provider list
      effectonce provider show stripe.v1
      effectonce provider show aws.ec2.RunInstances
    """


@provider.command("list")
@takes("config", "output", "color")
def list_providers() -> None:
    r"""List all providers: where the key goes, how long it counts, and what a repeat gets.

    A ? stands where a page says nothing, or where no page was found that states what is shown.
    The operations of AWS are not listed: each is aws.<service>.<Operation>, read from botocore.

    \b
    Examples:
      effectonce provider list
      effectonce provider list --json | jq '.providers[] | select(.repeat == "runs_again") | .name'
    """
    from effectonce.providers import provider as provider_named
    from effectonce.providers import providers

    columns = [
        field("PROVIDER", "name", whole=True),
        Column("KEY", lambda item: item["_words"][0]),
        Column("WINDOW", lambda item: item["_words"][1], whole=True),
        Column("REPEAT", lambda item: item["_words"][2], whole=True),
    ]
    found = [provider_named(name) for name in providers()]
    items = [{**_as_data(each), "_words": overview(each)} for each in found]
    print_rows(items, columns, schema="provider", empty="There are none.")
    if shape() == "table":
        say("Operations of AWS have no row: `effectonce provider show aws.<service>.<Operation>`.")


@provider.command()
@click.argument("name", metavar="PROVIDER")
@takes("config", "output", "color")
def show(*, name: str) -> None:
    r"""Show one provider: its key, its answers to a repeat, and the pages that state them.

    \b
    Examples:
      effectonce provider show stripe.v1
      effectonce provider show paypal.orders --json | jq .window_s
      effectonce provider show aws.dynamodb.TransactWriteItems
    """
    from effectonce import ContractViolation
    from effectonce.providers import provider as provider_named
    from effectonce.providers import providers

    try:
        found = provider_named(name)
    except ContractViolation as error:
        if name in providers():
            raise
        raise Stop(str(error), NOT_FOUND, error.corrective_action) from None
    print_one(_as_data(found), lambda: _print(found), schema="provider")


def _as_data(found: Provider) -> dict[str, Any]:
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(found)
    return data


def _print(found: Provider) -> None:
    rows = [("provider", f"{found.name}: {found.title}"), ("summary", found.summary)]
    for name, label, value in answers(found):
        beside = remark(getattr(found.facts, name)) if name else ""
        rows.append((label, f"{value} ({beside})" if beside else value))
    for link, day, fields in sources(found):
        rows += [("source", link), ("", f"read on {day}: {fields}")]
    print_pairs(rows)
