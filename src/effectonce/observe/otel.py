"""Events as OpenTelemetry spans and metrics. Only the API is used: without an SDK it does nothing.

A call is a span `execute_tool {tool}`, and each attempt a child of it in which the tool runs, so
that what the tool's own clients report lies below. A replay has no attempt; it is linked to the
call that did it, if that was in this process. If another library has made the span of this tool
already, it is used and not made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from effectonce.observe.events import Event
from effectonce.observe.gauges import StoreGauges
from effectonce.observe.metrics import MEASURED, METRICS, Bounded, Metric, measured

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
except ImportError as missing:
    raise ImportError(
        "traces need opentelemetry-api. Install it: pip install 'effectonce[otel]'"
    ) from missing

SCOPE = "effectonce"
LINKED_MAX = 4096  # calls of this process that a replay can be linked to
# What is reported inside a span, and worth a mark on it.
MARKS = frozenset({
    "reserved", "retry_scheduled", "retry_suppressed", "in_doubt", "fenced_out", "settled", "kept",
    "breaker",
})  # fmt: skip


class _Open(Struct, frozen=True):
    """A span that is under way here."""

    name: str  # call or attempt
    span: Span
    token: Any
    ours: bool  # False: another library ends it


class OpenTelemetry:
    """An observer that traces and counts: `Guard(..., observers=[OpenTelemetry()])`.

    The providers are the global ones, unless given. With *gauges* it shows what the store holds
    as well, asked when metrics are collected.
    """

    events = MEASURED | MARKS | {"calling", "attempting"}

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        gauges: StoreGauges | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._adds: dict[str, Callable[..., None]] = {}
        self._bounded = Bounded()
        for metric in METRICS.values():
            name, about = metric.name, (metric.unit, metric.help)
            if metric.kind == "counter":
                self._adds[name] = meter.create_counter(name, *about).add
            elif metric.kind == "histogram":
                bounds = metric.buckets
                self._adds[name] = meter.create_histogram(
                    name, *about, explicit_bucket_boundaries_advisory=bounds
                ).record
            elif gauges is not None:
                meter.create_observable_gauge(name, [_observed(gauges, metric)], *about)
        self._open: ContextVar[tuple[_Open, ...]] = ContextVar("effectonce_spans", default=())
        self._done: OrderedDict[str, SpanContext] = OrderedDict()

    def __call__(self, event: Event) -> None:
        for name, value, labels in measured(event):
            self._adds[name](
                value, attributes=_attributes(METRICS[name].labels, self._bounded(name, labels))
            )
        match event.name:
            case "calling":
                self._call_begins(event)
            case "attempting":
                span = self._tracer.start_span("effectonce.attempt", kind=SpanKind.INTERNAL)
                self._push("attempt", span, ours=True)
            case "attempt":
                self._attempt_ends(event)
            case "call":
                self._call_ends(event)
            case "dedup_hit" | "coalesced":
                self._link(event)
            case _:
                pass
        if event.name in MARKS:
            self._mark(event)

    # ------------------------------------------------------------ spans

    def _push(self, name: str, span: Span, *, ours: bool) -> None:
        token = context.attach(trace.set_span_in_context(span))
        self._open.set((*self._open.get(), _Open(name, span, token, ours)))

    def _pop(self) -> _Open:
        *rest, last = self._open.get()
        self._open.set(tuple(rest))
        context.detach(last.token)
        return last

    def _call_begins(self, event: Event) -> None:
        name, current = f"execute_tool {event.tool}", trace.get_current_span()
        ours = getattr(current, "name", "") != name
        span = self._tracer.start_span(name, kind=SpanKind.INTERNAL) if ours else current
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.tool,
                "gen_ai.tool.type": "function",
                "effectonce.tool.kind": event.kind,
            }
        )
        if event.effect is not None and event.effect.key:
            span.set_attribute("effectonce.effect", event.effect.reference)
            if event.effect.scope:
                span.set_attribute("gen_ai.conversation.id", event.effect.scope)
        self._push("call", span, ours=ours)

    def _attempt_ends(self, event: Event) -> None:
        opened = self._open.get()
        if not opened or opened[-1].name != "attempt":
            return
        span = self._pop().span
        span.set_attribute("effectonce.attempt.number", event.attempt)
        span.set_attribute("effectonce.error.class", event.bucket or "none")
        _fail(span, event.error)
        span.end()

    def _call_ends(self, event: Event) -> None:
        if not self._open.get():
            return
        while (last := self._pop()).name != "call":
            last.span.end()  # an attempt that was cut off
        span = last.span
        span.set_attribute("effectonce.outcome", event.outcome)
        span.set_attribute("effectonce.attempt.count", event.attempt)
        _fail(span, event.error)
        if event.effect is not None and event.effect.key and event.outcome == "executed":
            self._done[event.effect.key] = span.get_span_context()
            if len(self._done) > LINKED_MAX:
                self._done.popitem(last=False)
        if last.ours:
            span.end()

    def _link(self, event: Event) -> None:
        opened = self._open.get()
        original = None if event.effect is None else self._done.get(event.effect.key)
        if opened and original is not None:
            opened[-1].span.add_link(original)

    def _mark(self, event: Event) -> None:
        opened = self._open.get()
        if opened:
            reason = "" if event.by else event.reason  # a person's own words
            names = ("effectonce.reason", "effectonce.outcome", "error.type")
            marked = _attributes(names, (reason, event.outcome, event.error))
            if event.delay_s is not None:
                marked["effectonce.retry.delay"] = str(event.delay_s)
            opened[-1].span.add_event(f"effectonce.{event.name}", marked)


def _fail(span: Span, error: str) -> None:
    if error:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))


def _attributes(names: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str]:
    """What is empty is left out: `error.type` is there only if there is an error."""
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _observed(
    gauges: StoreGauges, metric: Metric
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(v, _attributes(metric.labels, labels))
            for name, v, labels in gauges.read()
            if name == metric.name
        ]

    return observe
