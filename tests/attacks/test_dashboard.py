"""Whoever fills a store, or loads pages without end, does not stop the dashboard, or the
application that it is mounted in.
"""

import sqlite3
import threading

import anyio
import anyio.to_thread
import pytest

from effectonce import Guard
from effectonce._core.effect_ref import reference_of
from effectonce._core.ops import ReadCell, Search, Tally
from effectonce._core.record import State
from effectonce.dashboard import Access, _playground
from effectonce.dashboard._request import RefusedVisit
from effectonce.simulate.storm import simulate
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.stores.sqlite.statements import BROWSE, BROWSE_OF
from tests.attacks.crowds import crowd, fill_sqlite
from tests.server.conftest import browser

PAGES = (
    *(
        "/",
        "/effects",
        "/in-doubt",
        "/letters",
        "/letters?tool=refund",
        "/letters?tool=other",
        "/breakers",
        "/workflows",
    ),
    "/workflows?state=completed",
)


class Counted(SqliteStore):
    """Counts what is asked of it, and the records that it gives."""

    ops = records = 0

    def apply(self, op):
        reply = super().apply(op)
        self.ops += 1
        self.records += len(reply) if isinstance(reply, tuple) else 1
        return reply


def crowded(path, copies):
    """A store with as many doubts, letters of another kind, and outcomes."""
    store = Counted(path)
    store.apply(ReadCell("clock"))
    states = State.IN_DOUBT, State.CLAIMED, State.COMPLETED
    fill_sqlite(path, crowd(dict.fromkeys(states, copies)))
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same store twice, one with five times as much in it."""
    found = [
        crowded(tmp_path_factory.mktemp("store") / "effects.db", copies)
        for copies in (3_000, 15_000)
    ]
    yield found
    for store in found:
        store.close()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_reads_as_much_of_a_large_store_as_of_a_small_one(stores, page):
    work = []
    for store in stores:
        viewer = browser(Guard(store), Access("vera"))
        store.ops = store.records = 0
        assert viewer.get(page).status_code == 200
        work.append((store.ops, store.records))

    assert work[0] == work[1]
    assert work[1][0] <= 50
    assert work[1][1] <= 5_000


@pytest.mark.parametrize("state", [State.IN_DOUBT, State.CLAIMED, State.FAILED, State.TOMBSTONE])
@pytest.mark.parametrize(
    ("tenant", "index"), [(None, "effects_rare "), ("acme", "effects_rare_of ")]
)
def test_what_is_browsed_is_read_in_its_order_from_an_index(stores, state, tenant, index):
    listed = BROWSE if tenant is None else BROWSE_OF
    with sqlite3.connect(stores[0].path) as db:
        plan = " ".join(
            row[3]
            for row in db.execute(
                f"EXPLAIN QUERY PLAN {listed[state]}", (state, tenant, 0.0, "", 50)
            )
        )
    db.close()

    assert f"USING INDEX {index}" in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN effects" not in plan


def test_a_page_of_doubts_touches_as_many_rows_as_it_shows(stores):
    """Counted by SQLite itself: a callback for every hundred steps of its machine."""
    steps = []
    for store in stores:
        with sqlite3.connect(store.path) as db:
            counted = []
            db.set_progress_handler(lambda: counted.append(1), 100)  # noqa: B023
            assert (
                len(db.execute(BROWSE[State.IN_DOUBT], ("in_doubt", None, 0.0, "", 50)).fetchall())
                == 50
            )
            steps.append(len(counted))
        db.close()

    assert abs(steps[0] - steps[1]) <= 2


def test_counting_all_letters_takes_few_statements(stores):
    store = stores[1]
    dead = Guard(store).dead_letters
    store.ops = 0

    assert (
        sum(group.count for group in dead.groups())
        == store.apply(Tally())[State.IN_DOUBT] + store.apply(Tally())[State.CLAIMED]
    )
    assert store.ops <= 40  # pages of 100 would be 300, each with a look at all


def test_later_letters_of_a_rare_kind_are_reached_page_by_page(tmp_path):
    store = crowded(tmp_path / "effects.db", 1_200)
    guard = Guard(store)
    (last,) = store.apply(Search(state=State.CLAIMED, limit=1))
    viewer = browser(guard, Access("vera"))

    address, seen = "/letters?tool=refund&error=NotSent", 0
    while address:
        text = viewer.get(address).text
        seen += text.count('data-label="Effect is"')
        further = (
            text.partition('<p class="more"><a href="')[2].partition('"')[0].replace("&amp;", "&")
        )
        address = further and f"/letters{further}"

    assert seen == store.apply(Tally())[State.CLAIMED]
    assert reference_of(last.request.key) in text


def test_a_first_page_of_many_groups_says_that_there_is_more(stores):
    shown = browser(Guard(stores[0]), Access("vera")).get("/letters").text

    assert "These are the first 1,000 letters." in shown


# ---------------------------------------------------------------- simulations


class Held:
    """A simulation that ends when it is let."""

    def __init__(self):
        self.begun, self.go, self.ran = threading.Semaphore(0), threading.Event(), []

    def __call__(self, policy, rate, seed):
        self.ran.append(threading.current_thread().name)
        self.begun.release()
        assert self.go.wait(30)
        return simulate(seed=seed, rate=5.0, policies=[policy])


def test_simulations_leave_the_threads_of_the_application_free():
    held = Held()
    simulations = _playground.Simulations(held)
    asked = _playground._read(dict(_playground.FIRST) | dict.fromkeys(_playground.SWITCHES, ""))

    async def crowd():
        free, refused = anyio.to_thread.current_default_thread_limiter(), []

        async def one(viewer, seed):
            try:
                await simulations.result(viewer, (*asked[:2], seed))
            except RefusedVisit as refusal:
                refused.append(refusal.status)

        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(one, f"viewer {number}", number)
            group.start_soon(one, "viewer 0", 99)
            await anyio.to_thread.run_sync(held.begun.acquire)
            borrowed = free.borrowed_tokens
            await anyio.to_thread.run_sync(held.go.set)
        return borrowed, refused

    borrowed, refused = anyio.run(crowd)

    assert borrowed == 0
    assert len(held.ran) == _playground.AT_ONCE + _playground.WAITING
    assert sorted(refused) == [429] + [503] * (60 - _playground.AT_ONCE - _playground.WAITING)
    assert {name.rpartition("_")[0] for name in held.ran} == {"effectonce-storm"}


def test_a_viewer_has_one_simulation_at_a_time_and_another_afterwards():
    held = Held()
    simulations = _playground.Simulations(held)
    policy, rate, _ = _playground._read(
        dict(_playground.FIRST) | dict.fromkeys(_playground.SWITCHES, "")
    )

    async def twice():
        async with anyio.create_task_group() as group:
            group.start_soon(simulations.result, "vera", (policy, rate, 1))
            await anyio.to_thread.run_sync(held.begun.acquire)
            with pytest.raises(RefusedVisit) as refused:
                await simulations.result("vera", (policy, rate, 2))
            held.go.set()
        again = await simulations.result("vera", (policy, rate, 2))
        return refused.value.status, again is await simulations.result("vera", (policy, rate, 2))

    assert anyio.run(twice) == (429, True)
    assert len(held.ran) == 2


def test_a_simulation_that_fails_does_not_lock_its_viewer_out():
    def broken(policy, rate, seed):
        raise MemoryError

    simulations = _playground.Simulations(broken)

    async def thrice():
        for _ in range(3):
            with pytest.raises(MemoryError):
                await simulations.result("vera", (None, 1.0, 1))

    anyio.run(thrice)


def test_the_page_says_that_there_are_too_many(monkeypatch):
    simulations = _playground.Simulations(Held())
    simulations._viewers |= {
        f"viewer {n}" for n in range(_playground.AT_ONCE + _playground.WAITING)
    }
    monkeypatch.setattr(_playground, "SIMULATIONS", simulations)
    viewer = browser(Guard(MemoryStore()), Access("vera"))

    assert viewer.get("/storm").status_code == 503
    assert "Load this page again" in viewer.get("/storm").text
    assert viewer.get("/storm.svg").status_code == 503
