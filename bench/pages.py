"""How long each page of the dashboard takes in a store with a million records, beside the same
page in one with ten thousand.

    python bench/pages.py [--quick] [--json] [--dir FOLDER]
        [--store sqlite,postgres,redis] [--records 1e6]

Of every twelve records ten are completed, one failed and one is in doubt; a hundred wait, and
five are on their way. Only the last two rows look at all keys.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import tempfile
from pathlib import Path

from _homes import HOMES, Home
from _paired import Row, filesystem, machine, options, ratio, report, take_turns, timed
from starlette.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.attacks.crowds import crowd, fill_postgres, fill_redis, fill_sqlite

from effectonce import Guard
from effectonce._core.effect_ref import reference_of
from effectonce._core.record import State
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
    return Guard(url), next(
        record.request.key for record in first if record.state is State.COMPLETED
    )


def page_rows(store: str, home: Home, sizes: tuple[int, int], slices: int) -> list[Row]:
    """The time of each page in the larger store, beside the smaller."""
    stores = {size: filled(home, size) for size in sizes}
    contenders = {
        (size, name): functools.partial(
            timed, functools.partial(_viewer(guard).get, _address(page, key)), 1
        )
        for size, (guard, key) in stores.items()
        for name, page in PAGES.items()
    }
    medians = take_turns(contenders, slices)
    for guard, _ in stores.values():
        guard.close()
    small, large = sizes
    return [
        ratio(
            f"{store} {name}, {large:,} records",
            medians[large, name],
            medians[small, name],
            unit="ms",
        )
        for name in PAGES
    ]


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
