"""Metrics and traces: both from the same events and the same registry, and with the same names."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import promql_parser
import pytest
import yaml
from opentelemetry import trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import StatusCode
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from effectonce import (
    Bucket,
    Circuit,
    Conflict,
    ContractViolation,
    Guard,
    InDoubt,
    Rejected,
    RetryBudget,
    StoreUnavailable,
    current_effect,
)
from effectonce._core.ops import Tally
from effectonce.observe import EVENTS, METRICS, Event, StoreGauges, Waiting, alerts, grafana
from effectonce.observe.metrics import MEASURED, VALUES_MAX, measured
from effectonce.observe.otel import OpenTelemetry
from effectonce.observe.prometheus import Prometheus
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.observe.helpers import QUICK

ROOT = Path(__file__).parent.parent.parent
LETTERS = lambda: Waiting({"pay": 3}, 12.0)


def busy(observer, guard=None):
    """A guard to which most things happen once."""
    guard = guard or Guard(MemoryStore(), cache=0)
    guard.observe(observer)
    answers = [ConnectionError(), 1, TimeoutError("card-number"), Rejected("no")]

    @guard.tool(
        kind="write",
        identity=[],
        retry=QUICK,
        breaker=Circuit("bank"),
        budget=RetryBudget("bank"),
        not_sent=[ConnectionError],
    )
    def pay(amount: int):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def call(step, amount=1):
        with guard.step("chat", step):
            return pay(amount)

    call("one")
    call("one")
    with pytest.raises(Conflict):
        call("one", 2)
    with pytest.raises(InDoubt):
        call("two")
    with pytest.raises(Rejected):
        call("three")
    (doubt,) = guard.in_doubt()
    guard.refute(doubt.request.key, by="ana", reason="not in the ledger")
    for name in EVENTS.keys() - {"calling", "call", "attempting", "attempt"}:
        guard._house.watch.emit(
            Event(
                name=name,
                at=0.0,
                tool="pay",
                reason="budget",
                outcome="x",
                operation="claim",
                dependency="bank",
                age_s=1.0,
                error="E",
            )
        )
    return guard


def samples(registry):
    """Every sample as name and labels, with its value."""
    return {
        (
            sample.name,
            tuple(
                sorted((k, v) for k, v in sample.labels.items() if v and not k.startswith("otel_"))
            ),
        ): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created") and not sample.name.startswith("target_info")
    }


def value(registry, name, **labels):
    return sum(
        v
        for (n, found), v in samples(registry).items()
        if n == name and labels.items() <= dict(found).items()
    )


# ---------------------------------------------------------------- prometheus


def test_what_happened_is_counted():
    registry = CollectorRegistry()
    busy(Prometheus(registry))

    calls = {
        o: value(registry, "effectonce_calls_total", effectonce_outcome=o)
        for o in ("executed", "replayed", "conflict", "in_doubt", "failed")
    }
    assert calls == {"executed": 1, "replayed": 1, "conflict": 1, "in_doubt": 1, "failed": 1}
    assert value(registry, "effectonce_attempts_total", effectonce_error_class="none") == 1
    assert (
        value(
            registry,
            "effectonce_attempts_total",
            error_type="TimeoutError",
            effectonce_error_class="no_answer",
        )
        == 1
    )
    assert (
        value(
            registry,
            "effectonce_in_doubt_resolutions_total",
            effectonce_actor="human",
            effectonce_resolution="not_happened",
        )
        == 1
    )
    assert (
        value(registry, "gen_ai_execute_tool_duration_seconds_count", gen_ai_tool_name="pay") == 5
    )
    assert (
        value(
            registry,
            "effectonce_store_operation_duration_seconds_count",
            db_system_name="memory",
            effectonce_store_operation="complete",
        )
        == 1
    )


def test_no_label_has_a_key_a_tenant_or_a_message():
    registry = CollectorRegistry()
    guard = busy(Prometheus(registry))
    text = generate_latest(registry).decode()
    assert "card-number" not in text
    assert "ana" not in re.findall(r'"([^"]*)"', text)
    for record in guard.store._records:
        assert record not in text
        assert record[-12:] not in text


def test_a_label_has_so_many_values_and_no_more():
    ours, theirs, reader = CollectorRegistry(), CollectorRegistry(), PrometheusMetricReader()
    REGISTRY.unregister(reader._collector)
    theirs.register(reader._collector)
    observers = (
        Prometheus(ours),
        OpenTelemetry(
            meter_provider=MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
        ),
    )
    for n in range(3 * VALUES_MAX):
        for observer in observers:
            observer(
                Event(
                    name="attempt",
                    at=0.0,
                    tool="pay",
                    bucket="unknown",
                    error=f"Error{n % (2 * VALUES_MAX)}",
                )
            )

    for found in (samples(ours), samples(theirs)):
        attempts = {
            dict(labels)["error_type"]: v
            for (name, labels), v in found.items()
            if name == "effectonce_attempts_total"
        }
        assert (len(attempts), attempts["Error7"], attempts["_OTHER"]) == (
            VALUES_MAX + 1,
            2,
            VALUES_MAX,
        )


def test_every_event_that_counts_is_counted_in_a_metric_that_exists():
    seen = set()
    for name in EVENTS:
        counted = list(measured(Event(name=name, at=0.0, age_s=1.0, duration_s=1.0)))
        assert bool(counted) is (name in MEASURED), name
        for metric, _, labels in counted:
            assert len(labels) == len(METRICS[metric].labels)
            seen.add(metric)
    assert seen == {metric.name for metric in METRICS.values() if metric.kind != "gauge"}


def test_a_clock_that_was_put_back_takes_nothing_away():
    clock, registry = FakeClock(), CollectorRegistry()
    guard = Guard(MemoryStore(clock=clock), cache=0, observers=[Prometheus(registry)])

    @guard.tool(kind="write", retry=QUICK)
    def pay(n: int):
        if n == 2:
            raise TimeoutError

    for _ in range(2):
        with guard.step("chat", "pay"):
            pay(1)
        with guard.step("chat", "doubtful"), pytest.raises(InDoubt) as caught:
            pay(2)
        clock.advance(-500)

    assert "(0 s ago)" in str(caught.value)
    assert value(registry, "effectonce_replay_key_age_seconds_sum", gen_ai_tool_name="pay") == 0
    assert value(registry, "effectonce_replay_key_age_seconds_count", gen_ai_tool_name="pay") == 1


# ---------------------------------------------------------------- gauges


def test_the_store_is_asked_at_most_every_fifteen_seconds():
    now, asked = [0.0], []

    class Counting(MemoryStore):
        def apply(self, op, /):
            asked.append(type(op))
            return super().apply(op)

    guard = Guard(Counting())
    gauges = StoreGauges(guard, clock=lambda: now[0])
    registry = CollectorRegistry()
    Prometheus(registry, gauges=gauges)
    assert asked == []

    for now[0] in (0.0, 14.9, 15.0):
        generate_latest(registry)
    assert asked.count(Tally) == 2


def test_a_store_that_takes_long_to_be_counted_is_asked_less_often():
    now, asked = [0.0], []

    class Slow(MemoryStore):
        def apply(self, op, /):
            if isinstance(op, Tally):
                asked.append(now[0])
                now[0] += 10.0
            return super().apply(op)

    gauges = StoreGauges(Guard(Slow()), clock=lambda: now[0])
    for now[0] in (0.0, 30.0, 209.0, 210.0):
        gauges.read()
    assert asked == [0.0, 210.0]


def test_gauges_tell_what_the_store_holds_and_how_the_breakers_are():
    registry = CollectorRegistry()
    guard = Guard(MemoryStore(), cache=0)
    busy(Prometheus(registry, gauges=StoreGauges(guard, dead_letters=LETTERS)), guard)
    guard.observe(lambda event: 1 / 0)
    guard._house.watch.emit(Event(name="call", at=0.0))

    assert value(registry, "effectonce_effect_count", effectonce_state="completed") == 1
    assert value(registry, "effectonce_effect_count", effectonce_state="failed") == 2
    assert value(registry, "effectonce_in_doubt_oldest_age_seconds") == 0
    assert value(registry, "effectonce_dlq_size", gen_ai_tool_name="pay") == 3
    assert value(registry, "effectonce_dlq_oldest_age_seconds") == 12
    assert (
        value(
            registry,
            "effectonce_breaker_state",
            effectonce_breaker_state="closed",
            effectonce_dependency="bank",
        )
        == 1
    )
    assert value(registry, "effectonce_breaker_state", effectonce_breaker_state="open") == 0
    assert value(registry, "effectonce_retry_budget_available", effectonce_dependency="bank") > 0
    assert value(registry, "effectonce_observer_errors") == 1


def test_a_store_that_does_not_answer_has_no_gauges():
    class Away(MemoryStore):
        def apply(self, op, /):
            raise StoreUnavailable("away")

    assert StoreGauges(Guard(Away())).read() == ()


def test_dead_letters_are_counted_by_tool_and_the_oldest_doubt_has_an_age():
    guard = Guard(MemoryStore())

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        raise TimeoutError

    for step in ("one", "two"):
        with guard.step("chat", step), pytest.raises(InDoubt):
            pay()
    found = {
        name: (v, labels)
        for name, v, labels in StoreGauges(guard).read()
        if name.startswith(("effectonce.dlq", "effectonce.in_doubt"))
    }
    assert found["effectonce.dlq.size"] == (2, ("pay",))
    assert 0 <= found["effectonce.dlq.oldest_age"][0] < 60
    assert 0 <= found["effectonce.in_doubt.oldest_age"][0] < 60


# ---------------------------------------------------------------- both


def test_opentelemetry_shows_the_same_names_labels_and_counts_as_prometheus():
    ours, theirs, reader = CollectorRegistry(), CollectorRegistry(), PrometheusMetricReader()
    REGISTRY.unregister(reader._collector)  # it goes to the global one by itself
    theirs.register(reader._collector)
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    guard = Guard(MemoryStore(), cache=0)
    gauges = StoreGauges(guard, dead_letters=LETTERS)
    guard.observe(OpenTelemetry(meter_provider=provider, gauges=gauges))
    busy(Prometheus(ours, gauges=gauges), guard)

    def shape(found):
        return {
            (name, labels): v
            for (name, labels), v in found.items()
            if not name.endswith(("_sum", "_bucket"))
        }

    def buckets(found):
        return {
            (name, float(dict(labels)["le"])) for name, labels in found if name.endswith("_bucket")
        }

    mine, its = samples(ours), samples(theirs)
    assert shape(mine) == shape(its)
    assert {name for name, _ in mine} == {name for name, _ in its}
    assert buckets(mine) == buckets(its)
    histograms = {
        metric.prometheus_name for metric in METRICS.values() if metric.kind == "histogram"
    }
    plain = {
        name for name, _ in mine if not any(name.startswith(histogram) for histogram in histograms)
    }
    counted = {
        name.removesuffix("_count")
        for name, _ in mine
        if name.endswith("_count") and name not in plain
    }
    assert plain | counted | {"effectonce_observer_errors"} == {
        metric.prometheus_name for metric in METRICS.values()
    }
    REGISTRY.register(reader._collector)  # where it looks for itself when it ends
    provider.shutdown()


# ---------------------------------------------------------------- spans


@pytest.fixture
def spans():
    """A guard that is traced, the tracer, and what was exported."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    guard = Guard(MemoryStore(), observers=[OpenTelemetry(tracer_provider=provider)])
    return guard, provider.get_tracer("test"), exporter


def traced(guard, *answers, colour="sync", inside=lambda: None):
    left = list(answers)

    def body():
        inside()
        answer = left.pop(0)
        current_effect().downstream_key  # noqa: B018  # sent with the request
        if isinstance(answer, BaseException):
            raise answer
        return answer

    if colour == "sync":

        @guard.tool(kind="write", downstream="key", retry=QUICK)
        def pay():
            return body()

        def call():
            with guard.step("chat", "pay"):
                return pay()

        return call

    @guard.tool(kind="write", downstream="key", retry=QUICK, name="pay")
    async def apay():
        return body()

    async def acall():
        async with guard.step("chat", "pay"):
            return await apay()

    return lambda: asyncio.run(acall())


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_call_is_a_span_with_a_child_for_each_attempt_in_which_the_tool_runs(spans, colour):
    guard, tracer, exporter = spans
    call = traced(
        guard,
        TimeoutError("card-number"),
        "receipt",
        colour=colour,
        inside=lambda: tracer.start_span("http").end(),
    )

    call()

    http1, first, http2, second, whole = exporter.get_finished_spans()
    assert [span.name for span in (first, second, whole)] == [
        "effectonce.attempt",
        "effectonce.attempt",
        "execute_tool pay",
    ]
    assert {first.parent.span_id, second.parent.span_id} == {whole.context.span_id}
    assert (http1.parent.span_id, http2.parent.span_id) == (
        first.context.span_id,
        second.context.span_id,
    )
    assert dict(first.attributes) == {
        "effectonce.attempt.number": 1,
        "effectonce.error.class": "no_answer",
        "error.type": "TimeoutError",
    }
    assert first.status.status_code is StatusCode.ERROR
    said = dict(whole.attributes)
    assert said.pop("effectonce.effect").startswith("eff_")
    assert said == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "chat",
        "effectonce.tool.kind": "write",
        "effectonce.outcome": "executed",
        "effectonce.attempt.count": 2,
    }
    assert [event.name for event in whole.events] == [
        "effectonce.reserved",
        "effectonce.retry_scheduled",
    ]
    assert "card-number" not in "".join(span.to_json() for span in exporter.get_finished_spans())
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_replay_has_no_attempt_and_is_linked_to_the_call_that_did_it(spans):
    guard, _, exporter = spans
    call = traced(guard, "receipt")
    call()
    call()
    _, first, again = exporter.get_finished_spans()
    assert again.attributes["effectonce.outcome"] == "replayed"
    assert [link.context.span_id for link in again.links] == [first.context.span_id]


def test_a_span_that_somebody_else_made_for_this_tool_is_used(spans):
    guard, tracer, exporter = spans
    call = traced(guard, "receipt")
    with tracer.start_as_current_span("execute_tool pay"):
        call()
    attempt, whole = exporter.get_finished_spans()
    assert whole.attributes["effectonce.outcome"] == "executed"
    assert attempt.parent.span_id == whole.context.span_id


def test_a_call_that_is_refused_or_cut_off_ends_its_spans(spans):
    guard, _, exporter = spans

    @guard.tool(kind="write")
    def pay():
        return 1

    with pytest.raises(ContractViolation):
        pay()
    (refused,) = exporter.get_finished_spans()
    assert (refused.attributes["effectonce.outcome"], refused.attributes["error.type"]) == (
        "refused",
        "ContractViolation",
    )

    observer = guard._house.watch.observers[0]
    observer(Event(name="calling", at=0.0, tool="cut"))
    observer(Event(name="attempting", at=0.0, tool="cut"))
    observer(Event(name="call", at=0.0, tool="cut", outcome="cancelled"))
    observer(Event(name="call", at=0.0, tool="nobody's"))
    observer(Event(name="attempt", at=0.0, tool="nobody's"))
    observer(Event(name="dedup_hit", at=0.0, tool="nobody's"))
    observer(Event(name="in_doubt", at=0.0, tool="nobody's"))
    assert [span.name for span in exporter.get_finished_spans()[1:]] == [
        "effectonce.attempt",
        "execute_tool cut",
    ]


def test_only_so_many_calls_are_remembered_for_links(spans, monkeypatch):
    from effectonce.observe import otel

    monkeypatch.setattr(otel, "LINKED_MAX", 1)
    guard, _, exporter = spans

    @guard.tool(kind="write")
    def pay():
        return 1

    for step in ("one", "two", "one", "two"):
        with guard.step("chat", step):
            pay()
    whole = [span for span in exporter.get_finished_spans() if span.name != "effectonce.attempt"]
    assert [len(span.links) for span in whole] == [0, 0, 0, 1]


def test_the_words_of_the_conventions_are_theirs():
    known = {v for k, v in vars(gen_ai_attributes).items() if k.startswith("GEN_AI")}
    source = (ROOT / "src" / "effectonce" / "observe" / "otel.py").read_text()
    used = set(re.findall(r'"(gen_ai\.[a-z._]+)"', source)) | {
        label for m in METRICS.values() for label in m.labels if label.startswith("gen_ai")
    }
    assert used - known <= {"gen_ai.workflow.name"}  # younger than the package


def test_durations_have_the_names_of_the_conventions():
    assert {name for name in METRICS if name.startswith("gen_ai.")} == {
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_workflow.duration",
    }


# ---------------------------------------------------------------- the dashboard and the alerts

DEPLOYMENT = {"job", "le"}  # labels that Prometheus adds


def selectors(expression):
    """Every selector in an expression, and every label that is grouped by."""
    found, grouped = [], set()

    def walk(node):
        match type(node).__name__:
            case "VectorSelector":
                found.append(node)
            case "MatrixSelector":
                found.append(node.vector_selector)
            case "AggregateExpr":
                grouped.update(node.modifier.labels if node.modifier else ())
                walk(node.expr)
            case "BinaryExpr":
                walk(node.lhs)
                walk(node.rhs)
            case "Call":
                for each in node.args:
                    walk(each)
            case "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
                walk(node.expr)

    walk(promql_parser.parse(expression))
    return found, grouped


def exposed():
    """Every name that Prometheus shows for our metrics, and its labels."""
    names = {}
    for metric in METRICS.values():
        shown = [""] if metric.kind != "histogram" else ["_bucket", "_count", "_sum"]
        for suffix in shown:
            names[metric.prometheus_name + suffix] = set(metric.prometheus_labels) | DEPLOYMENT
    return names


def check(expression):
    known = exposed()
    found, grouped = selectors(expression)
    assert found, expression
    for selector in found:
        assert selector.name in known, (selector.name, expression)
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= known[selector.name], (labels, expression)
        assert grouped <= known[selector.name], (grouped, expression)
    return {selector.name for selector in found}


def test_every_expression_of_the_dashboard_is_about_metrics_that_exist():
    board = json.loads(grafana())
    used = set()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            used |= check(target["expr"])
    for variable in board["templating"]["list"]:
        query = variable["query"]["query"] if isinstance(variable["query"], dict) else ""
        for name, label in re.findall(r"label_values\((\w+), (\w+)\)", query):
            assert label in exposed()[name]

    def bare(name):
        return (
            re.sub(r"_(bucket|count|sum)$", "", name)
            if name not in {m.prometheus_name for m in METRICS.values()}
            else name
        )

    assert {bare(name) for name in used} == {metric.prometheus_name for metric in METRICS.values()}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_alert_is_about_metrics_that_exist():
    rules = [rule for group in yaml.safe_load(alerts())["groups"] for rule in group["rules"]]
    assert len(rules) >= 6
    for rule in rules:
        names = check(rule["expr"])
        _, grouped = selectors(rule["expr"])
        said = json.dumps(rule["annotations"])
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= grouped, rule["alert"]
        assert names


def test_errors_that_no_retry_helps_have_alerts():
    rules = {
        rule["alert"]: rule["expr"]
        for group in yaml.safe_load(alerts())["groups"]
        for rule in group["rules"]
    }
    wanted = {Bucket.AUTH, Bucket.QUOTA, Bucket.CONFIG, Bucket.SCHEMA, Bucket.NOT_FOUND}

    watched = [re.findall(r'effectonce_error_class=~"([a-z_|]+)"', expr) for expr in rules.values()]

    assert {bucket for found in watched for group in found for bucket in group.split("|")} == wanted


@pytest.mark.parametrize(
    ("module", "library"), [("prometheus", "prometheus_client"), ("otel", "opentelemetry")]
)
def test_without_its_library_a_sink_says_how_to_get_it(module, library):
    code = (
        f"import sys; sys.modules[{library!r}] = None\ntry:\n    import"
        f" effectonce.observe.{module}\nexcept ImportError as error:\n    print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert f"pip install 'effectonce[{module}]'" in said


SEVERAL_WORKERS = """
import os, sys
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from effectonce import Guard
from effectonce.observe import StoreGauges
from effectonce.observe.prometheus import Gauges, Prometheus

guard = Guard(sys.argv[1])
guard.observe(Prometheus())

@guard.tool(kind="write")
def pay(n: int) -> int:
    return n

def work(name):
    for n in range(5):
        with guard.step(name, n):
            pay(n)

work("parent")
for child in ("one", "two"):
    if os.fork() == 0:
        work(child)
        os._exit(0)
    os.wait()
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
registry.register(Gauges(StoreGauges(guard)))
print(generate_latest(registry).decode())
"""


def test_workers_that_share_a_folder_of_prometheus_are_counted_together(tmp_path):
    (tmp_path / "metrics").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL_WORKERS, f"sqlite:///{tmp_path / 'effects.db'}"],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (
        'effectonce_calls_total{effectonce_outcome="executed",gen_ai_tool_name="pay"} 15.0'
        in done.stdout
    ), done.stderr
    assert 'effectonce_effect_count{effectonce_state="completed"} 15.0' in done.stdout
