"""A turn outlives the processes that work on it: each is killed while its tool runs, and the
next goes on with what is left.
"""

import os
import signal
import subprocess
import sys

import pytest

from effectonce import Budget, GaveUp, Guard
from tests.crash.tiers import on_stores

WORKER = """
import os, signal, sys
from effectonce import Budget, Guard

store, marks, step = sys.argv[1:]
guard = Guard(store)

@guard.tool(kind="idempotent_write", lease_s=0.2, wait_s=5)
def order():
    with open(marks, "a") as file:
        file.write("sent\\n")
    os.kill(os.getpid(), signal.SIGKILL)

with guard.turn("chat", "turn-7", budget=Budget(attempts=3, steps=2)), guard.step("chat", step):
    order()
"""


@on_stores("sqlite")
def test_a_turn_goes_on_with_what_is_left_after_every_crash(url, tmp_path):
    marks = tmp_path / "marks"

    def work(step):
        return subprocess.run(
            [sys.executable, "-c", WORKER, url, str(marks), step], env=os.environ, check=False
        ).returncode

    assert [work("a") for _ in range(3)] == [-signal.SIGKILL] * 3
    assert work("a") == 1  # it gave up, and sent nothing
    assert marks.read_text().count("sent") == 3
    assert work("b") == -signal.SIGKILL

    guard = Guard(url)
    ran = []
    tool = guard.tool(kind="idempotent_write", name="order")(lambda: ran.append(1))
    with guard.turn("chat", "turn-7", budget=Budget(attempts=3, steps=2)):
        with guard.step("chat", "c"), pytest.raises(GaveUp, match="has taken its 2 steps"):
            tool()
        with guard.step("chat", "a"), pytest.raises(GaveUp, match="has had its 3 attempt"):
            tool()
    assert ran == []
    with guard.turn("chat", "turn-8"), guard.step("chat", "a"):
        tool()
    assert ran == [1]
    guard.close()
