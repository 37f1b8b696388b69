"""Every benchmark runs from a clone with nothing but the installed package, and prints what it
promises. No assertion is about time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiers import long_except

import effectonce

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
SMALLEST = {  # beyond --quick
    "doubts.py": ["--section", "wire", "--only", "effectonce, protect and through"],
    "peers.py": ["--only", "DBOS, SQLite"],
}
BELOW = {"keys.py", "middleware.py", "policy.py", "workflows.py"}  # have tests of their own
EXPECTED = {
    "breaker.py": {
        "try_admit and succeeded, by hand",
        "pybreaker, sync",
        *(
            f"{what}, {colour}"
            for colour in ("sync", "async")
            for what in (
                "failures in a row",
                "rate of the last calls",
                "rate of the last seconds",
                "slow calls",
                "circuitbreaker",
                "purgatory",
            )
        ),
    },
    "calls.py": {
        "commits of a first call",
        "reads of a replay",
        "transactions of a replay",
        "sqlite sync x1 first, while the logs grow",
        *(
            f"{store} {colour} x{callers} {what}"
            for store in ("memory", "sqlite", "postgres")
            for colour in ("sync", "async")
            for callers in (1, 16, 64)
            for what in ("first", "replay", "cached")
        ),
        "redis round trips of a first call",
        "redis round trips of a replay",
        *(f"redis sync x1 {what}, beside a raw socket" for what in ("first", "replay")),
        *(
            f"redis {colour} x{callers} {what}, beside redis-py"
            for colour in ("sync", "async")
            for callers in (1, 16, 64)
            for what in ("first", "replay")
        ),
        *(f"postgres {what}, beside psycopg" for what in ("first", "replay")),
        *(f"8 processes, {what}" for what in ("median", "p99", "p99.9", "worst")),
    },
    "canonical.py": {
        f"{size}, beside {other}"
        for size in ("1 kB", "10 kB")
        for other in ("rfc8785", "json.dumps (not exact)", "orjson (not exact)")
    },
    "decorator.py": {
        "a read, sync",
        "a read, async",
        "a trivial *args wrapper, sync",
        "a trivial *args wrapper, async",
        "import effectonce, CPU",
    },
    "instructions.py": {"memory x1 first"},
    "pages.py": {
        f"{store} {page}, 2,400 records"
        for store in ("sqlite", "postgres", "redis")
        for page in (
            *(
                "overview",
                "effects",
                "effects of one state",
                "effects of a tool that has none",
                "doubts",
                "letters",
            ),
            *(
                "letters of one tool",
                "workflows",
                "workflows that completed",
                "an old effect by its link",
                "the list after it",
            ),
            *("an old effect by its reference", "a reference that is not there"),
            *(
                f"{where}: {what}"
                for where in ("box", "search")
                for what in (
                    "a payment id",
                    "the beginning of many",
                    "a payment id that has no effect",
                )
            ),
        )
    },
    "peers.py": {
        f"DBOS, SQLite, {what} x{callers}"
        for what in ("first", "replay")
        for callers in (1, 16, 64)
    },
    "scale.py": {
        f"{store} {what}"
        for store in ("sqlite", "postgres", "redis")
        for what in (
            "first, 2,000 records",
            "replay, hot keys, 2,000 records",
            "replay, uniform keys, 2,000 records",
            "first beside 500 in doubt",
            *(f"bytes of a record, result of {size}" for size in ("128 B", "1 kB")),
            *(f"sweep, {how}" for how in ("paced", "unpaced", "unpaced, to forget")),
            *(
                f"p99 of a {call} beside a sweeping {where}"
                for call in ("first", "replay")
                for where in ("process", "thread")
            ),
            *(f"sweep beside calls, {where}" for where in ("process", "thread")),
        )
    },
}


def bench(script, *arguments, hidden=None):
    """Run it as `make bench` does, from the root; only the installed package can be imported,
    and not what *hidden* has instead.
    """
    installed = str(Path(effectonce.__file__).parents[1])
    path = installed if hidden is None else os.pathsep.join([str(hidden), installed])
    command = [sys.executable, BENCH / script, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
    )


BENCHMARKS = sorted({path.name for path in BENCH.glob("[a-z]*.py")} - BELOW)


@pytest.mark.parametrize("script", long_except(["canonical.py"], BENCHMARKS))
def test_a_benchmark_runs_and_prints_every_figure(script):
    run = bench(script, "--quick", "--json", *SMALLEST.get(script, ()))

    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert rows
    assert script not in EXPECTED or {row["what"] for row in rows} == EXPECTED[script]
    # doubts.py counts persons, instructions.py instructions
    measured = [row for row in rows if "reached" in row]
    assert all(row["reached"] >= 0 or row["of"] == "ns over" for row in measured)
    # round trips: the same on every machine
    counted = [row for row in measured if row["unit"] == ""]
    assert all(row["met"] for row in counted), counted


@pytest.mark.long
def test_a_benchmark_can_run_as_if_its_disk_were_slower():
    run = bench("workflows.py", "--quick", "--json", "--store", "sqlite", "--sync-ms", "2")
    if shutil.which("cc") is None:
        assert "needs a C compiler" in run.stderr
    else:
        assert run.returncode == 0, run.stderr
        one_us = int(json.loads(run.stdout)["notes"]["disk"].split()[-2])
        assert one_us >= 2000


POLICY = (
    "a trivial *args wrapper",
    "retry",
    "breaker",
    "breaker, by rate",
    "retry + breaker + budget",
    "retry + breaker + budget, by rate",
    "retry + breaker + budget, a tool",
    "our whole beside circuitbreaker's breaker",
    "our whole beside purgatory's breaker",
)


@pytest.mark.long
def test_the_benchmark_of_policies_leaves_out_what_is_not_installed_and_says_so(tmp_path):
    for package in ("tenacity", "stamina", "backoff", "aiobreaker", "pyresilience"):
        (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")

    run = bench("policy.py", "--quick", "--json", hidden=tmp_path)

    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert {row["what"] for row in told["rows"]} == {
        *(f"{what}, {colour}" for what in POLICY for colour in ("sync", "async")),
        "our whole beside pybreaker's breaker, sync",
        "import effectonce, CPU",
    }
    assert (
        told["notes"]["left out, not installed"]
        == "tenacity, stamina, backoff, aiobreaker, pyresilience"
    )
    assert told["notes"]["peers"].startswith("circuitbreaker ")


@pytest.mark.long
def test_the_benchmark_of_the_middleware_leaves_out_peers_that_are_not_installed_and_says_so(
    tmp_path,
):
    for module in ("idemkit", "idempotency_header_middleware"):
        (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError(name={module!r})")

    run = bench("middleware.py", "--quick", "--json", hidden=tmp_path)

    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert {row["what"] for row in told["rows"]} == {
        f"{store} x{connections} {what}{quantile}"
        for store in ("redis", "sqlite")
        for connections in (1, 16, 32, 64)
        for what in ("first", "replay", "replay, cached")
        for quantile in ("", ", p50", ", p99")
    }
    assert all(row["ours"] > 0 and row["floor"] > 0 for row in told["rows"])
    assert told["notes"]["left out, not installed"] == "idemkit, asgi-idempotency-header"


@pytest.mark.long
def test_the_benchmark_of_workflows_leaves_out_peers_that_are_not_installed_and_says_so():
    run = bench("workflows.py", "--quick", "--json")

    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    ours = {
        row["what"]
        for row in told["rows"]
        if "beside DBOS" not in row["what"] and "beside LangGraph" not in row["what"]
    }
    floors = {"sqlite": ("one insert",), "postgres": ("one insert", "one insert by psycopg")}
    assert ours == {
        *(
            f"{store}: {step}, beside {floor}"
            for store in floors
            for floor in floors[store]
            for step in ("a step", "a step that may not repeat", "a step with its share of the run")
        ),
        *(f"{store}: resume 20 open runs" for store in floors),
    }
    assert told["notes"]["peers"] or told["notes"]["left out, not installed"]


def _conversation(task, *calls):
    """Calls as (id, tool, arguments, result), each in a message of its own."""
    messages = []
    for call_id, tool, arguments, result in calls:
        function = {"name": tool, "arguments": json.dumps(arguments)}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": call_id, "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
    return {"task_id": task, "trial": 0, "traj": messages}


BOOK, CANCEL = "book_reservation", "cancel_reservation"
RECORDED = [
    # Booked, cancelled, and booked once more on purpose; an id comes again for another call.
    _conversation(
        1,
        ("c1", BOOK, {"to": "SEA"}, "HAT"),
        ("c2", CANCEL, {"id": "HAT"}, "ok"),
        ("c1", BOOK, {"to": "SEA"}, "HAV"),
    ),
    # Another customer, the same flight; the first try was refused.
    _conversation(
        2, ("c3", BOOK, {"to": "SEA"}, "Error: no seat"), ("c4", BOOK, {"to": "SEA"}, "HAW")
    ),
    _conversation(3, ("c2", BOOK, {"to": "JFK"}, "HAX"), ("c9", "think", {"x": 1}, "ok")),
]
# suppressed, repeated by a framework, repeated by a model
JUDGED = {
    "tool_call_id": (2, 0, 5),
    "conversation + tool_call_id": (1, 0, 5),
    "hash(arguments)": (3, 0, 0),
    "conversation + hash(arguments)": (1, 0, 0),
    "conversation + intent + ordinal (ours)": (0, 0, 0),
}


def test_the_benchmark_of_keys_counts_what_each_rule_decides_wrongly(tmp_path):
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps(RECORDED))

    run = bench("keys.py", file, "--json")

    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    counted = {row["what"]: row["reached"] for row in told["rows"]}
    figures = ("suppressed", "repeated by a framework", "repeated by a model")
    assert {
        rule: tuple(counted[f"{rule}: {figure}"] for figure in figures) for rule in JUDGED
    } == JUDGED
    assert told["notes"]["recorded"] == "6 writes in 3 conversations, of which 5 succeeded"


def test_the_benchmark_of_keys_says_what_it_needs_where_there_is_no_recording(tmp_path):
    run = bench("keys.py", tmp_path / "nowhere.json")

    assert run.returncode == 2
    assert "There are no recorded conversations at" in run.stderr
