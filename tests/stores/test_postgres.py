"""What only a server can do: be away, hang, restart, stand by, be newer, or forget to sync."""

import asyncio
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from effectonce import ContractViolation, Guard, StoreUnavailable
from effectonce._core import ops
from effectonce.dashboard import Access
from effectonce.stores import open_store
from effectonce.stores.postgres import PostgresStore, schema
from effectonce.testing.conformance.bench import KEYED, LEASE_S, request
from tests.server.conftest import browser
from tests.servers.postgres import Postgres, round_trips, through
from tests.stores.helpers import aguarded, claim, guarded, in_threads, name_of, wait_for_a_lock


@pytest.fixture
def store(database):
    store = PostgresStore(database)
    yield store
    store.close()


def hurry(store, timeout_s):
    """From now on whatever is asked has so much time, also on the connections that are open."""
    store._timeout_s = timeout_s
    for lane in (lane for lanes in store._lanes.values() for lane in lanes._lanes):
        if lane._watch is not None:
            lane._watch.cancel()
            lane._watch = None


def refused(store, reason, *, lasts=True):
    """Nothing is sent, in either colour, and the reason is told."""
    for paying in (guarded, aguarded):
        calls = []
        _, pay = paying(store, calls)
        with pytest.raises(StoreUnavailable, match=reason) as caught:
            asyncio.run(pay()) if paying is aguarded else pay()
        assert calls == [], "nothing may be sent"
        assert caught.value.retriable is not lasts
        assert caught.value.code == ("STORE_UNUSABLE" if lasts else "STORE_UNAVAILABLE")
        assert "temporarily" not in caught.value.corrective_action or not lasts
        assert "Nothing was sent" in str(caught.value)


# ---------------------------------------------------------------- the URL


def test_a_url_opens_the_store(database):
    for url in (database, database.replace("postgresql://", "postgres://")):
        store = open_store(url)
        assert isinstance(store, PostgresStore)
        assert store.capabilities.durable
        assert store.capabilities.transactions
        store.close()


def test_a_url_that_is_none_is_refused():
    with pytest.raises(ContractViolation, match="not the URL of a PostgreSQL database"):
        PostgresStore("postgresql://host/db?no_such_option=1")


def test_without_psycopg_the_module_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("effectonce.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="pip install 'effectonce"):
        open_store("postgresql://localhost/effects")


def test_an_error_never_names_the_password(tmp_path):
    store = PostgresStore(
        f"postgresql://ada:hunter2@/effects?host={tmp_path}&port=1", timeout_s=0.5
    )
    with pytest.raises(StoreUnavailable) as caught:
        store.apply(ops.Tally())
    assert "hunter2" not in str(caught.value)
    assert "/effects" in str(caught.value)


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("paying", [guarded, aguarded])
def test_a_first_call_is_two_round_trips_and_a_replay_is_one(database, proxy, paying):
    store, counts = PostgresStore(through(proxy, database)), []
    _, pay = paying(store, [])

    async def main():
        for invoice in ("warm up", "inv_1", "inv_1"):
            paid = pay(invoice)
            if paying is aguarded:
                await paid
            counts.append(round_trips(proxy.sent[0]))

    asyncio.run(main())
    assert [after - before for before, after in itertools.pairwise(counts)] == [2, 1]
    assert len(proxy.sent) == 1
    store.close()


def test_one_bad_apple_does_not_spoil_the_batch(database, postgres):
    """A batch that fails is asked again one by one: only the one that is held up waits."""
    store = PostgresStore(database, connections=1)
    store.apply(claim("stuck"))
    with psycopg.connect(database) as other:
        other.execute("SELECT * FROM effectonce.effects WHERE key = 'stuck' FOR UPDATE")

        async def within(timeout_s, op):
            store._timeout_s = timeout_s
            return await store.aapply(op)

        async def main():
            await store.aapply(ops.Tally())
            hurry(store, 60.0)
            (lane,) = store._lanes[asyncio.get_running_loop()]._lanes
            # deadlines differ only here
            lane._watch = asyncio.get_running_loop().call_later(1.5, lane._look_at_the_clock)
            others = [within(60.0, claim(f"k{n}")) for n in range(8)]
            stuck = within(1.0, ops.Complete("stuck", "t", 1, b"x"))
            return await asyncio.gather(*others[:4], stuck, *others[4:], return_exceptions=True)

        replies = asyncio.run(main())
    assert sum(isinstance(reply, ops.Held) for reply in replies) == 8
    (error,) = [reply for reply in replies if isinstance(reply, StoreUnavailable)]
    assert "Whether this was written is not known" in str(error)
    store.close()


# ---------------------------------------------------------------- servers that lose things


def test_commits_are_durable_whatever_the_defaults_are(postgres, database):
    name = name_of(database)
    postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    postgres.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO noted VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$",
        database,
    )
    postgres.execute("CREATE TABLE noted (setting text)", database)
    store, calls = PostgresStore(database), []
    store.apply(ops.Tally())
    postgres.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON effectonce.effects FOR EACH ROW EXECUTE"
        " FUNCTION note()",
        database,
    )

    _, pay = guarded(store, calls)
    pay()
    store.apply(claim("other"))
    store.apply(ops.Renew("other", "t", 1, LEASE_S))
    with store.transaction() as transaction:
        assert transaction.connection.execute("SHOW synchronous_commit").fetchone() == ("on",)

    assert postgres.execute("SELECT DISTINCT setting FROM noted", database) == [("on",)]
    store.close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_records_is_refused(setting):
    with Postgres(**{setting: "off"}) as server:
        url = server.database()
        refused(PostgresStore(url), f"{setting} = off.*Set {setting} = on")
        store = PostgresStore(url, accept_fsync_off=True)
        assert not store.capabilities.durable
        assert isinstance(store.apply(claim("k")), ops.Held)
        store.close()


def test_a_standby_is_refused():
    with Postgres() as server:
        url = server.url("postgres")
        server.stop()
        (server.data / "standby.signal").touch()
        server.start(hot_standby="on")
        refused(PostgresStore(url), "standby.*primary", lasts=False)


def test_a_read_only_database_is_refused(postgres, database):
    name = name_of(database)
    open_store(database).apply(ops.Tally())
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    refused(PostgresStore(database), "read-only", lasts=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("test@", "stranger@"), 'role "stranger" does not exist'),
        (("?", "_gone?"), 'database "[^"]+_gone" does not exist'),
    ],
)
def test_a_url_that_names_what_is_not_there_is_no_passing_trouble(database, wrong, said):
    assert wrong[0] in database
    refused(PostgresStore(database.replace(*wrong, 1)), said)


def test_a_role_that_may_not_look_is_no_passing_trouble(postgres, database):
    open_store(database).apply(ops.Tally())
    name = name_of(database)
    postgres.execute("CREATE ROLE blind LOGIN")
    postgres.execute("REVOKE USAGE ON SCHEMA effectonce FROM PUBLIC", database=name)
    refused(PostgresStore(database.replace("test@", "blind@", 1)), "permission denied")
    postgres.execute("DROP ROLE blind")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://app@127.0.0.1:1/effects", "refused"),
        ("postgresql:///db?host=/no/folder&port=1", "No such file"),
    ],
)
def test_a_server_that_is_away_may_come_back(url, said):
    refused(PostgresStore(url), said, lasts=False)


def test_a_role_that_may_only_read_can_look(postgres, database):
    guard, pay = guarded(open_store(database), [])
    pay()
    name = name_of(database)
    postgres.execute("CREATE ROLE reader LOGIN")
    tables = "ALL TABLES IN SCHEMA effectonce"
    postgres.execute(f"REVOKE ALL ON {tables} FROM PUBLIC", database=name)
    postgres.execute("GRANT USAGE ON SCHEMA effectonce TO reader", database=name)
    postgres.execute(f"GRANT SELECT ON {tables} TO reader", database=name)
    viewer = browser(Guard(database.replace("test@", "reader@", 1)), Access("vera"))

    pages = ("/", "/effects", "/in-doubt", "/letters", "/approvals", "/allowances", "/workflows")
    assert {page: viewer.get(page).status_code for page in pages} == dict.fromkeys(pages, 200)
    postgres.execute("DROP OWNED BY reader", database=name)
    postgres.execute("DROP ROLE reader")


def test_a_database_in_another_encoding_is_refused(postgres):
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    refused(PostgresStore(postgres.url("latin")), "encoded in LATIN1")
    postgres.execute("DROP DATABASE latin")


def test_a_full_disk_sends_nothing(postgres, database, tmp_path):
    store, calls = PostgresStore(database), []
    _, pay = guarded(store, calls)
    pay()
    postgres.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
        " 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
        database,
    )
    postgres.execute(
        "CREATE TRIGGER full_disk BEFORE INSERT ON effectonce.effects FOR EACH ROW EXECUTE FUNCTION"
        " full_disk()",
        database,
    )

    with pytest.raises(StoreUnavailable, match=r"No space left on device\. Nothing was sent"):
        pay("inv_2")
    assert calls == ["inv_1"]
    store.close()


# ---------------------------------------------------------------- the schema


def version(postgres, database):
    return postgres.execute("SELECT max(version) FROM effectonce.migrations", database)[0][0]


def test_an_older_schema_is_brought_up_to_date(postgres, database, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(schema, "SCHEMA_VERSION", 1)
        PostgresStore(database).apply(claim("old"))
        assert version(postgres, database) == 1

    store = PostgresStore(database)
    assert store.apply(ops.Find("old")).state == "dispatched"
    assert version(postgres, database) == schema.SCHEMA_VERSION == 5
    store.close()


def test_many_processes_migrate_once_under_load(postgres, database, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(schema, "SCHEMA_VERSION", 1)
        running = PostgresStore(database)
        running.apply(claim("old"))
    stop, errors, written = threading.Event(), [], []

    def load():
        while not stop.is_set():
            key = f"k{len(written)}"
            try:
                running.apply(claim(key))
                running.apply(ops.Complete(key, "t", 1, b"x"))
            except StoreUnavailable as error:
                errors.append(error)
            written.append(key)

    loading = threading.Thread(target=load)
    loading.start()
    stores = [PostgresStore(database) for _ in range(8)]
    in_threads(partial(store.apply, ops.Tally()) for store in stores)
    stop.set()
    loading.join()

    assert errors == []
    assert written
    assert postgres.execute("SELECT version FROM effectonce.migrations ORDER BY 1", database) == [
        (n + 1,) for n in range(schema.SCHEMA_VERSION)
    ]
    for store in (running, *stores):
        store.close()


def test_a_migration_and_a_writer_that_has_read_do_not_lock_each_other_out(
    postgres, database, monkeypatch
):
    with monkeypatch.context() as older:
        older.setattr(schema, "SCHEMA_VERSION", 1)
        running = PostgresStore(database)
        running.apply(claim("old"))
        running.close()
    store = PostgresStore(database)
    with ThreadPoolExecutor(1) as threads, psycopg.connect(database) as writer:
        writer.execute("SELECT state FROM effectonce.effects")
        migrated = threads.submit(store.apply, ops.Tally())
        wait_for_a_lock(postgres, database)
        writer.execute("UPDATE effectonce.effects SET reason = 'seen'")
        writer.commit()
        assert migrated.result() == {"dispatched": 1}
    assert store.apply(ops.Find("old")).reason == "seen"
    store.close()


def test_whoever_waits_for_somebody_elses_migration_is_told_in_time(database):
    store = PostgresStore(database, timeout_s=0.3)
    with psycopg.connect(database) as somebody:
        somebody.execute(f"SELECT pg_advisory_xact_lock({schema.LOCK})")
        with pytest.raises(StoreUnavailable, match="in time"):
            store.apply(ops.Tally())
    store._timeout_s = 60.0
    assert store.apply(ops.Tally()) == {}
    store.close()


def test_a_newer_schema_is_refused_not_guessed(postgres, database, store):
    store.apply(ops.Tally())
    postgres.execute("INSERT INTO effectonce.migrations VALUES (99)", database)
    refused(
        PostgresStore(database),
        f"newer release .schema 99, this one knows {schema.SCHEMA_VERSION}.*Upgrade effectonce",
    )


def test_a_role_that_may_not_create_the_schema_is_told_what_to_do(postgres, database):
    postgres.execute("CREATE ROLE mouse LOGIN")
    refused(
        PostgresStore(database.replace("test@", "mouse@")),
        "permission denied.*create schema effectonce",
    )
    postgres.execute("DROP ROLE mouse")


def test_a_state_that_this_release_does_not_know_is_refused_not_guessed(postgres, database, store):
    store.apply(claim("k"))
    postgres.execute("UPDATE effectonce.effects SET state = 'paused'", database)
    with pytest.raises(StoreUnavailable, match=r"cannot read.*paused"):
        store.apply(claim("k"))
    with pytest.raises(StoreUnavailable, match=r"cannot read.*paused"):
        store.apply(ops.Tally())


def test_text_that_postgres_cannot_hold_comes_back_as_it_was(store):
    strange = "nul \0, escape \x1b, both \x1b0\0"
    assert isinstance(store.apply(claim("k", scope=strange)), ops.Held)
    store.apply(ops.Doubt("k", "t", 1, strange))
    record = store.apply(ops.Find("k"))
    assert (record.request.scope, record.reason) == (strange, strange)


# ---------------------------------------------------------------- servers that go away


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_server_that_hangs_is_told_in_time_and_used_again_when_it_is_back(
    database, proxy, colour
):
    store = PostgresStore(through(proxy, database))

    async def main():
        async def apply(op):
            return store.apply(op) if colour == "sync" else await store.aapply(op)

        await apply(claim("before"))
        proxy.stall()
        hurry(store, 0.3)
        for op in (claim("during"), ops.Complete("before", "t", 1, b"x"), ops.Tally()):
            with pytest.raises(StoreUnavailable, match="in time"):
                await apply(op)
        proxy.flow()
        store._timeout_s = 60.0
        assert isinstance(await apply(claim("after")), ops.Held)
        assert isinstance(await apply(claim("during", token="t")), ops.Held), (
            "it may have been written, and is ours"
        )

    asyncio.run(main())
    store.close()


def test_a_server_that_hangs_while_it_is_connected_to_is_told_in_time(database, proxy):
    proxy.stall()
    refused(PostgresStore(through(proxy, database), timeout_s=0.3), "in time", lasts=False)


def test_a_restarted_server_is_found_again(postgres):
    with Postgres() as server:
        store, calls = PostgresStore(server.database()), []
        _, pay = guarded(store, calls)
        _, apay = aguarded(store, calls)

        async def main():
            assert await apay("async before") == {"receipt": 1}
            assert pay() == {"receipt": 2}
            with store.transaction():
                pass
            server.stop()
            server.start()
            assert pay() == {"receipt": 2}
            assert await apay("async before") == {"receipt": 1}
            with store.transaction() as transaction:
                transaction.connection.execute("SELECT 1")

        asyncio.run(main())
        assert calls == ["async before", "inv_1"]
        store.close()


@pytest.mark.parametrize(
    ("word", "known"), [(b"dispatched", "claim"), (b"outcome of k", "complete")]
)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lost_acknowledgement_is_answered_as_if_it_had_just_been_written(
    database, proxy, word, known, colour
):
    store = PostgresStore(through(proxy, database))
    ops_in_order = {"claim": claim("k"), "complete": ops.Complete("k", "t", 1, b"outcome of k")}

    async def main():
        async def apply(op):
            return store.apply(op) if colour == "sync" else await store.aapply(op)

        await apply(ops.Tally())
        for name, op in ops_in_order.items():
            if name == known:
                proxy.lose_the_answer_to(word)
                with pytest.raises(
                    StoreUnavailable,
                    match="Nothing was sent" if name == "claim" else "is not known",
                ):
                    await apply(op)
                assert proxy.lost.is_set()
            reply = await apply(op)
            assert reply == (ops.Held(1, 1, dispatched=True) if name == "claim" else ops.Applied(1))

    asyncio.run(main())
    assert store.apply(ops.Find("k")).sends == 1
    store.close()


def test_a_lost_acknowledgement_of_a_dispatch_is_answered_as_if_it_had_just_been_written(
    database, proxy
):
    store = PostgresStore(through(proxy, database))
    store.apply(ops.Claim(request("k", on=KEYED), "t", LEASE_S, dispatch=False))
    dispatch = ops.Dispatch("k", "t", 1, 1, LEASE_S)
    store.apply(ops.Dispatch("k", "nobody", 1, 1, LEASE_S))
    proxy.lose_the_answer_to(b"dispatched")
    with pytest.raises(StoreUnavailable, match="Nothing was sent"):
        store.apply(dispatch)
    assert store.apply(dispatch) == ops.Applied(1)
    assert store.apply(ops.Find("k")).sends == 1
    store.close()
