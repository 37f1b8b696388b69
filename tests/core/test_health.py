"""What a guard says about its store."""

import logging
from math import inf

import pytest

from effectonce import Capability, Contract, Downstream, Finding, Guard, Kind, State
from effectonce._text import span
from effectonce.stores import base
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis.connection import ServerFacts
from effectonce.stores.sqlite import SqliteStore, connection
from tests.servers import redis
from tests.servers.postgres import Postgres


@pytest.fixture
def path(tmp_path):
    return tmp_path / "effects.db"


def found(health, subject):
    return next(finding for finding in health.findings if finding.subject == subject)


def guard_on(path):
    guard = Guard(f"sqlite:///{path}")

    @guard.tool(kind="write", downstream="key")
    def pay(n: int):
        return n

    with guard.step("chat", "pay"):
        pay(1)
    return guard


def test_a_healthy_store_says_what_it_can_and_what_is_in_it(path):
    health = guard_on(path).health()

    assert (health.ok, health.reachable, health.counts) == (True, True, {State.COMPLETED: 1})
    assert found(health, "durability").found == "journal wal, synchronous FULL"
    assert found(health, "schema").found == "version 5"
    assert health.latency_s > 0
    assert health.unfit_for(Kind.IRREVERSIBLE, Capability.NONE) == ""


def test_a_store_in_memory_says_what_it_may_not_hold():
    health = Guard("memory://").health()

    assert health.ok
    assert "can forget" in health.unfit_for(Kind.IRREVERSIBLE, Capability.KEY)
    assert "no transactions" in health.unfit_for(Kind.WRITE, Capability.TRANSACTION)
    assert health.unfit_for(Kind.WRITE, Capability.KEY) == ""


def test_a_store_that_cannot_be_reached_is_told_and_not_raised(path):
    guard = guard_on(path)
    path.unlink()
    health = guard.health()

    assert (health.ok, health.reachable, health.latency_s) == (False, False, None)
    assert "there is no file" in health.findings[0].found
    assert "there is no file" in health.unfit_for(Kind.WRITE, Capability.KEY)


def test_a_file_that_may_not_be_looked_at_is_told_and_not_raised(path):
    # what a closed folder is to all but root
    health = Guard(f"sqlite:///{path.with_name('x' * 300)}").health()

    assert not health.reachable
    assert "File name too long" in health.findings[0].found


def test_looking_at_a_store_does_not_make_it(path):
    assert not Guard(f"sqlite:///{path}").health().ok
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_not_healthy(path):
    guard = guard_on(path)
    guard.store._main.db.execute("PRAGMA query_only = ON")

    assert "readonly" in guard.health().findings[0].found


@pytest.mark.parametrize(
    ("kind", "said", "bad"),
    [
        ("nfs4", "does not work over a network", True),
        ("tmpfs", "a reboot forgets it", False),
        ("ext4", "ext4", False),
    ],
)
def test_the_disk_matters(path, monkeypatch, kind, said, bad):
    guard = guard_on(path)
    monkeypatch.setattr(connection, "_filesystem", lambda _: kind)
    disk = found(guard.health(), "disk")

    assert said in disk.found
    assert disk.bad is bad
    assert bool(disk.advice) is (kind != "ext4")


def test_a_disk_that_is_nearly_full_is_bad(path, monkeypatch):
    guard = guard_on(path)
    monkeypatch.setattr(connection, "LOW_B", inf)

    assert found(guard.health(), "space").bad
    assert not guard.health().ok


def test_what_waits_to_be_swept_is_counted(path, clock, monkeypatch):
    guard = Guard(SqliteStore(path, clock=clock), cache=0)

    @guard.tool(kind="write", window=1)
    def pay(n: int):
        return n

    for n in range(3):
        with guard.step("chat", n):
            pay(n)
    clock.advance(2)
    assert found(guard.health(), "due").found == "3 records"
    monkeypatch.setattr(base, "DUE_SHOWN", 3)
    assert "Sweep" in found(guard.health(), "due").advice


def test_a_system_without_mount_points_has_an_unknown_filesystem(path, monkeypatch):
    monkeypatch.setattr(connection, "MOUNTS", path / "nowhere")

    assert connection._filesystem(path) == "unknown filesystem"


def test_a_downstream_that_forgets_keys_before_we_do_is_reported(caplog):
    caplog.set_level(logging.INFO, "effectonce")
    guard = Guard("memory://")

    @guard.tool(kind="write", downstream=Downstream.key(window=3600))
    def pay(n: int):
        return n

    told = "pay: the downstream honours a key for 1 h, we for 7 days."
    assert told in caplog.text
    assert told in found(guard.health(), "contract").found


@pytest.mark.parametrize(
    "downstream", [Downstream.key(window=inf), Downstream.none(), Downstream.transaction()]
)
def test_nothing_is_reported_where_nothing_is_shorter(downstream):
    assert Contract(name="pay", kind=Kind.WRITE, downstream=downstream, window_s=3600).notes == ()


@pytest.mark.parametrize(
    ("value_s", "said"),
    [
        (inf, "ever"),
        (604800, "7 days"),
        (86400, "24 h"),
        (3600, "1 h"),
        (5400, "90 min"),
        (60, "1 min"),
        (90, "90 s"),
        (0.5, "0.5 s"),
    ],
)
def test_spans_are_said_as_people_say_them(value_s, said):
    assert span(value_s) == said


# ---------------------------------------------------------------- Redis


def test_a_redis_that_can_forget_says_so_and_what_to_change():
    health = Guard(redis.emptied(redis.server()).url).health()

    assert health.ok
    assert found(health, "durability").found == "the last writes can be lost"
    assert "appendfsync always" in found(health, "durability").advice
    assert found(health, "clock").advice == ""
    assert "can forget" in health.unfit_for(Kind.IRREVERSIBLE, Capability.KEY)


def test_a_redis_that_syncs_may_hold_everything_but_transactions():
    health = Guard(redis.emptied(redis.durable_server()).url).health()

    assert found(health, "durability").advice == ""
    assert health.unfit_for(Kind.IRREVERSIBLE, Capability.NONE) == ""
    assert "no transactions" in health.unfit_for(Kind.WRITE, Capability.TRANSACTION)


def test_every_node_of_a_cluster_is_looked_at():
    health = Guard(redis.emptied(redis.cluster()).url).health()

    assert len([finding for finding in health.findings if finding.subject == "server"]) == 3


def test_a_redis_that_would_drop_records_is_not_healthy(tmp_path):
    server = redis.Server(tmp_path / "evicting", maxmemory_policy="allkeys-lru")
    health = Guard(server.url).health()
    server.stop()

    assert (health.ok, health.reachable) == (False, False)
    assert "CONFIG SET maxmemory-policy noeviction" in health.findings[0].found


def test_replicas_that_nobody_waits_for_are_told():
    facts = ServerFacts("7.0", "master", "noeviction", synced=True, replicas=2)

    assert "replicas=2" in facts.findings("redis://db", 0)[2].advice
    assert facts.findings("redis://db", 2)[2].advice == ""


def test_a_clock_that_is_far_off_is_told():
    assert "follow the store's clock" in base.clock_finding(-86_400).advice
    assert base.clock_finding(0.2) == Finding("clock", "+0.2 s from this machine's")


# ---------------------------------------------------------------- PostgreSQL


def test_a_postgres_says_what_it_promises(database):
    health = Guard(database).health()

    assert health.ok
    assert (
        found(health, "durability").found
        == "fsync on, full_page_writes on; our commits wait for the disk"
    )
    assert found(health, "standbys").found == "0 connected"
    assert found(health, "clock").advice == ""
    assert health.unfit_for(Kind.IRREVERSIBLE, Capability.TRANSACTION) == ""


def test_a_postgres_that_does_not_sync_is_not_healthy_and_says_what_to_change():
    with Postgres(fsync="off") as server:
        health = Guard(server.database()).health()
        accepted = Guard(PostgresStore(server.database(), accept_fsync_off=True)).health()

    assert (health.ok, health.reachable) == (False, False)
    assert "Set fsync = on" in health.findings[0].found
    assert "irreversible tools are refused" in found(accepted, "durability").advice


def test_a_postgres_that_is_not_there_is_told_and_not_raised(tmp_path):
    health = Guard(f"postgresql:///effects?host={tmp_path}").health()

    assert (health.ok, health.reachable) == (False, False)
