"""Where records lie: URLs and users, buckets, clusters, slots that move and shards that are
gone.
"""

import asyncio
import hashlib
import importlib.util
import math
import shutil
import subprocess
import sys

import pytest

from effectonce import ContractViolation, StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import State
from effectonce._drivers import drive
from effectonce.stores import open_store
from effectonce.stores.redis import RedisStore, records
from effectonce.stores.redis import connection as wire
from effectonce.stores.redis.client import IndexBucket
from effectonce.stores.redis.url import parse
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance.bench import WINDOW_S, terms
from tests.servers import redis
from tests.stores.helpers import claim


@pytest.fixture(params=["server", "cluster"])
def anywhere(request):
    return redis.emptied(getattr(redis, request.param)())


def key(n):
    """A key as the engine makes them."""
    return hashlib.sha256(str(n).encode()).hexdigest()[:40]


def slot_of(key):
    return IndexBucket.of("eo", key[:2]).slot


# ---------------------------------------------------------------- URLs


def test_a_url_says_where_who_and_what():
    target, options = parse(
        "rediss://ada:p%40ss@example.org:7000/3?replicas=2&timeout_s=0.5&ssl_cert_reqs=none"
    )

    assert (target.address, target.username, target.password, target.db) == (
        ("example.org", 7000),
        "ada",
        "p@ss",
        3,
    )
    assert target.tls is not None
    assert options == {"replicas": 2, "timeout_s": 0.5}
    assert parse("valkey://")[0].address == ("localhost", 6379)
    assert parse("redis+cluster://a")[0].cluster
    assert parse("redis://a?cluster=true")[0].cluster
    assert parse("redis+unix:///run/redis.sock?db=2")[0].db == 2
    assert str(parse("redis+unix:///run/redis.sock")[0]) == "redis at /run/redis.sock"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@host/zero",
        "redis://:secret@host:port",
        "redis://:secret@host?colour=green",
        "redis://:secret@host?replicas=many",
        "redis+cluster://:secret@host/1",
        "rediss://:secret@host?ssl_ca_certs=/does/not/exist",
        "http://:secret@host",
    ],
)
def test_a_wrong_url_is_refused_without_telling_the_password(url):
    with pytest.raises(
        ContractViolation, match=r"is not the URL of a Redis or Valkey store"
    ) as caught:
        RedisStore(url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"replicas": -1}, {"timeout_s": 0}, {"connections": 0}, {"prefix": "{a}"}]
)
def test_an_impossible_option_is_refused(wrong):
    with pytest.raises(ContractViolation, match=r"must be positive"):
        RedisStore("redis://localhost", **wrong)


@pytest.mark.parametrize(
    "scheme",
    ["redis", "rediss", "valkey", "valkeys", "redis+unix", "redis+cluster", "rediss+cluster"],
)
def test_every_scheme_opens_a_redis_store(scheme):
    assert isinstance(open_store(f"{scheme}://localhost"), RedisStore)


def test_without_the_library_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['hiredis'] = None; from effectonce import Guard;"
        " Guard('redis://localhost')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'effectonce[redis]'" in done.stderr


def test_without_the_library_its_module_says_so_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "hiredis", None)
    spec = importlib.util.spec_from_file_location("a_copy", wire.__file__)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'effectonce\[redis\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_users_passwords_and_databases(tmp_path):
    server = redis.Server(tmp_path / "locked", requirepass="pw")
    locked, wrong = (
        RedisStore(f"redis+unix://{server.socket}"),
        RedisStore(f"redis+unix://:no@{server.socket}"),
    )
    ours, other = (
        RedisStore(f"redis+unix://:pw@{server.socket}"),
        RedisStore(f"redis+unix://default:pw@{server.socket}?db=1"),
    )

    for store in (locked, wrong):
        with pytest.raises(StoreUnavailable, match=r"refused us: (NOAUTH|WRONGPASS)") as caught:
            store.apply(claim())
        assert not caught.value.retriable
    assert isinstance(ours.apply(claim()), ops.Held)
    assert isinstance(other.apply(claim(token="u")), ops.Held)
    for store in (locked, wrong, ours, other):
        store.close()
    server.stop()


def test_a_user_without_rights_is_told_which_it_needs(tmp_path):
    server = redis.Server(tmp_path / "strict")
    server.ask("ACL", "SETUSER", "ada", "on", ">pw", "~other:*", "+@all")
    store = RedisStore(f"redis+unix://ada:pw@{server.socket}")

    with pytest.raises(
        StoreUnavailable, match=r"NOPERM.*Nothing was written. Its user needs"
    ) as caught:
        store.apply(claim())
    assert not caught.value.retriable

    store.close()
    server.stop()


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("tls"), redis.free_port()
    assert shutil.which("openssl"), "openssl is missing. As root: apt-get install openssl"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    subprocess.run(f"{made} {names}".split(), cwd=folder, check=True, capture_output=True)
    files = {
        "tls_cert_file": folder / "cert.pem",
        "tls_key_file": folder / "key.pem",
        "tls_ca_cert_file": folder / "cert.pem",
    }
    server = redis.Server(folder / "server", tls_port=port, tls_auth_clients="optional", **files)
    yield f"rediss://localhost:{port}?ssl_ca_certs={folder / 'cert.pem'}", folder
    server.stop()


def test_it_speaks_tls_in_both_colours(encrypted):
    url, folder = encrypted
    store = RedisStore(f"{url}&ssl_certfile={folder / 'cert.pem'}&ssl_keyfile={folder / 'key.pem'}")
    outcome = bytes(range(256)) * 4096  # more than one record of TLS

    async def main():
        assert isinstance(await store.aapply(claim("async")), ops.Held)
        await store.aapply(ops.Complete("async", "t", 1, outcome))
        return await asyncio.gather(*(store.aapply(claim("async", "other")) for _ in range(3)))

    assert isinstance(store.apply(claim()), ops.Held)
    assert store.apply(ops.Complete("k", "t", 1, outcome)) == ops.Applied(1)
    assert store.apply(claim(token="other")).outcome == outcome
    assert [reply.outcome for reply in asyncio.run(main())] == [outcome] * 3
    store.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(encrypted):
    url, _ = encrypted
    store = RedisStore(url.partition("?")[0])

    with pytest.raises(StoreUnavailable, match=r"cannot be reached.*CERTIFICATE_VERIFY_FAILED"):
        store.apply(claim())


# ---------------------------------------------------------------- records and buckets


def test_a_record_survives_the_way_there_and_back():
    from effectonce._core.record import Evidence, Record

    asked = ops.Request(
        "k",
        "f\n",
        terms(window_s=math.inf, delay_s=0.1),
        "ten\x00ant",
        "ü",
        "s",
        b"\xff\x00",
        "latch",
        "after",
    )
    rows = [Evidence(0.1 + 0.2, "note", bytes(range(256)))]
    record = Record(
        asked,
        State.IN_DOUBT,
        2**40,
        "token",
        math.nextafter(2e9, 3e9),
        1e-9,
        3,
        "dtoken",
        0.1,
        math.inf,
    )
    record = type(record)(
        *[getattr(record, f) for f in record.__struct_fields__[:10]],
        b"\x00\xff",
        0.3,
        5.5,
        "by",
        "why",
        tuple(rows),
    )

    assert records.read("k", records.write(record, 2**50 + 1)) == (record, 2**50 + 1)


def test_the_time_is_the_servers(server):
    store = RedisStore(server.url)
    before = float(server.ask("TIME")[0])

    store.apply(claim())

    after = float(server.ask("TIME")[0]) + 1
    record = store.apply(ops.Find("k"))
    assert before <= record.created_at <= after
    assert record.lease_until == record.created_at + 30.0
    store.close()


@pytest.fixture
def turned(server):
    """A store of the server whose clock is turned by hand, and the clock."""
    clock = FakeClock()
    store = RedisStore(server.url, clock=clock)
    yield store, clock
    store.close()


def test_many_buckets_are_browsed_counted_and_swept_as_one(anywhere):
    clock = FakeClock()
    store = RedisStore(anywhere.url, clock=clock)
    for n in range(30):
        store.apply(claim(key(n), tenant="even" if n % 2 == 0 else "odd"))
        clock.advance(1)
    for n in range(0, 30, 3):
        store.apply(ops.Complete(key(n), "t", 1, b"done"))

    listed = store.apply(ops.Browse(State.DISPATCHED, limit=7))
    rest = store.apply(
        ops.Browse(State.DISPATCHED, after=(listed[-1].created_at, listed[-1].request.key))
    )
    assert [r.request.key for r in (*listed, *rest)] == [key(n) for n in range(30) if n % 3]
    assert len(store.apply(ops.Browse(State.DISPATCHED, tenant="odd"))) == 10
    assert store.apply(ops.Tally()) == {State.DISPATCHED: 20, State.COMPLETED: 10}
    clock.advance(WINDOW_S)
    swept = [store.apply(ops.Sweep(8)) for _ in range(5)]
    assert [s.doubted + s.buried for s in swept] == [8, 8, 8, 6, 0]
    assert store.apply(ops.Tally()) == {State.IN_DOUBT: 20, State.TOMBSTONE: 10}
    store.close()


def test_a_sweep_asks_no_more_buckets_than_it_needs(server, turned):
    store, clock = turned
    for n in range(20):
        store.apply(claim(f"77{n:038}"))
    clock.advance(WINDOW_S)
    store.apply(ops.Sweep(1))  # has to look for it
    server.ask("CONFIG", "RESETSTAT")

    assert store.apply(ops.Sweep(5)).total == 5
    assert server.info()["cmdstat_evalsha"].startswith("calls=6,")  # one to look, five to change
    assert store.apply(ops.Sweep(100)).total == 14


def test_a_page_of_other_tenants_is_read_past(turned):
    store, _ = turned
    for n in range(120):
        store.apply(claim(f"k{n:03}", tenant="other"))
    store.apply(claim("zzz", tenant="mine"))

    assert [
        r.request.key for r in store.apply(ops.Browse(State.DISPATCHED, tenant="mine", limit=5))
    ] == ["zzz"]


def test_newer_records_that_do_not_fit_are_read_past(turned):
    store, clock = turned
    store.apply(claim("mine", scope="chat-1"))
    clock.advance(1)
    for n in range(120):
        store.apply(claim(f"k{n:03}", scope="chat-2"))

    assert [r.request.key for r in store.apply(ops.Search(scope="chat-1", limit=1))] == ["mine"]


def test_a_record_that_was_deleted_by_hand_is_not_listed_and_not_swept(server, turned):
    store, clock = turned
    store.apply(claim())
    server.ask("DEL", "eo:{other}:r:k")
    clock.advance(1e6)

    assert store.apply(ops.Browse(State.DISPATCHED)) == ()
    assert store.apply(ops.Sweep()) == ops.Swept(0, 0, 0)


def test_members_whose_records_were_deleted_by_hand_do_not_hold_up_the_sweep(server, turned):
    store, clock = turned
    for n in range(3):
        store.apply(claim(f"00{n:038}"))
        server.ask("DEL", f"eo:{{00}}:r:00{n:038}")
    store.apply(claim(f"01{0:038}"))
    clock.advance(1e6)

    assert sum(store.apply(ops.Sweep(2)).total for _ in range(3)) == 1


def test_a_latch_whose_holder_was_deleted_by_hand_is_free(server):
    store = RedisStore(server.url)
    store.apply(claim("one", latch="step"))
    server.ask("DEL", "eo:{other}:r:one")

    assert isinstance(store.apply(claim("two", latch="step")), ops.Held)
    store.close()


def test_what_must_lie_together_but_does_not_is_refused(server):
    store = RedisStore(server.url)

    with pytest.raises(ContractViolation, match=r"must lie together"):
        store.apply(claim(key(1), latch=key(2)))
    store.close()


def test_a_forgotten_key_that_is_used_again_is_not_taken_for_what_somebody_saw_before(server):
    """A sweeper that was stopped between seeing and forgetting must not forget the next use of
    the key.
    """
    from effectonce.stores._roundtrip import CompareAndSwap, Read

    store = RedisStore(server.url)
    perform = lambda exchange: drive(store._talk.converse(exchange), store._send)
    store.apply(claim())
    seen = perform(Read("k"))
    assert perform(CompareAndSwap("k", seen.revision, None))
    store.apply(claim(token="next"))

    assert not perform(CompareAndSwap("k", seen.revision, None))
    assert store.apply(ops.Find("k")).token == "next"
    store.close()


def test_prefixes_keep_stores_apart(server):
    one, two = RedisStore(server.url, prefix="one"), RedisStore(server.url, prefix="two")

    assert one.apply(claim()) == two.apply(claim()) == ops.Held(1, 1, dispatched=True)
    assert one.apply(ops.Tally()) == {State.DISPATCHED: 1}
    one.close()
    two.close()


# ---------------------------------------------------------------- clusters


@pytest.fixture
def cluster(tmp_path):
    """A cluster that a test may spoil."""
    three = redis.Cluster(tmp_path)
    yield three
    three.stop()


def keys_by_node(cluster):
    found = {}
    for n in range(60):
        found.setdefault(cluster.owner(slot_of(key(n))), []).append(key(n))
    assert len(found) == 3
    return found


def test_a_killed_shard_takes_only_its_own_keys_with_it(cluster):
    keys = keys_by_node(cluster)
    store = RedisStore(cluster.url)
    assert not store.capabilities.durable
    lost, *kept = cluster.nodes[::-1]
    asyncio.run(store.aapply(claim(keys[kept[0]][0])))
    lost.stop()

    async def in_a_loop():
        for node in kept:
            assert isinstance(await store.aapply(claim(keys[node][1])), ops.Held)
        with pytest.raises(
            StoreUnavailable, match=r"cannot be reached|CLUSTERDOWN|no node of the cluster"
        ):
            await store.aapply(claim(keys[lost][1]))

    for node in kept:
        assert isinstance(store.apply(claim(keys[node][2])), ops.Held)
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=r"cannot be reached|CLUSTERDOWN|no node of the cluster"
        ):
            store.apply(claim(keys[lost][2]))
    asyncio.run(in_a_loop())
    cluster.nodes[0].stop()
    assert isinstance(store.apply(claim(keys[cluster.nodes[1]][3])), ops.Held), (
        "its seed is not the only one it knows"
    )
    store.close()


def test_while_a_slot_moves_nothing_is_decided_and_when_it_has_moved_it_is_followed(cluster):
    keys = keys_by_node(cluster)
    source, target = cluster.nodes[0], cluster.nodes[1]
    first, second = keys[source][0], keys[source][0][:2] + "f" * 38
    slot = slot_of(first)
    ids = {node: node.ask("CLUSTER", "MYID") for node in (source, target)}
    store = RedisStore(cluster.url)
    assert isinstance(store.apply(claim(first)), ops.Held)

    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    names = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
    for moved in range(len(names) + 1):
        for op in (claim(first), claim(second), ops.Complete(first, "t", 1, b"done")):
            with pytest.raises(
                StoreUnavailable,
                match=r"(ASK|TRYAGAIN).*Nothing was written. The slot is on its way",
            ):
                store.apply(op)
        for name in names[moved : moved + 1]:
            source.ask("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    assert store.apply(ops.Complete(first, "t", 1, b"done")) == ops.Applied(1)
    assert asyncio.run(store.aapply(claim(first, "other"))).outcome == b"done"
    assert store.apply(ops.Tally()) == {State.COMPLETED: 1}
    store.close()


def test_nodes_that_send_us_in_circles_are_given_up(cluster):
    source, target = cluster.nodes[0], cluster.nodes[1]
    slot = slot_of(keys_by_node(cluster)[source][0])
    store = RedisStore(cluster.url)
    store.apply(ops.Tally())
    ids = {node: node.ask("CLUSTER", "MYID") for node in (source, target)}
    source.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])  # the other one does not know yet

    with pytest.raises(
        StoreUnavailable, match=r"sent us from node to node 5 times. Nothing was written"
    ):
        store.apply(claim(keys_by_node(cluster)[source][0]))
    store.close()


def test_a_single_server_is_no_cluster(server, tmp_path):
    one = redis.Server(tmp_path / "one", port=redis.free_port())
    store = RedisStore(f"redis+cluster://127.0.0.1:{one.port}")

    with pytest.raises(StoreUnavailable, match=r"is no cluster.*Use redis:// for it"):
        store.apply(claim())

    store.close()
    one.stop()


def test_a_slot_that_no_node_has_is_unavailable(tmp_path):
    one = redis.Server(
        tmp_path / "part",
        port=redis.free_port(),
        cluster_enabled="yes",
        cluster_port=redis.free_port(),
    )
    one.ask("CLUSTER", "ADDSLOTSRANGE", 0, 100)
    store = RedisStore(f"redis+cluster://127.0.0.1:{one.port}")

    with pytest.raises(StoreUnavailable, match=r"no node of the cluster has slot \d+"):
        store.apply(claim(next(key(n) for n in range(1000) if slot_of(key(n)) > 100)))

    store.close()
    one.stop()


def test_a_cluster_whose_seed_is_gone_is_unavailable():
    store = RedisStore(f"redis+cluster://127.0.0.1:{redis.free_port()}")

    with pytest.raises(StoreUnavailable, match=r"cannot be reached"):
        store.apply(claim())
