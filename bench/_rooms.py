"""In which rooms the instructions of a case are spent.

callgrind counts exactly what each compiled object executes, and cannot see which Python function
the interpreter works for. So the interpreter's instructions are shared out by the bytecodes that
each room executes, which are counted exactly as well. That makes the figures of rooms estimates:
a bytecode that calls a built-in function counts as much as one that adds two numbers.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from _instructed import CASES, Places, forget

import effectonce

OURS, BENCH = Path(effectonce.__file__).parent, Path(__file__).parent
DRIVERS = ("sqlite", "psycopg", "libpq", "asyncpg", "redis")
INTERPRETER = ("python3", "libpython")
LIBC = ("libc.so", "libc-", "libpthread", "ld-linux", "libm.so")
INTERPRETED, SMALL = "the interpreter", "modules of ours below half a percent, and others so small"
WHAT_IT_IS = (
    "Compiled code: exact, by callgrind. Python code: the interpreter's instructions, shared out by"
    " the bytecodes\nthat each module executes; an estimate, because some bytecodes cost more than"
    " others."
)


def compiled(smaller: Path, larger: Path, calls: int) -> dict[str, float]:
    """Thousands of instructions per call by part, where all Python code is one part: the
    interpreter.
    """
    few, many = _by_object(smaller), _by_object(larger)
    parts: dict[str, float] = {}
    for name in many:
        part = _part_of(name)
        parts[part] = parts.get(part, 0.0) + (many[name] - few[name]) / calls / 1000
    return parts


def _by_object(file: Path) -> Counter[str]:
    """The instructions that each object file executed itself. A line after `calls=` is what was
    executed in the function called.
    """
    names: dict[str, str] = {}
    costs, where, called = Counter[str](), "", False
    with file.open() as lines:
        for line in lines:
            if line.startswith(("ob=", "cob=")):
                number, _, name = line.partition("=")[2].strip().partition(" ")
                names[number] = name or names[number]
                where = names[number] if line.startswith("ob=") else where
            elif line.startswith("calls="):
                called = True
            elif line[0] in "0123456789+-*":
                if not called:
                    costs[where] += int(line.split()[1])
                called = False
    return costs


def _part_of(name: str) -> str:
    base = Path(name).name
    if base.startswith(INTERPRETER):
        return INTERPRETED
    if base.startswith(LIBC):
        return "the C library, for all of them"
    if any(driver in name for driver in DRIVERS):
        return "the driver, compiled"
    return "other compiled modules of Python and of packages"


def bytecodes(name: str, places: Places, calls: tuple[int, int]) -> Counter[str]:
    """How many bytecodes each room executes in the larger run, less those in the smaller."""
    forget(places)
    CASES[name](places, calls[0])  # what is imported or made at first use is there now, for both
    smaller, larger = (_traced(name, places, count) for count in calls)
    larger.subtract(smaller)
    return larger


def _traced(name: str, places: Places, calls: int) -> Counter[str]:
    executed = Counter[str]()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            executed[frame.f_code.co_filename] += 1
        return trace

    forget(places)
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        CASES[name](places, calls)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    rooms = Counter[str]()
    for file, count in executed.items():
        rooms[_room_of(Path(file))] += count
    return rooms


def _room_of(file: Path) -> str:
    if file.is_relative_to(OURS):
        return str(file.relative_to(OURS).with_suffix(""))
    if file.is_relative_to(BENCH):
        return "the tool, and who calls it"
    if any(
        f"site-packages/{driver}" in str(file) or f"/{driver}/" in str(file)
        for driver in (*DRIVERS, "aiosqlite", "sqlite3")
    ):
        return "the driver, in Python"
    return "Python itself: its library, generated code"


def shares(parts: dict[str, float], rooms: Counter[str]) -> dict[str, float]:
    """Thousands of instructions by room; rooms below half a percent are one."""
    interpreter, everything = parts.pop(INTERPRETED), rooms.total()
    found = dict(parts) | {SMALL: 0.0}
    for room, count in rooms.items():
        name = room if count / everything >= 0.005 else SMALL
        found[name] = found.get(name, 0.0) + interpreter * count / everything
    return found
