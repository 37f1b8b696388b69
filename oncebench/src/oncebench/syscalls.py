"""Kill or hurt any program at its n-th system call, with Debian's strace.

A first run only watches: it lists each send, receive and write to disk that the program makes.
Each of them is a point. A later run stops the program at one point: it dies there (the call is
not made any more), or the call fails with an error as a broken network's would.

Rule 1: strace counts calls in each thread by itself, so a point is "the n-th such call of a
thread". Threads wake each other with the same calls, now more often, now less: the trace of the
run says what was hit in truth, and a run that was hit elsewhere is repeated a little beside.
Rule 2: strace's seccomp filter is fast, but signals that it injects get lost (strace 6.1). Runs
that kill go without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

SENDS = ("sendto", "sendmsg", "write", "writev")
RECEIVES = ("recvfrom", "recvmsg", "read", "readv")
TO_DISK = ("fsync", "fdatasync", "pwrite64", "write", "writev")
WATCHED = ",".join(sorted({*SENDS, *RECEIVES, *TO_DISK}))
CALL = re.compile(r"^(\d+)\s+(\w+)\(")
LINE = re.compile(r"^(?P<thread>\d+)\s+(?P<call>\w+)\(\d+<(?P<what>[A-Z0-9-]+:\[.*?\]|/[^>]*)>")
WAKE_UP = re.compile(r'^\d+\s+\w+\(\d+<UNIX-STREAM:\[.*?\]>, "\\0", ')  # a loop wakes itself
NOT_STATE = re.compile(r"^/(dev|proc|sys|etc|usr)/|\.pyc|__pycache__|/stdout$|/stderr$")

TRIES = 12  # at one point, until the program is hit where it should be
What = Literal["kill", "ECONNRESET", "EPIPE", "delay"]


class NoTracing(Exception):
    """This machine does not allow to trace programs, or has no strace."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """Where a program is hit: `kill:recvfrom:4`."""

    what: What
    call: str
    nth: int
    seen: str = ""  # what the watched run saw there

    def __str__(self) -> str:
        return f"{self.what}:{self.call}:{self.nth}"

    @classmethod
    def parse(cls, text: str) -> Point:
        what, call, nth = text.split(":")
        if what not in get_args(What):
            raise ValueError(f"{what!r} is not {', '.join(get_args(What))}")
        return cls(what, call, int(nth))  # type: ignore[arg-type]

    def instead(self, trace: Iterable[str]) -> Point | None:
        """Where to hit next time, if the run of this trace was not hit where it should have been:
        at the next call, if it was hit at a wake-up; where it made such a call, if it was not hit.
        """
        lines = list(trace)
        if any((call, nth) == (self.call, self.nth) for _, call, nth in _counted(lines)):
            return replace(self, nth=self.nth + 1)
        made = [p.nth for p in points_of(lines) if (p.what, p.call) == (self._meant, self.call)]
        nearest = min(made, key=lambda nth: abs(nth - self.nth), default=None)
        return None if nearest is None else replace(self, nth=nearest)

    @property
    def _meant(self) -> What:
        return "kill" if self.what == "delay" else self.what

    def hit_in(self, trace: Iterable[str]) -> str | None:
        """What the run of this trace was hit at, if it is a call that this harm is for."""
        return next(
            (
                _shown(line)
                for line, call, nth in _counted(trace)
                if (call, nth) == (self.call, self.nth) and self._meant in _harms(line, call)
            ),
            None,
        )

    def injected(self) -> list[str]:
        """The options of strace."""
        match self.what:
            case "kill":
                return ["-e", f"inject={self.call}:signal=KILL:when={self.nth}"]
            case "delay":
                return [
                    "--seccomp-bpf",
                    "-e",
                    f"inject={self.call}:delay_enter=3s:when={self.nth}",
                ]
            case error:
                return ["--seccomp-bpf", "-e", f"inject={self.call}:error={error}:when={self.nth}"]


def strace() -> str:
    """Where strace is. It has been seen to work."""
    found = shutil.which("strace")
    if found is None:
        raise NoTracing("strace is not installed. On Debian, as root: apt-get install strace")
    tried = subprocess.run(  # noqa: S603
        [found, "-f", "-e", "trace=none", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        last = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoTracing(f"this machine forbids tracing ({last}). In a container, allow SYS_PTRACE.")
    return found


def watching(command: Sequence[str], trace: Path) -> list[str]:
    options = ["-f", "--seccomp-bpf", "-qq", "-yy", "-s", "48", "-e", f"trace={WATCHED}"]
    return [strace(), *options, "-o", str(trace), "--", *command]


def hitting(command: Sequence[str], point: Point, trace: Path) -> list[str]:
    options = ["-f", "-qq", "-yy", "-s", "48", "-e", f"trace={point.call}", *point.injected()]
    return [strace(), *options, "-o", str(trace), "--", *command]


def attached(pid: int, trace: Path, point: Point | None = None) -> list[str]:
    """The same for a process that runs already: its calls are counted from now on. Threads that
    it has from before begin at one as well, so that what they do now can be hit.
    """
    options = ["-f", "-qq", "-yy", "-s", "48", "-o", str(trace), "-p", str(pid)]
    injected = [] if point is None else point.injected()
    return [strace(), *options, "-e", f"trace={WATCHED}", *injected]


def points_of(trace: Iterable[str]) -> list[Point]:
    """Each point that a watched run shows, in the order of the run."""
    points: dict[tuple[What, str, int], Point] = {}
    for line, call, nth in _counted(trace):
        for what in _harms(line, call):
            points.setdefault((what, call, nth), Point(what, call, nth, seen=_shown(line)))
    return list(points.values())


def _counted(trace: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Each call: its line, its name, and its number in its thread."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in trace:
        match = CALL.match(line)
        if match is not None:
            thread, call = match.groups()
            counts[thread, call] += 1
            yield line, call, counts[thread, call]


def _harms(line: str, call: str) -> tuple[What, ...]:
    match = LINE.match(line)
    if match is None or WAKE_UP.match(line):
        return ()
    what = match["what"]
    network = what.startswith(("TCP", "UNIX-STREAM"))
    if network and call in SENDS:
        return ("kill", "EPIPE") if what.startswith("TCP") else ("kill",)
    if network and call in RECEIVES:
        return ("kill", "ECONNRESET") if what.startswith("TCP") else ("kill",)
    if call in TO_DISK and what.startswith("/") and not NOT_STATE.search(what):
        return ("kill",)
    return ()


def _shown(line: str) -> str:
    text = re.sub(r"^\d+\s+", "", line.strip())
    text = re.sub(r"\(\d+<(?:TCP|UNIX-STREAM):\[.*?\]>", "(socket", text)
    return re.sub(r"\(\d+</(?:[^>]*/)?([^/>]*)>", r"(\1", text)[:90]
