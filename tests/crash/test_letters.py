"""Dead letters under SIGKILL: nothing is lost, nothing is done twice, and the story of each
attempt stays.
"""

import json
import subprocess
import sys

import pytest

from effectonce import Guard, NotSent, Retry, State
from effectonce._core.ops import Browse
from effectonce.testing.crash import die
from tests.crash.soak import end, opened, served, start
from tests.crash.soak_letters import POINTS
from tests.crash.tiers import STORES, on_stores


@pytest.fixture(
    scope="module",
    params=["sqlite", *(pytest.param(each, marks=pytest.mark.long) for each in STORES[1:])],
)
def soaked(request):
    command = [
        sys.executable,
        "-m",
        "tests.crash.soak_letters",
        "--letters",
        "100",
        "--store",
        request.param,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_operators_killed_while_they_redrive_the_same_letters_do_each_once_and_lose_none(soaked):
    assert (soaked["effects"], soaked["duplicates"], soaked["lost"]) == (100, 0, 0), soaked
    assert soaked["last_operator"]["counts"] == {"completed": 100}
    assert soaked["last_operator"]["left"] == 0


def test_operators_were_killed_at_every_point(soaked):
    assert {point for point, times in soaked["kills"].items() if times} >= set(POINTS)
    # what had happened before anybody redrove it was not done again
    assert soaked["landed_before"] == 33


@on_stores("sqlite", name="store")
def test_what_an_attempt_said_survives_a_kill_before_the_next(store, tmp_path):
    def work(where):
        guard = Guard(opened(where), cache=0)
        attempts = []

        @guard.tool(kind="write", retry=Retry(attempts=3, base_s=0, cap_s=0), lease_s=0.1)
        def pay():
            attempts.append(1)
            if len(attempts) == 2:
                die()
            raise NotSent("the bank is away")

        guard.call(pay, {}, key="a")

    with served(store, str(tmp_path)) as (where, _):
        how, _ = end(*start(lambda: work(where)))
        opened_again = opened(where)
        (record,) = opened_again.apply(Browse(State.DISPATCHED))
        letter = Guard(opened_again).dead_letters.show(record.request.key)
        opened_again.close()

    assert how == "signal 9"
    assert [(attempt.number, attempt.error, attempt.message) for attempt in letter.attempts] == [
        (1, "NotSent", "the bank is away")
    ]
