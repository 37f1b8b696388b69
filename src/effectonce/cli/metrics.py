"""`effectonce metrics`: what a store holds as Prometheus text, and the dashboard and alerts that
go with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from effectonce.cli._app import guard_here
from effectonce.cli._console import echo
from effectonce.cli._exits import FAILED, Stop
from effectonce.cli._options import takes

if TYPE_CHECKING:
    from effectonce.observe.gauges import StoreGauges
    from effectonce.observe.metrics import Measured

STORE_WIDE = ("effectonce.effect.", "effectonce.in_doubt.", "effectonce.dlq.")


@click.group(invoke_without_command=True)
@takes("store", "app", "config")
@click.pass_context
def metrics(ctx: click.Context) -> None:
    r"""Print what the store holds as Prometheus text: effects by state, doubts, dead letters.

    Counters and durations live in your processes, see docs/howto/observe.md; these are the
    gauges that are the same for all of them. Put the text where a node exporter collects files,
    or look at it. It needs `pip install 'effectonce[prometheus]'`.

    \b
    Examples:
      effectonce metrics --store sqlite:///effects.db > /var/lib/node_exporter/effectonce.prom
      effectonce metrics grafana > effectonce.json
    """
    if ctx.invoked_subcommand is not None:
        return
    try:
        from prometheus_client import CollectorRegistry, generate_latest

        from effectonce.observe.prometheus import Gauges
    except ImportError as missing:
        raise Stop(
            f"this needs prometheus-client ({missing}).",
            FAILED,
            "Install it: pip install 'effectonce[prometheus]'",
        ) from None
    from effectonce._core.ops import Tally
    from effectonce.observe import StoreGauges

    with guard_here() as guard:
        # gauges of a store that does not answer are none, which must not look like zero
        guard.store.apply(Tally())
        registry = CollectorRegistry()
        # all that it asks for is read()
        registry.register(Gauges(_StoreWide(StoreGauges(guard))))  # type: ignore[arg-type]
        echo(generate_latest(registry).decode(), nl=False)


class _StoreWide:
    """Without what only this process knows: breakers of other processes are not in it."""

    def __init__(self, gauges: StoreGauges) -> None:
        self._gauges = gauges

    def read(self) -> tuple[Measured, ...]:
        return tuple(
            measured for measured in self._gauges.read() if measured[0].startswith(STORE_WIDE)
        )


@metrics.command()
def grafana() -> None:
    r"""Print the dashboard for Grafana, as JSON.

    \b
    Examples:
      effectonce metrics grafana > effectonce.json
    """
    from effectonce.observe import grafana as dashboard

    echo(dashboard(), nl=False)


@metrics.command()
def alerts() -> None:
    r"""Print the alert rules for Prometheus, as YAML.

    \b
    Examples:
      effectonce metrics alerts > /etc/prometheus/effectonce.rules.yaml
    """
    from effectonce.observe import alerts as rules

    echo(rules(), nl=False)
