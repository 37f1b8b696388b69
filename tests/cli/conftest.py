import shutil
import subprocess
import sys
import time

import pytest
from tests.cli import shop
from tests.cli.desk import Desk, environment
from tests.servers import redis

from effectonce import Guard
from effectonce.stores.sqlite import SqliteStore

AGO_S = 2.5 * 3600  # everything in these stores happened that long ago, by their clock


@pytest.fixture
def anywhere(tmp_path):
    """A desk without a store: none is needed."""
    desk = Desk(tmp_path, "")
    desk.here = dict
    return desk


@pytest.fixture
def empty(tmp_path):
    """A desk at a new store with nothing in it."""
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    store = Guard(desk.url)
    store.counts()
    store.close()
    return desk


@pytest.fixture
def desk(tmp_path):
    """A desk at a store with six effects of two hours ago."""
    ticks = iter(range(10_000))
    start = time.time() - AGO_S
    store = SqliteStore(tmp_path / "effects.db", clock=lambda: start + next(ticks) / 1000)
    guard = shop.tools(Guard(store))
    shop.fill(guard)
    guard.close()
    return Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")


@pytest.fixture
def guard(desk):
    """The shop's own guard on the desk's store, as a process of the shop has it."""
    guard = shop.tools(Guard(desk.url))
    yield guard
    guard.close()


@pytest.fixture(params=["postgres", "redis"])
def elsewhere(request, tmp_path):
    """The same six effects in a server."""
    url = (
        request.getfixturevalue("database")
        if request.param == "postgres"
        else redis.emptied(redis.server()).url
    )
    guard = shop.tools(Guard(url))
    shop.fill(guard)
    guard.close()
    return Desk(tmp_path, url)


class DepotDesk(Desk):
    """A desk at the depot's store; what really happened is in its ledger."""

    def here(self):
        return {
            **super().here(),
            "DEPOT_STORE": self.url,
            "DEPOT_LEDGER": str(self.folder / "ledger"),
        }

    def done(self):
        return (self.folder / "ledger").read_text().splitlines()


def depot_at(folder, url):
    """Fill a store from a process of its own, which ends."""
    desk = DepotDesk(folder, url)
    code = "from tests.cli import depot; depot.fill(depot.guard)"
    subprocess.run([sys.executable, "-c", code], env=environment(**desk.here()), check=True)
    return desk


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("depot")
    depot_at(folder, f"sqlite:///{folder / 'effects.db'}")
    return folder


@pytest.fixture
def depot(filled, tmp_path):
    """A desk at the depot of this morning."""
    for file in filled.iterdir():
        shutil.copy(file, tmp_path / file.name)
    return DepotDesk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")


@pytest.fixture(params=["postgres", "redis"])
def depot_elsewhere(request, tmp_path):
    """The same depot in a server."""
    url = (
        request.getfixturevalue("database")
        if request.param == "postgres"
        else redis.emptied(redis.server()).url
    )
    return depot_at(tmp_path, url)
