"""Real processes, really killed and stopped, counted by another process. `make soak` does it
thousands of times.
"""

import json
import subprocess
import sys

from tests.crash.soak import SETUPS, STOP_POINTS
from tests.crash.tiers import on_stores

BAD = ("duplicates", "lost_outcomes", "false_failures", "phantom_successes", "worker_errors")


def soaked(store):
    command = [sys.executable, "-m", "tests.crash.soak", "--kills", "60", "--stops", "12"]
    done = subprocess.run([*command, "--store", store], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@on_stores("sqlite", name="store")
def test_killed_and_stopped_at_every_point_what_is_promised_holds(store):
    """One test, because it is one run, and a long one."""
    result = soaked(store)
    rows = {(row["downstream"], row["point"]): row for row in result["table"]}

    assert {bad: result[bad] for bad in BAD} == dict.fromkeys(BAD, 0), result["broken"]

    # every named point was killed, and processes were stopped past their lease and continued
    downstreams = set(result["downstreams"])
    assert downstreams >= {"key", "none", "probe"}
    assert {(each, point) for each in downstreams for point in SETUPS[each][1]} <= rows.keys()
    stopped = [f"stopped: {point}" for point in STOP_POINTS]
    assert {(each, point) for each in ("key", "none", "probe") for point in stopped} <= rows.keys()

    # without help, what may have been sent goes in doubt
    for point in ("claimed", "dispatched", "in flight", "effect done"):
        row = rows["none", point]
        assert (row.get("succeeded", 0), row["in_doubt"]) == (0, row["times"]), point

    # an owner that was only stopped settles the doubt it left
    row = rows["none", "stopped: effect done"]
    assert row["succeeded"] == row["times"] == row["effects"]
