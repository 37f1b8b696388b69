"""Everything that happens, for observers: events, an audit, logs, metrics and traces.

    guard = Guard("sqlite:///effects.db", observers=[Logs()])
    guard.observe(Audit(guard))

An observer is any callable that takes an `Event`. `Prometheus` is in
`effectonce.observe.prometheus`, `OpenTelemetry` in `effectonce.observe.otel`: each needs its
library.
"""

from effectonce.observe._hash_chain import Entry
from effectonce.observe._symptoms import Symptom
from effectonce.observe._verification import Flaw, Stream, Verified
from effectonce.observe.audit import Audit
from effectonce.observe.dashboards import alerts, grafana
from effectonce.observe.events import EVENTS, OUTCOMES, Event
from effectonce.observe.gauges import StoreGauges, Waiting
from effectonce.observe.logs import Logs, StructLog
from effectonce.observe.metrics import METRICS, Metric
from effectonce.observe.report import PreventedCounts, PreventionReport

__all__ = [
    "EVENTS",
    "METRICS",
    "OUTCOMES",
    "Audit",
    "Entry",
    "Event",
    "Flaw",
    "Logs",
    "Metric",
    "PreventedCounts",
    "PreventionReport",
    "StoreGauges",
    "Stream",
    "StructLog",
    "Symptom",
    "Verified",
    "Waiting",
    "alerts",
    "grafana",
]
