"""What a sweep achieves, and what those notice who call meanwhile. For scale.py.

The foreground is one caller who makes a first call and a replay in turn. A sweeper in another
process, or in a thread of the caller's own, works for a moment and rests for a moment, over and
over; the 99th percentile of each moment is compared with that of the rest beside it.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from _fill import Caller, Fate, expired, fill, forgettable
from _homes import Home
from _paired import Goal, Row

from effectonce import Guard

UNDISTURBED = Goal("<=", 1.3)
PROBES = {"first": Caller.first, "replay": Caller.hot}


def sweep_rows(store: str, home: Home, due: int, moment_s: float, moments: int) -> list[Row]:
    """Sweeps of a store in which as many records again are not due."""
    url = home.new()
    fill(url, range(due))
    after = due

    def fill_due(fate: Fate) -> None:
        nonlocal after
        fill(url, range(after, after + due), fate)
        after += due

    rates = {}
    for what, fate in (
        ("unpaced", expired),
        ("unpaced, to forget", forgettable),
        ("paced", expired),
    ):
        fill_due(fate)
        rates[what] = at_default_pace(url, 4 * moment_s) if what == "paced" else unpaced(url, due)
    rows = [
        Row(f"{store} sweep, {what}", rate, None, "rec/s", rate, "records/s")
        for what, rate in rates.items()
    ]
    caller = Caller(url, due, start=100 * due)
    for where, sweeping in (("process", Elsewhere), ("thread", Here)):
        fill_due(expired)
        rows += disturbance(store, where, caller, sweeping(caller, url), moment_s, moments)
    caller.close()
    return rows


def unpaced(url: str, due: int) -> float:
    """Records per second of one round in batches of a hundred."""
    guard = Guard(url)
    start = time.perf_counter()
    swept = guard.sweeper(batch=100, pause_s=0.0).round().total
    taken_s = time.perf_counter() - start
    guard.close()
    if swept != due:
        raise SystemExit(f"{swept} records were swept, {due} were due")
    return swept / taken_s


def at_default_pace(url: str, window_s: float) -> float:
    """Records per second as `with guard.sweeper():` sweeps them."""
    guard = Guard(url)
    start = time.perf_counter()
    with guard.sweeper() as sweeper:
        time.sleep(window_s)
    taken_s = time.perf_counter() - start
    guard.close()
    return sweeper.swept.total / taken_s


# ---------------------------------------------------------------- who sweeps


class Here:
    """The sweeper is a thread of the caller's own process and store, as `with guard.sweeper():`
    has it.
    """

    def __init__(self, caller: Caller, _: str) -> None:
        self._sweeper = caller.guard.sweeper()

    def start(self) -> None:
        self._sweeper.start()

    def stop(self) -> int:
        self._sweeper.stop()
        return self._sweeper.swept.total

    def close(self) -> None:
        self._sweeper.stop()


class Elsewhere:
    """The sweeper is another process."""

    def __init__(self, _: Caller, url: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._line, its = spawn.Pipe()
        self._process = spawn.Process(target=sweep_when_told, args=(url, its), daemon=True)
        self._process.start()
        self._line.recv()

    def start(self) -> None:
        self._line.send("start")
        self._line.recv()

    def stop(self) -> int:
        self._line.send("stop")
        return int(self._line.recv())

    def close(self) -> None:
        self._line.send("end")
        self._process.join()


def sweep_when_told(url: str, line: Connection) -> None:
    guard = Guard(url)
    sweeper = guard.sweeper()
    line.send(0)
    while (told := line.recv()) != "end":
        sweeper.start() if told == "start" else sweeper.stop()
        line.send(sweeper.swept.total)


# ---------------------------------------------------------------- who calls meanwhile


def moment_of(caller: Caller, moment_s: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in PROBES}
    clock, end = time.perf_counter, time.perf_counter() + moment_s
    while clock() < end:
        for name, probe in PROBES.items():
            start = clock()
            probe(caller)
            times[name].append(clock() - start)
    return times


def disturbance(
    store: str, where: str, caller: Caller, sweeping: Any, moment_s: float, moments: int
) -> list[Row]:
    pairs: list[tuple[dict[str, list[float]], dict[str, list[float]]]] = []
    swept = 0
    moment_of(caller, moment_s)
    for _ in range(moments):
        alone = moment_of(caller, moment_s)
        sweeping.start()
        beside = moment_of(caller, moment_s)
        before, swept = swept, sweeping.stop()
        if swept == before:
            break  # nothing was due any more
        pairs.append((beside, alone))
    sweeping.close()
    if not pairs:
        raise SystemExit(f"the sweep of {store} in another {where} swept nothing")
    rows = []
    for name in PROBES:
        p99s = [(p99(beside[name]), p99(alone[name])) for beside, alone in pairs]
        ours_s, floor_s = (median(times) for times in zip(*p99s, strict=True))
        reached = median(beside / alone for beside, alone in p99s)
        what = f"{store} p99 of a {name} beside a sweeping {where}"
        rows.append(
            Row(what, ours_s * 1e6, floor_s * 1e6, "us", reached, "with/without", UNDISTURBED)
        )
    rate = swept / (len(pairs) * moment_s)
    rows.append(Row(f"{store} sweep beside calls, {where}", rate, None, "rec/s", rate, "records/s"))
    return rows


def p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]
