"""Every metric, once: its name, unit and labels, and which events it counts. Prometheus and
OpenTelemetry are made from this. Pure.

A label has few values: tools, outcomes, kinds of errors. Never a key, a tenant, an effect, a
message. What others name is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from effectonce._text import on_one_line
from effectonce.observe.events import Event

TOOL, ERROR = "gen_ai.tool.name", "error.type"
_SECONDS = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)  # as the GenAI conventions have it
_STORE = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)
_AGES = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0, 2592000.0)


class Metric(Struct, frozen=True, kw_only=True):
    """One metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    labels: tuple[str, ...] = ()
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """As Prometheus shows it, and as OpenTelemetry's exporter for it does."""
        unit = "_seconds" if self.unit == "s" else ""
        return underscored(self.name) + unit + ("_total" if self.kind == "counter" else "")

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        return tuple(underscored(label) for label in self.labels)


def underscored(name: str) -> str:
    return name.replace(".", "_")


def _registry(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: dict[str, Metric] = _registry(
    Metric(
        name="effectonce.calls",
        kind="counter",
        unit="{call}",
        labels=(TOOL, "effectonce.outcome"),
        help="Calls, by how they ended.",
    ),
    Metric(
        name="effectonce.attempts",
        kind="counter",
        unit="{attempt}",
        labels=(TOOL, "effectonce.error.class", ERROR),
        help=(
            "Attempts: how often tools were run. The class of an error is its bucket, none if it"
            " went well."
        ),
    ),
    Metric(
        name="effectonce.retries.suppressed",
        kind="counter",
        unit="{retry}",
        labels=("effectonce.reason",),
        help="Attempts that were not made, by what kept them back.",
    ),
    Metric(
        name="effectonce.key.conflicts",
        kind="counter",
        unit="{conflict}",
        labels=(TOOL,),
        help="Keys that came with other arguments.",
    ),
    Metric(
        name="effectonce.taken_over",
        kind="counter",
        unit="{effect}",
        labels=(TOOL, "effectonce.outcome"),
        help=(
            "Effects whose caller vanished after they were sent, when another call came: it goes on"
            " with them, or they are in doubt."
        ),
    ),
    Metric(
        name="effectonce.in_doubt.entries",
        kind="counter",
        unit="{effect}",
        labels=(TOOL,),
        help="Effects that went in doubt.",
    ),
    Metric(
        name="effectonce.in_doubt.resolutions",
        kind="counter",
        unit="{resolution}",
        labels=("effectonce.resolution", "effectonce.actor"),
        help="Doubts that were settled: as what, and by a human or a probe.",
    ),
    Metric(
        name="effectonce.dlq.entries",
        kind="counter",
        unit="{entry}",
        labels=("effectonce.reason",),
        help="Effects that became dead letters.",
    ),
    Metric(
        name="effectonce.dlq.actions",
        kind="counter",
        unit="{action}",
        labels=("effectonce.action",),
        help="Dead letters that were redriven or discarded.",
    ),
    Metric(
        name="effectonce.breaker.transitions",
        kind="counter",
        unit="{transition}",
        labels=("effectonce.dependency", "effectonce.breaker.state"),
        help="Changes of breakers, by the phase that they came to.",
    ),
    Metric(
        name="effectonce.store.errors",
        kind="counter",
        unit="{error}",
        labels=("effectonce.store.operation", ERROR),
        help="Operations that the store did not answer.",
    ),
    Metric(
        name="gen_ai.execute_tool.duration",
        kind="histogram",
        unit="s",
        labels=(TOOL, ERROR),
        buckets=_SECONDS,
        help="How long calls took, with all their attempts.",
    ),
    Metric(
        name="gen_ai.invoke_workflow.duration",
        kind="histogram",
        unit="s",
        labels=("gen_ai.workflow.name", ERROR),
        buckets=_SECONDS,
        help="How long runs of workflows took.",
    ),
    Metric(
        name="effectonce.attempt.duration",
        kind="histogram",
        unit="s",
        labels=(TOOL, "effectonce.error.class"),
        buckets=_SECONDS,
        help="How long attempts took.",
    ),
    Metric(
        name="effectonce.store.operation.duration",
        kind="histogram",
        unit="s",
        labels=("effectonce.store.operation", "db.system.name"),
        buckets=_STORE,
        help="How long the store took to answer.",
    ),
    Metric(
        name="effectonce.replay.key_age",
        kind="histogram",
        unit="s",
        labels=(TOOL,),
        buckets=_AGES,
        help="How old the outcome of a key was when it was replayed.",
    ),
    Metric(
        name="effectonce.in_doubt.resolution.duration",
        kind="histogram",
        unit="s",
        labels=("effectonce.actor",),
        buckets=_AGES,
        help="How long effects were in doubt.",
    ),
    Metric(
        name="effectonce.effect.count",
        kind="gauge",
        unit="{effect}",
        labels=("effectonce.state",),
        help="Effects in the store, by state.",
    ),
    Metric(
        name="effectonce.in_doubt.oldest_age",
        kind="gauge",
        unit="s",
        help="How long the oldest doubt is open; 0 if there is none.",
    ),
    Metric(
        name="effectonce.dlq.size",
        kind="gauge",
        unit="{entry}",
        labels=(TOOL,),
        help="Dead letters in the store.",
    ),
    Metric(
        name="effectonce.dlq.oldest_age",
        kind="gauge",
        unit="s",
        help="How old the oldest dead letter is; 0 if there is none.",
    ),
    Metric(
        name="effectonce.breaker.state",
        kind="gauge",
        unit="{breaker}",
        labels=("effectonce.dependency", "effectonce.breaker.state"),
        help="1 for the phase that a breaker of this process is in, 0 for the others.",
    ),
    Metric(
        name="effectonce.retry_budget.available",
        kind="gauge",
        unit="{token}",
        labels=("effectonce.dependency",),
        help="What is left of the retry budgets of this process.",
    ),
    Metric(
        name="effectonce.observer.errors",
        kind="gauge",
        unit="{error}",
        labels=("effectonce.observer",),
        help="How often each kind of observer of this process raised.",
    ),
)

OTHER, VALUES_MAX = "_OTHER", 200  # the conventions have this word for it
_FROM_OUTSIDE = frozenset(
    {TOOL, ERROR, "gen_ai.workflow.name", "effectonce.dependency"}
)  # names that are not ours: there may be any number


class Bounded:
    """An observer's labels. After *limit* values of a label, all others are one, `_OTHER`."""

    def __init__(self, limit: int = VALUES_MAX) -> None:
        self._limit = limit
        self._seen: dict[str, set[str]] = {label: set() for label in _FROM_OUTSIDE}

    def __call__(self, metric: str, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(self._one, METRICS[metric].labels, values))

    def _one(self, label: str, value: str) -> str:
        seen = self._seen.get(label)
        if seen is None or not value:
            return value
        value = on_one_line(value)
        if value in seen:
            return value
        if len(seen) >= self._limit:
            return OTHER
        seen.add(value)
        return value


Measured = tuple[str, float, tuple[str, ...]]  # the metric, the value, and the labels in its order


def measured(event: Event) -> Iterator[Measured]:
    """What an event adds to which metric."""
    took_s = event.duration_s or 0.0
    # the store's clock was put back: a sum never goes down
    age_s = None if event.age_s is None else max(0.0, event.age_s)
    match event.name:
        case "call":
            yield "effectonce.calls", 1, (event.tool, event.outcome)
            yield "gen_ai.execute_tool.duration", took_s, (event.tool, event.error)
        case "attempt":
            bucket = event.bucket or "none"
            yield "effectonce.attempts", 1, (event.tool, bucket, event.error)
            yield "effectonce.attempt.duration", took_s, (event.tool, bucket)
        case "retry_suppressed":
            yield "effectonce.retries.suppressed", 1, (event.reason,)
        case "dedup_hit" | "coalesced" if age_s is not None:
            yield "effectonce.replay.key_age", age_s, (event.tool,)
        case "conflict":
            yield "effectonce.key.conflicts", 1, (event.tool,)
        case "in_doubt":
            yield "effectonce.in_doubt.entries", event.count or 1, (event.tool,)
        case "settled":
            actor = "probe" if event.by == "probe" else "human"
            yield "effectonce.in_doubt.resolutions", 1, (event.outcome, actor)
            if age_s is not None:
                yield "effectonce.in_doubt.resolution.duration", age_s, (actor,)
        case _:
            yield from _rarer(event, took_s)


def _rarer(event: Event, took_s: float) -> Iterator[Measured]:
    match event.name:
        case "store":
            yield "effectonce.store.operation.duration", took_s, (event.operation, event.dependency)
        case "store_error":
            yield "effectonce.store.errors", 1, (event.operation, event.error)
        case "breaker":
            yield "effectonce.breaker.transitions", 1, (event.dependency, event.outcome)
        case "taken_over":
            yield "effectonce.taken_over", 1, (event.tool, event.outcome)
        case "dead_letter":
            yield "effectonce.dlq.entries", 1, (event.reason,)
        case "redriven":
            yield "effectonce.dlq.actions", event.count or 1, ("redrive",)
        case "discarded":
            yield "effectonce.dlq.actions", event.count or 1, ("discard",)
        case "workflow":
            yield "gen_ai.invoke_workflow.duration", took_s, (event.tool, event.error)
        case _:
            pass


MEASURED = frozenset(
    {
        *(
            "call",
            "attempt",
            "retry_suppressed",
            "dedup_hit",
            "coalesced",
            "conflict",
            "in_doubt",
            "settled",
        ),
        *(
            "store",
            "store_error",
            "breaker",
            "dead_letter",
            "redriven",
            "discarded",
            "workflow",
            "taken_over",
        ),
    }
)
