"""Whoever fills a store does not make its pages read more of it. Counted by the stores
themselves: steps, blocks, bytes; never seconds.
"""

import contextlib
import json
import re
import sqlite3

import psycopg
import pytest

from effectonce import Guard
from effectonce._core.effect_ref import reference_of
from effectonce._core.ops import ReadCell
from effectonce._core.pages import Count, Recent, Refer
from effectonce._core.record import State
from effectonce.approvals._links import link_of
from effectonce.dashboard import Access
from effectonce.stores._roundtrip import answer
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.postgres.batch import queries_of
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.stores.sqlite.pages import AMONG_KEYS
from effectonce.views import status
from tests.attacks.crowds import crowd, fill_accounts, fill_postgres, fill_redis, fill_sqlite
from tests.server.conftest import browser
from tests.servers import redis
from tests.tiers import long_except

SMALL, LARGE = 2_500, 12_500  # of each state: both are beyond what a page looks at
PAGES = (
    *(
        "/",
        "/effects",
        "/effects?state=failed",
        "/effects?state=completed",
        "/effects?tool=refund",
        "/effects?tool=other",
    ),
    *(
        "/effects?state=in-doubt",
        "/effects?since=5m",
        "/effects?effect=eff_00",
        "/in-doubt",
        "/approvals",
        "/allowances",
        "/letters",
        "/letters?tool=refund",
    ),
    *("/letters?tool=other", "/workflows", "/workflows?state=completed", "/workflows?state=failed"),
    *(
        "/effects?error=Other",
        "/in-doubt?error=Other",
        "/approvals?tool=other",
        "/workflows?tool=other",
    ),
)


OF_A_TENANT = ("/", "/effects", "/in-doubt", "/approvals", "/allowances", "/letters", "/workflows")


# Every other page: SQLite has all of them in the quick tier.
ON_A_SERVER = long_except(PAGES[::2], PAGES)
each_page = pytest.mark.parametrize(
    ("page", "tenant"),
    [
        *((page, None) for page in PAGES),
        *((page, "acme") for page in OF_A_TENANT),
        *(
            pytest.param(page, "acme", marks=pytest.mark.long)
            for page in PAGES
            if page not in OF_A_TENANT
        ),
    ],
)


@pytest.fixture(autouse=True)
def few_are_counted(monkeypatch):
    """Both sizes are beyond it."""
    monkeypatch.setattr(status, "COUNTED", 100)


def shares(size, waiting):
    return {
        State.COMPLETED: size,
        State.IN_DOUBT: size,
        State.FAILED: size,
        State.CLAIMED: waiting,
        State.DISPATCHED: 5,
    }


def oldest(records, state):
    """Its key."""
    return min((r for r in records if r.state is state), key=lambda r: r.created_at).request.key


def ways(key):
    """How its page is asked for by a link, and the list that goes on after it."""
    return (
        f"/effects/{link_of(key)}",
        f"/effects?state=completed&after={link_of(key)}",
        f"/effects?after={link_of(key)}",
    )


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
        fill_accounts(store, size)
        found.append((store, records))
    yield found
    for store, _ in found:
        store.close()


def steps(store, page, tenant=None):
    viewer = browser(Guard(store), Access("vera", tenant=tenant))
    store.steps = 0
    assert viewer.get(page).status_code == 200
    return store.steps


@each_page
def test_sqlite_takes_no_more_steps_for_a_page_of_a_larger_store(files, page, tenant):
    small, large = (steps(store, page, tenant) for store, _ in files)

    assert large <= small * 1.1 + 20


@pytest.mark.parametrize("state", [State.IN_DOUBT, State.FAILED, State.CLAIMED])
def test_sqlite_takes_no_more_steps_to_find_an_old_effect(files, state):
    small, large = (
        steps(store, f"/effects/{reference_of(oldest(records, state))}") for store, records in files
    )

    assert large <= small * 1.1 + 20


@pytest.mark.parametrize("way", range(3))
def test_sqlite_takes_no_more_steps_to_follow_a_link(files, way):
    small, large = (
        steps(store, ways(oldest(records, State.COMPLETED))[way]) for store, records in files
    )

    assert large <= small * 1.1 + 20


def test_a_list_leads_to_every_effect(files):
    store, records = files[0]
    viewer, address, links = (
        browser(Guard(store), Access("vera")),
        "/effects?state=completed",
        set(),
    )
    while address:
        text = viewer.get(address).text
        links |= set(re.findall(r'href="/effects/(eff_\w+)"', text))
        further = re.search(r'<a href="([^"]*)">Older ones</a>', text)
        address = "" if further is None else "/effects" + further[1].replace("&amp;", "&")

    assert links == {
        link_of(record.request.key) for record in records if record.state is State.COMPLETED
    }


def test_sqlite_reads_nothing_but_keys_to_find_a_reference(files):
    with contextlib.closing(sqlite3.connect(files[0][0].path)) as db:
        (plan,) = db.execute(f"EXPLAIN QUERY PLAN {AMONG_KEYS}", ("", "~", "0" * 12)).fetchall()

    assert "USING COVERING INDEX" in plan[3]


def test_all_pages_together_have_every_effect_once(files):
    store, records = files[0]
    seen, page = [], store.apply(Recent(limit=500))
    while page.further is not None:
        seen += page.records
        page = store.apply(Recent(after=page.further, limit=500))

    keys = [record.request.key for record in (*seen, *page.records)]
    assert sorted(keys) == sorted(record.request.key for record in records)
    assert [record.created_at for record in seen] == sorted(
        (record.created_at for record in seen), reverse=True
    )


def test_a_count_that_ends_early_says_so(files):
    counts = files[0][0].apply(Count(100))

    assert counts.more == {State.COMPLETED, State.IN_DOUBT, State.FAILED, State.CLAIMED}
    assert counts.numbers[State.DISPATCHED] == 5
    assert all(counts.numbers[state] <= 100 for state in counts.more)
    assert "100 or more" in browser(Guard(files[0][0]), Access("vera")).get("/").text


# ---------------------------------------------------------------- PostgreSQL: blocks that its
# plans touch


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
        fill_accounts(store, size)
        fill_postgres(url, records)
        found.append((store, url, records))
    yield found
    for store, _, _ in found:
        store.close()


def blocks(store, url, page, tenant=None):
    """What the statements for a page touch, in and out of memory."""
    viewer = browser(Guard(store), Access("vera", tenant=tenant))
    store.ops = ()
    assert viewer.get(page).status_code == 200
    with psycopg.connect(url, autocommit=True) as db:
        return sum(
            _touched(db, query) for op in store.ops for query in queries_of(next(answer(op)), None)
        )


def _touched(db, query):
    explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.statement.sql
    result = db.pgconn.exec_params(
        explain, query.parameters, query.statement.types, query.statement.formats
    )
    assert result.ntuples, result.error_message
    plan = json.loads(result.get_value(0, 0))[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.parametrize("tenant", [None, pytest.param("acme", marks=pytest.mark.long)])
@pytest.mark.parametrize("page", ON_A_SERVER)
def test_postgresql_touches_no_more_blocks_for_a_page_of_a_larger_store(databases, page, tenant):
    small, large = (blocks(store, url, page, tenant) for store, url, _ in databases)

    # half as many as rows that are looked at: they may lie apart
    assert large <= small * 1.5 + 1_000


@pytest.mark.parametrize("state", [State.IN_DOUBT, State.FAILED, State.CLAIMED])
def test_postgresql_touches_no_more_blocks_to_find_an_old_effect(databases, state):
    small, large = (
        blocks(store, url, f"/effects/{reference_of(oldest(records, state))}")
        for store, url, records in databases
    )

    assert large <= small * 1.5 + 100


@pytest.mark.parametrize("way", range(3))
def test_postgresql_touches_no_more_blocks_to_follow_a_link(databases, way):
    small, large = (
        blocks(store, url, ways(oldest(records, State.COMPLETED))[way])
        for store, url, records in databases
    )

    assert large <= small * 1.5 + 100


# ---------------------------------------------------------------- Redis: commands, and bytes
# that it answers with


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    found = []
    for size in (SMALL, LARGE):
        server = redis.Server(tmp_path_factory.mktemp("redis"))
        records = list(crowd(shares(size, size)))
        fill_redis(server.socket, records)
        store = RedisStore(server.url)
        fill_accounts(store, size)
        found.append((server, store, records))
    yield found
    for server, store, _ in found:
        store.close()
        server.stop()


def answered(server, store, page):
    viewer = browser(Guard(store), Access("vera"))
    before = _sent(server)
    assert viewer.get(page).status_code == 200
    return _sent(server) - before


def _sent(server):
    lines = server.ask("INFO", "stats").decode().splitlines()
    return int(
        next(line for line in lines if line.startswith("total_net_output_bytes:")).partition(":")[2]
    )


@pytest.mark.parametrize("page", ON_A_SERVER)
def test_redis_answers_with_no_more_for_a_page_of_a_larger_store(servers, page):
    small, large = (answered(server, store, page) for server, store, _ in servers)

    assert large <= small * 1.5 + 10_000


@pytest.mark.parametrize("state", [State.IN_DOUBT, State.FAILED, State.CLAIMED, State.COMPLETED])
def test_redis_answers_with_no_more_to_find_an_old_effect(servers, state):
    small, large = (
        answered(server, store, f"/effects/{reference_of(oldest(records, state))}")
        for server, store, records in servers
    )

    assert large <= small * 1.5 + 10_000


@pytest.mark.parametrize("way", range(3))
def test_redis_answers_with_no_more_to_follow_a_link(servers, way):
    small, large = (
        answered(server, store, ways(oldest(records, State.COMPLETED))[way])
        for server, store, records in servers
    )

    assert large <= small * 1.5 + 10_000


def test_redis_answers_with_little_more_than_a_page_shows(servers):
    server, store, _ = servers[1]
    before = _sent(server)
    page = store.apply(Recent(limit=50))
    sent = _sent(server) - before

    assert len(page.records) == 50
    assert sent < 100_000  # 50 records, and a few members of each of 257 parts


def test_redis_has_every_effect_on_one_page(servers):
    _, store, records = servers[0]
    seen, page = [], store.apply(Recent(limit=1000))
    while page.further is not None:
        seen += page.records
        page = store.apply(Recent(after=page.further, limit=1000))

    assert sorted(r.request.key for r in (*seen, *page.records)) == sorted(
        r.request.key for r in records
    )


def test_redis_finds_what_was_shown_last_by_its_reference(servers):
    _, store, records = servers[1]
    newest = max(
        (r for r in records if r.state is State.IN_DOUBT), key=lambda r: r.created_at
    ).request.key

    assert [r.request.key for r in store.apply(Refer(reference_of(newest)[4:]))] == [newest]


# ---------------------------------------------------------------- every store


@pytest.fixture(params=["files", "databases", "servers"])
def filled(request):
    """A store, and what is in it."""
    found = request.getfixturevalue(request.param)[1]
    return next(each for each in found if hasattr(each, "apply")), found[-1]


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "state", [State.COMPLETED, State.DISPATCHED, State.CLAIMED, State.FAILED, State.IN_DOUBT]
)
def test_every_effect_is_found_by_its_reference_in_a_process_that_never_showed_it(filled, state):
    store, records = filled
    reference = reference_of(oldest(records, state))
    viewer = browser(Guard(store), Access("vera"))

    assert reference in viewer.get(f"/effects/{reference}").text
    assert reference in viewer.get(f"/effects?effect={reference}").text
    assert [each.request.key for each in [Guard(store).dead_letters.show(reference).record]] == [
        oldest(records, state)
    ]


def test_a_link_shows_no_viewer_of_another_tenant_what_it_leads_to(filled):
    store, records = filled
    link = link_of(oldest(records, State.COMPLETED))

    assert (
        browser(Guard(store), Access("vera", tenant="acme")).get(f"/effects/{link}").status_code
        == 404
    )
