"""Events as Prometheus metrics, with the names and labels of OpenTelemetry's exporter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from effectonce.observe.events import Event
from effectonce.observe.gauges import StoreGauges
from effectonce.observe.metrics import MEASURED, METRICS, Bounded, Metric, measured

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
except ImportError as missing:
    raise ImportError(
        "Prometheus metrics need prometheus-client. Install it: pip install"
        " 'effectonce[prometheus]'"
    ) from missing


class Prometheus:
    """An observer that counts: `Guard(..., observers=[Prometheus()])`. Serve *registry* as you
    do, by default the library's own.

    With *gauges* it shows what the store holds as well, asked when metrics are collected.
    """

    events = MEASURED

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, gauges: StoreGauges | None = None
    ) -> None:
        self._metrics = {m.name: _made(m, registry) for m in METRICS.values() if m.kind != "gauge"}
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._bounded = Bounded()
        if gauges is not None:
            registry.register(Gauges(gauges))

    def __call__(self, event: Event) -> None:
        for name, value, labels in measured(event):
            self._child(name, labels)(value)

    def _child(self, name: str, labels: tuple[str, ...]) -> Any:
        """How to add to a metric with these labels."""
        known = self._children.get((name, labels))
        if known is not None:
            return known
        labels = self._bounded(name, labels)
        known = self._children.get((name, labels))
        if known is None:
            child: Any = self._metrics[name].labels(*labels)
            known = child.observe if METRICS[name].kind == "histogram" else child.inc
            self._children[name, labels] = known
        return known


def _made(metric: Metric, registry: CollectorRegistry) -> Any:
    name = metric.prometheus_name
    if metric.kind == "counter":
        return Counter(name, metric.help, metric.prometheus_labels, registry=registry)
    return Histogram(
        name, metric.help, metric.prometheus_labels, registry=registry, buckets=metric.buckets
    )


class Gauges:
    """What a registry asks when metrics are collected."""

    def __init__(self, gauges: StoreGauges) -> None:
        self._gauges = gauges

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Names only: registering must not ask the store."""
        return [_family(metric) for metric in METRICS.values() if metric.kind == "gauge"]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, value, labels in self._gauges.read():
            families.setdefault(name, _family(METRICS[name])).add_metric(labels, value)
        return families.values()


def _family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.prometheus_name, metric.help, labels=metric.prometheus_labels)
