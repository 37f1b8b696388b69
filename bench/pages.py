"""How long each page of the dashboard takes in a store with a million records, beside the same page in one with ten thousand.

    python bench/pages.py [--quick] [--json] [--dir FOLDER] [--store sqlite,postgres,redis] [--records 1e6]

Of every twelve records ten are completed, one failed and one is in doubt; a hundred wait, and five are on their way.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from pathlib import Path

from _homes import HOMES, Home
from _paired import Row, filesystem, machine, options, ratio, report, take_turns, timed
from starlette.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.attacks.crowds import crowd, fill_postgres, fill_redis, fill_sqlite

from effectonce import Guard
from effectonce._core.records import State
from effectonce.server import Access, app

PAGES = {
    "overview": "/",
    "effects": "/effects",
    "effects of one state": "/effects?state=failed",
    "effects of a tool that has none": "/effects?tool=other",
    "doubts": "/in-doubt",
    "letters": "/letters",
    "letters of one tool": "/letters?tool=refund",
    "workflows": "/workflows",
    "workflows that completed": "/workflows?state=completed",
    "a reference that is not found": "/effects/eff_000000000000",
}


def shares(records: int) -> dict[State, int]:
    twelfth = records // 12
    return {
        State.COMPLETED: records - 2 * twelfth,
        State.FAILED: twelfth,
        State.IN_DOUBT: twelfth,
        State.CLAIMED: 100,
        State.DISPATCHED: 5,
    }


def filled(home: Home, records: int) -> Guard:
    url = home.new()
    kind, _, path = url.partition("://")
    match kind:
        case "sqlite":
            fill_sqlite(path.removeprefix("/"), crowd(shares(records)))
        case "postgresql":
            fill_postgres(url, crowd(shares(records)))
        case _:
            fill_redis(path, crowd(shares(records)))
    return Guard(url)


def page_rows(store: str, home: Home, sizes: tuple[int, int], slices: int) -> list[Row]:
    """The time of each page in the larger store, beside the smaller."""
    guards = {size: filled(home, size) for size in sizes}
    viewers = {size: TestClient(app(guard, access=lambda _: Access("vera"))) for size, guard in guards.items()}
    contenders = {
        (size, name): functools.partial(timed, functools.partial(viewer.get, path), 1)
        for size, viewer in viewers.items()
        for name, path in PAGES.items()
    }
    medians = take_turns(contenders, slices)
    for guard in guards.values():
        guard.close()
    small, large = sizes
    return [
        ratio(f"{store} {name}, {large:,} records", medians[large, name], medians[small, name], unit="ms") for name in PAGES
    ]


def chosen_options() -> argparse.Namespace:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--store", default=",".join(HOMES), help="which stores (default: %(default)s)")
        parser.add_argument("--records", type=float, default=1e6, help="in the larger store (default: a million)")

    return options(__doc__, folder=True, more=more)


def main() -> None:
    chosen = chosen_options()
    sizes, slices = ((1_200, 2_400), 1) if chosen.quick else ((10_000, int(chosen.records)), 7)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name:
        folder = Path(name)
        for store in chosen.store.split(","):
            with HOMES[store](folder) as home:
                rows += page_rows(store, home, sizes, slices)
        report(rows, chosen, machine() | {"disk": filesystem(folder), "floor": f"the same page, {sizes[0]:,} records"})


if __name__ == "__main__":
    main()
