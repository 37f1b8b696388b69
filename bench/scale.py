"""What a guarded call costs in a store that has grown, beside the same call in a small one; what
a sweep costs; what a record weighs.

    python bench/scale.py [--quick] [--json] [--dir FOLDER] [--sync-ms MS]
        [--store sqlite,postgres,redis] [--largest 1e6|1e7]

Stores of all sizes are open at once and take turns; the floor is the store with a thousand
records. Everything fits into memory.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
from pathlib import Path

from _fill import SIZES, Caller, fill, in_doubt
from _homes import HOMES, Home
from _paired import (
    Goal,
    Row,
    filesystem,
    fsync_s,
    machine,
    options,
    ratio,
    report,
    take_turns,
    timed,
)
from _sweeps import sweep_rows

SMALL = 1000
CALLS = {
    "first": Caller.first,
    "replay, hot keys": Caller.hot,
    "replay, uniform keys": Caller.uniform,
}
GROWTH = {
    ("sqlite", "first"): Goal("<=", 2.0),
    ("sqlite", "replay, hot keys"): Goal("<=", 2.0),
    ("sqlite", "replay, uniform keys"): Goal("<=", 2.0),
    ("postgres", "first"): Goal("<=", 1.25),
    ("postgres", "replay, hot keys"): Goal("<=", 1.25),
    ("postgres", "replay, uniform keys"): Goal("<=", 1.5),
    ("redis", "first"): Goal("<=", 1.25),
    ("redis", "replay, hot keys"): Goal("<=", 1.25),
    ("redis", "replay, uniform keys"): Goal("<=", 1.25),
}


def growth_rows(store: str, home: Home, sizes: list[int], slices: int) -> list[Row]:
    """The cost of each call at each size, as a ratio to the smallest."""
    callers = {}
    for size in (SMALL, *sizes):
        url = home.new()
        fill(url, range(size))
        callers[size] = Caller(url, size)
        callers[size].check()
    contenders = {
        (size, name): functools.partial(timed, functools.partial(call, caller), 25)
        for size, caller in callers.items()
        for name, call in CALLS.items()
    }
    medians = take_turns(contenders, slices)
    for caller in callers.values():
        caller.close()
    return [
        ratio(
            f"{store} {name}, {size:,} records",
            medians[size, name],
            medians[SMALL, name],
            GROWTH[store, name],
        )
        for size in sizes
        for name in CALLS
    ]


def doubt_row(store: str, home: Home, doubts: int, slices: int) -> Row:
    """A first call where many effects are in doubt, beside one where none is."""
    full, empty = home.new(), home.new()
    fill(full, range(doubts), in_doubt)
    callers = {"full": Caller(full, 0, start=doubts), "empty": Caller(empty, 0, start=doubts)}
    shown = callers["full"].guard.in_doubt(limit=10)
    if len(shown) != 10 or sum(callers["full"].guard.counts().values()) != doubts:
        raise SystemExit("the records that were filled in are not in doubt")
    medians = take_turns(
        {name: functools.partial(timed, caller.first, 25) for name, caller in callers.items()},
        slices,
    )
    for caller in callers.values():
        caller.close()
    return ratio(
        f"{store} first beside {doubts:,} in doubt",
        medians["full"],
        medians["empty"],
        GROWTH[store, "first"],
    )


def weight_rows(store: str, home: Home, records: int) -> list[Row]:
    """What a record weighs as calls leave it, with its share of the indexes."""
    rows = []
    for size, result in SIZES.items():
        url = home.new()
        caller, empty = Caller(url, 0, result), home.weigh(url)
        for number in range(records):
            caller.first()
            if number % 1000 == 999:
                # a server tidies up all the time; without it every update would leave a dead row
                # to be weighed
                home.weigh(url)
        caller.close()
        each = (home.weigh(url) - empty) / records
        rows.append(
            Row(f"{store} bytes of a record, result of {size}", each, None, "B", each, "bytes")
        )
    return rows


def chosen_options() -> argparse.Namespace:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--store", default=",".join(HOMES), help="which stores (default: %(default)s)"
        )
        parser.add_argument(
            "--largest",
            choices=("1e6", "1e7"),
            default="1e6",
            help="ten million take minutes and gigabytes",
        )

    return options(__doc__, folder=True, more=more)


def main() -> None:
    chosen = chosen_options()
    largest = int(float(chosen.largest))
    sizes = (
        [2000]
        if chosen.quick
        else [size for size in (100_000, 1_000_000, 10_000_000) if size <= largest]
    )
    slices, doubts, weighed = (2, 500, 200) if chosen.quick else (60, 100_000, 10_000)
    due, moment_s, moments = (500, 0.05, 1) if chosen.quick else (100_000, 0.5, 16)
    rows, loads = [], [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name:
        folder = Path(name)
        disk = {"disk": f"{filesystem(folder)}, one fdatasync {fsync_s(folder, 20) * 1e6:.0f} us"}
        for store in chosen.store.split(","):
            with HOMES[store](folder) as home:
                rows += growth_rows(store, home, sizes, slices)
            loads.append(os.getloadavg()[0])
            with HOMES[store](folder) as home:
                rows.append(doubt_row(store, home, doubts, slices))
                rows += weight_rows(store, home, weighed)
                rows += sweep_rows(store, home, due, moment_s, moments)
            loads.append(os.getloadavg()[0])
    notes = {
        "floor": f"the same store with {SMALL:,} records",
        "load": " ".join(f"{load:.1f}" for load in loads),
    }
    report(rows, chosen, machine() | disk | notes)


if __name__ == "__main__":
    main()
