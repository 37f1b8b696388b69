"""Processes of their own that go on with what another one began."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def started(code, *given):
    """Python code in a new process, which knows nothing of this one."""
    command = [sys.executable, "-c", code, *map(str, given)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def in_two_processes(code, *given):
    """What each of two processes printed that run the same code at the same time."""
    both = [started(code, *given) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    return [json.loads(each) for each in said]
