"""How long each page of the dashboard takes in a store with a million records, beside the same
page in one with ten thousand.

    python bench/pages.py [--quick] [--json] [--dir FOLDER]
        [--store sqlite,postgres,redis] [--records 1e6]

Of every twelve records ten are completed, one failed and one is in doubt; a hundred wait, and
five are on their way. Each is found by a payment id. The rows *by its reference* and *that is not
there* look at all keys; no other does. Overview, effects and searches have goals in milliseconds.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import psycopg
from _homes import HOMES, Home
from _paired import Goal, Row, filesystem, machine, options, ratio, report, take_turns, timed
from starlette.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.attacks.crowds import crowd, fill_postgres, fill_redis, fill_sqlite

from effectonce import Guard
from effectonce._core.effect_ref import reference_of
from effectonce._core.ops import Together, WriteCell
from effectonce._core.record import Record, State
from effectonce._core.search_terms import begins
from effectonce.dashboard import Access, app
from effectonce.dashboard._request import link_of

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
    "an old effect by its link": "/effects/{link}",
    "the list after it": "/effects?state=completed&after={link}",
    "an old effect by its reference": "/effects/{reference}",
    "a reference that is not there": "/effects/eff_000000000000",
    "box: a payment id": "/effects?find=pay_0000017",
    "box: the beginning of many": "/effects?find=pay_",
    "box: a payment id that has no effect": "/effects?find=pay_none",
}
# of guard.search, without a page around what it finds
SEARCHES = {
    "search: a payment id": "pay_0000017",
    "search: the beginning of many": "pay_",
    "search: a payment id that has no effect": "pay_none",
}
GOALS_MS = {"overview": 300, "effects": 300} | dict.fromkeys(SEARCHES, 200)
FAR = 1e12  # when a cell is forgotten


def shares(records: int) -> dict[State, int]:
    twelfth = records // 12
    return {
        State.COMPLETED: records - 2 * twelfth,
        State.FAILED: twelfth,
        State.IN_DOUBT: twelfth,
        State.CLAIMED: 100,
        State.DISPATCHED: 5,
    }


def filled(home: Home, records: int) -> tuple[Guard, str]:
    """A store, and the key of an old effect in it."""
    url = home.new()
    kind, _, path = url.partition("://")
    everything = crowd(shares(records))
    first = list(itertools.islice(everything, 20))
    everything = itertools.chain(first, everything)
    match kind:
        case "sqlite":
            fill_sqlite(path.removeprefix("/"), everything)
        case "postgresql":
            fill_postgres(url, everything)
        case _:
            fill_redis(path, everything)
    guard = Guard(url)
    index(guard, url, crowd(shares(records)))
    return guard, next(record.request.key for record in first if record.state is State.COMPLETED)


def index(guard: Guard, url: str, records: Iterable[Record]) -> None:
    """Let each effect be found by a payment id, as `searchable=` does."""
    names = (
        f"{begins(f'pay_{n:07}', b'')} {record.request.key}" for n, record in enumerate(records)
    )
    match url.partition("://")[0]:
        case "sqlite":
            with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
                file.executemany(
                    "INSERT INTO cells (name, value, revision, forget_at) VALUES (?, x'', 1, ?)",
                    ((name, FAR) for name in names),
                )
            file.close()
        case "postgresql":
            with psycopg.connect(url, autocommit=True) as db:
                copied = "COPY effectonce.cells (name, value, forget_at) FROM STDIN"
                with db.cursor().copy(copied) as copy:
                    for name in names:
                        copy.write_row((name, b"", FAR))
                db.execute("VACUUM (ANALYZE) effectonce.cells")
        case _:
            for some in batches(names, 500):
                guard.store.apply(
                    Together(tuple(WriteCell(name, 0, b"", 1e9, listed=True) for name in some))
                )


def batches(names: Iterator[str], size: int) -> Iterator[list[str]]:
    while some := list(itertools.islice(names, size)):
        yield some


def page_rows(store: str, home: Home, sizes: tuple[int, int], slices: int) -> list[Row]:
    """The time of each page in the larger store, beside the smaller."""
    stores = {size: filled(home, size) for size in sizes}
    contenders = {
        (size, name): functools.partial(
            timed, functools.partial(_viewer(guard).get, _address(page, key)), 1
        )
        for size, (guard, key) in stores.items()
        for name, page in PAGES.items()
    } | {
        (size, name): functools.partial(timed, functools.partial(guard.search, known), 1)
        for size, (guard, _) in stores.items()
        for name, known in SEARCHES.items()
    }
    medians = take_turns(contenders, slices)
    for guard, _ in stores.values():
        guard.close()
    small, large = sizes
    return [
        _row(f"{store} {name}, {large:,} records", medians[large, name], medians[small, name], name)
        for name in (*PAGES, *SEARCHES)
    ]


def _row(what: str, large_s: float, small_s: float, name: str) -> Row:
    if name not in GOALS_MS:
        return ratio(what, large_s, small_s, unit="ms")
    ours, goal = large_s * 1e3, Goal("<=", GOALS_MS[name])
    return Row(what, ours, small_s * 1e3, "ms", ours, of="ours, ms", goal=goal)


def _viewer(guard: Guard) -> TestClient:
    return TestClient(app(guard, access=lambda _: Access("vera")))


def _address(page: str, key: str) -> str:
    return page.format(link=link_of(key), reference=reference_of(key))


def chosen_options() -> argparse.Namespace:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--store", default=",".join(HOMES), help="which stores (default: %(default)s)"
        )
        parser.add_argument(
            "--records", type=float, default=1e6, help="in the larger store (default: a million)"
        )

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
        report(
            rows,
            chosen,
            machine()
            | {
                "disk": filesystem(folder),
                "floor": f"the same page, {sizes[0]:,} records",
            },
        )


if __name__ == "__main__":
    main()
