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
_DEPENDENCY, _PHASE = "effectonce.dependency", "effectonce.breaker.state"
_OPERATION, _ACTOR = "effectonce.store.operation", "effectonce.actor"
_SECONDS = tuple(0.01 * 2**n for n in range(14))  # as the GenAI conventions have it
_STORE = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0
)  # fmt: skip
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


def _counter(name: str, unit: str, *labels: str, text: str) -> Metric:
    return Metric(name=name, kind="counter", unit=unit, labels=labels, help=text)


def _gauge(name: str, unit: str, *labels: str, text: str) -> Metric:
    return Metric(name=name, kind="gauge", unit=unit, labels=labels, help=text)


def _histogram(name: str, buckets: tuple[float, ...], *labels: str, text: str) -> Metric:
    return Metric(name=name, kind="histogram", unit="s", labels=labels, help=text, buckets=buckets)


_ALL = (
    _counter("effectonce.calls", "{call}", TOOL, "effectonce.outcome",
        text="Calls, by how they ended."),
    _counter("effectonce.attempts", "{attempt}", TOOL, "effectonce.error.class", ERROR,
        text="Attempts: how often tools were run. The class of an error is its bucket,"
            " none if it went well."),
    _counter("effectonce.retries.suppressed", "{retry}", "effectonce.reason",
        text="Attempts that were not made, by what kept them back."),
    _counter("effectonce.key.conflicts", "{conflict}", TOOL,
        text="Keys that came with other arguments."),
    _counter("effectonce.taken_over", "{effect}", TOOL, "effectonce.outcome",
        text="Effects whose caller vanished after they were sent, when another call came:"
            " it goes on with them, or they are in doubt."),
    _counter("effectonce.in_doubt.entries", "{effect}", TOOL,
        text="Effects that went in doubt."),
    _counter("effectonce.in_doubt.resolutions", "{resolution}", "effectonce.resolution", _ACTOR,
        text="Doubts that were settled: as what, and by a human or a probe."),
    _counter("effectonce.dlq.entries", "{entry}", "effectonce.reason",
        text="Effects that became dead letters."),
    _counter("effectonce.dlq.actions", "{action}", "effectonce.action",
        text="Dead letters that were redriven or discarded."),
    _counter("effectonce.breaker.transitions", "{transition}", _DEPENDENCY, _PHASE,
        text="Changes of breakers, by the phase that they came to."),
    _counter("effectonce.store.errors", "{error}", _OPERATION, ERROR,
        text="Operations that the store did not answer."),
    _histogram("gen_ai.execute_tool.duration", _SECONDS, TOOL, ERROR,
        text="How long calls took, with all their attempts."),
    _histogram("gen_ai.invoke_workflow.duration", _SECONDS, "gen_ai.workflow.name", ERROR,
        text="How long runs of workflows took."),
    _histogram("effectonce.attempt.duration", _SECONDS, TOOL, "effectonce.error.class",
        text="How long attempts took."),
    _histogram("effectonce.store.operation.duration", _STORE, _OPERATION, "db.system.name",
        text="How long the store took to answer."),
    _histogram("effectonce.replay.key_age", _AGES, TOOL,
        text="How old the outcome of a key was when it was replayed."),
    _histogram("effectonce.in_doubt.resolution.duration", _AGES, _ACTOR,
        text="How long effects were in doubt."),
    _gauge("effectonce.effect.count", "{effect}", "effectonce.state",
        text="Effects in the store, by state."),
    _gauge("effectonce.in_doubt.oldest_age", "s",
        text="How long the oldest doubt is open; 0 if there is none."),
    _gauge("effectonce.dlq.size", "{entry}", TOOL,
        text="Dead letters in the store."),
    _gauge("effectonce.dlq.oldest_age", "s",
        text="How old the oldest dead letter is; 0 if there is none."),
    _gauge("effectonce.breaker.state", "{breaker}", _DEPENDENCY, _PHASE,
        text="1 for the phase that a breaker of this process is in, 0 for the others."),
    _gauge("effectonce.retry_budget.available", "{token}", _DEPENDENCY,
        text="What is left of the retry budgets of this process."),
    _gauge("effectonce.observer.errors", "{error}", "effectonce.observer",
        text="How often each kind of observer of this process raised."),
)  # fmt: skip
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}

OTHER, VALUES_MAX = "_OTHER", 200  # the conventions have this word for it
# names that are not ours: there may be any number
_FROM_OUTSIDE = (TOOL, ERROR, "gen_ai.workflow.name", _DEPENDENCY)


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


MEASURED = frozenset({
    "call", "attempt", "retry_suppressed", "dedup_hit", "coalesced", "conflict", "in_doubt",
    "settled", "store", "store_error", "breaker", "dead_letter", "redriven", "discarded",
    "workflow", "taken_over",
})  # fmt: skip
