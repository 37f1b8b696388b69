"""Whoever fills a store does not make its pages read more of it. Counted by the stores themselves: steps, blocks, bytes; never seconds."""

import json
import re

import psycopg
import pytest

from effectonce import Guard
from effectonce._core.ops import ReadCell
from effectonce._core.pages import Count, Recent, Refer
from effectonce._core.records import State
from effectonce._shown import status
from effectonce.effect import reference_of
from effectonce.server import Access
from effectonce.stores._exchange import answer
from effectonce.stores._postgres_jobs import queries_of
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from tests.attacks.crowds import crowd, fill_postgres, fill_redis, fill_sqlite
from tests.server.conftest import browser
from tests.servers import redis

SMALL, LARGE = 2_500, 12_500  # of each state: both are beyond what a page looks at
PAGES = (
    *("/", "/effects", "/effects?state=failed", "/effects?state=completed", "/effects?tool=refund", "/effects?tool=other"),
    *(
        "/effects?state=in-doubt",
        "/effects?since=5m",
        "/effects?effect=eff_00",
        "/in-doubt",
        "/letters",
        "/letters?tool=refund",
    ),
    *("/letters?tool=other", "/workflows", "/workflows?state=completed", "/workflows?state=failed"),
)


@pytest.fixture(autouse=True)
def few_are_counted(monkeypatch):
    """Both sizes are beyond it."""
    monkeypatch.setattr(status, "COUNTED", 100)


def shares(size, waiting):
    return {State.COMPLETED: size, State.IN_DOUBT: size, State.FAILED: size, State.CLAIMED: waiting, State.DISPATCHED: 5}


def oldest(records, state):
    return reference_of(min((r for r in records if r.state is state), key=lambda r: r.created_at).request.key)


# ---------------------------------------------------------------- SQLite: steps of its machine


class Stepping(SqliteStore):
    """Counts steps, in hundreds."""

    steps = 0

    def apply(self, op):
        self._connect().db.set_progress_handler(self._count, 100)
        return super().apply(op)

    def _count(self):
        self.steps += 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    found = []
    for size in (SMALL, LARGE):
        store = Stepping(tmp_path_factory.mktemp("store") / "effects.db")
        store.apply(ReadCell("clock"))
        records = list(crowd(shares(size, size)))
        fill_sqlite(store.path, records)
        found.append((store, records))
    yield found
    for store, _ in found:
        store.close()


def steps(store, page, code=200):
    viewer = browser(Guard(store), Access("vera"))
    store.steps = 0
    assert viewer.get(page).status_code == code
    return store.steps


@pytest.mark.parametrize("page", PAGES)
def test_sqlite_takes_no_more_steps_for_a_page_of_a_larger_store(files, page):
    small, large = (steps(store, page) for store, _ in files)

    assert large <= small * 1.1 + 20


@pytest.mark.parametrize(("state", "code"), [(State.IN_DOUBT, 200), (State.FAILED, 200), (State.COMPLETED, 404)])
def test_sqlite_takes_no_more_steps_to_find_an_old_effect(files, state, code):
    small, large = (steps(store, f"/effects/{oldest(records, state)}", code) for store, records in files)

    assert large <= small * 1.1 + 20


def test_an_old_effect_is_found_by_its_link(files):
    store, records = files[0]
    viewer, address, text = browser(Guard(store), Access("vera")), "/effects?state=completed", ""
    for _ in range(SMALL // 50 + 1):
        text = viewer.get(address).text
        further = re.search(r'<a href="([^"]*)">Older ones</a>', text)
        if further is None:
            break
        address = "/effects" + further[1].replace("&amp;", "&")
    old = oldest(records, State.COMPLETED)

    assert old in text
    store.steps = 0
    assert viewer.get(f"/effects/{old}").status_code == 200
    assert store.steps <= 20


def test_all_pages_together_have_every_effect_once(files):
    store, records = files[0]
    seen, page = [], store.apply(Recent(limit=500))
    while page.further is not None:
        seen += page.records
        page = store.apply(Recent(after=page.further, limit=500))

    keys = [record.request.key for record in (*seen, *page.records)]
    assert sorted(keys) == sorted(record.request.key for record in records)
    assert [record.created_at for record in seen] == sorted((record.created_at for record in seen), reverse=True)


def test_a_count_that_ends_early_says_so(files):
    counts = files[0][0].apply(Count(100))

    assert counts.more == {State.COMPLETED, State.IN_DOUBT, State.FAILED, State.CLAIMED}
    assert counts.numbers[State.DISPATCHED] == 5
    assert all(counts.numbers[state] <= 100 for state in counts.more)
    assert "100 or more" in browser(Guard(files[0][0]), Access("vera")).get("/").text


# ---------------------------------------------------------------- PostgreSQL: blocks that its plans touch


class Asked(PostgresStore):
    """Remembers what it was asked for."""

    ops = ()

    def apply(self, op):
        self.ops = (*self.ops, op)
        return super().apply(op)


@pytest.fixture(scope="module")
def databases(postgres):
    found = []
    for size in (SMALL, LARGE):
        url = postgres.database()
        store = Asked(url)
        store.apply(ReadCell("clock"))
        records = list(crowd(shares(size, size)))
        fill_postgres(url, records)
        found.append((store, url, records))
    yield found
    for store, _, _ in found:
        store.close()


def blocks(store, url, page, code=200):
    """What the statements for a page touch, in and out of memory."""
    viewer = browser(Guard(store), Access("vera"))
    store.ops = ()
    assert viewer.get(page).status_code == code
    with psycopg.connect(url, autocommit=True) as db:
        return sum(_touched(db, query) for op in store.ops for query in queries_of(next(answer(op)), None))


def _touched(db, query):
    explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.statement.sql
    result = db.pgconn.exec_params(explain, query.parameters, query.statement.types, query.statement.formats)
    assert result.ntuples, result.error_message
    plan = json.loads(result.get_value(0, 0))[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.parametrize("page", PAGES)
def test_postgresql_touches_no_more_blocks_for_a_page_of_a_larger_store(databases, page):
    small, large = (blocks(store, url, page) for store, url, _ in databases)

    assert large <= small * 1.5 + 100


@pytest.mark.parametrize(("state", "code"), [(State.IN_DOUBT, 200), (State.FAILED, 200), (State.COMPLETED, 404)])
def test_postgresql_touches_no_more_blocks_to_find_an_old_effect(databases, state, code):
    small, large = (blocks(store, url, f"/effects/{oldest(records, state)}", code) for store, url, records in databases)

    assert large <= small * 1.5 + 100


# ---------------------------------------------------------------- Redis: commands, and bytes that it answers with


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    found = []
    for size in (SMALL, LARGE):
        server = redis.Server(tmp_path_factory.mktemp("redis"))
        records = list(crowd(shares(size, 30)))
        fill_redis(server.socket, records)
        found.append((server, RedisStore(server.url), records))
    yield found
    for server, store, _ in found:
        store.close()
        server.stop()


def answered(server, store, page, code=200):
    viewer = browser(Guard(store), Access("vera"))
    before = _sent(server)
    assert viewer.get(page).status_code == code
    return _sent(server) - before


def _sent(server):
    lines = server.ask("INFO", "stats").decode().splitlines()
    return int(next(line for line in lines if line.startswith("total_net_output_bytes:")).partition(":")[2])


@pytest.mark.parametrize("page", ["/effects", "/workflows"])
def test_redis_answers_with_no_more_for_a_page_of_a_larger_store(servers, page):
    small, large = (answered(server, store, page) for server, store, _ in servers)

    assert large <= small * 1.5 + 10_000


def test_redis_has_every_effect_on_one_page(servers):
    _, store, records = servers[0]
    seen, page = [], store.apply(Recent(limit=1000))
    while page.further is not None:
        seen += page.records
        page = store.apply(Recent(after=page.further, limit=1000))

    assert sorted(r.request.key for r in (*seen, *page.records)) == sorted(r.request.key for r in records)


def test_redis_finds_what_was_shown_last_by_its_reference(servers):
    _, store, records = servers[1]
    newest = max((r for r in records if r.state is State.IN_DOUBT), key=lambda r: r.created_at).request.key

    assert [r.request.key for r in store.apply(Refer(reference_of(newest)[4:]))] == [newest]
