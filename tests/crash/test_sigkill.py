"""Real processes, really killed and stopped, counted by another process. `make soak` does it
thousands of times.
"""

import json
import subprocess
import sys

import pytest

from tests.crash.soak import SETUPS, STOP_POINTS


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def soaked(request):
    command = [
        sys.executable,
        "-m",
        "tests.crash.soak",
        "--kills",
        "100",
        "--stops",
        "16",
        "--json",
        "--store",
        request.param,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "bad", ["duplicates", "lost_outcomes", "false_failures", "phantom_successes", "worker_errors"]
)
def test_killed_and_stopped_at_every_point_there_are_no(soaked, bad):
    assert soaked[bad] == 0, soaked


def test_every_named_point_was_killed(soaked):
    killed = {(row["downstream"], row["point"]) for row in soaked["table"]}
    assert set(soaked["downstreams"]) >= {"key", "none", "probe"}
    assert {(d, point) for d in soaked["downstreams"] for point in SETUPS[d][1]} <= killed


def test_processes_were_stopped_past_their_lease_and_continued(soaked):
    stopped = {
        (row["downstream"], row["point"])
        for row in soaked["table"]
        if row["point"].startswith("stopped")
    }
    assert {(d, f"stopped: {p}") for d in ("key", "none", "probe") for p in STOP_POINTS} <= stopped


@pytest.mark.parametrize("point", ["claimed", "dispatched", "in flight", "effect done"])
def test_without_help_a_sent_effect_goes_in_doubt(soaked, point):
    row = next(
        row for row in soaked["table"] if (row["downstream"], row["point"]) == ("none", point)
    )
    assert row.get("succeeded", 0) == 0
    assert row["in_doubt"] == row["times"]


def test_a_stopped_owner_settles_the_doubt_it_left(soaked):
    row = next(
        r
        for r in soaked["table"]
        if (r["downstream"], r["point"]) == ("none", "stopped: effect done")
    )
    assert row["succeeded"] == row["times"] == row["effects"]
