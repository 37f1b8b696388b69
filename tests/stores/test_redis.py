"""What only a server behind a wire can do: lose replies, hang, be full, forget its scripts, be
somebody else's replica.
"""

import asyncio
import os
import signal
import socket
import struct
import threading
from contextlib import suppress
from functools import partial

import msgspec
import pytest

from effectonce import ContractViolation, Guard, Retry, StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import State
from effectonce.stores import open_store
from effectonce.stores.redis import RedisStore
from effectonce.stores.redis import store as redis_module
from effectonce.stores.redis.scripts import BEAR, FINISH, SWAP
from effectonce.testing.conformance.bench import KEYED
from tests.servers import redis
from tests.servers.listener import Listener
from tests.servers.proxy import Proxy
from tests.stores.helpers import claim, in_threads

COLOURS = ["sync", "async"]


@pytest.fixture
def opened():
    """Opens stores and closes them again."""
    stores = []

    def open_(url, **options):
        stores.append(RedisStore(url, **options))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture(params=COLOURS)
def caller(request):
    """Calls one effect through a guard, in one colour."""
    loop = asyncio.new_event_loop()
    yield lambda store, **options: Caller(store, request.param, loop, **options)
    loop.close()


class Caller:
    def __init__(self, store, colour, loop, **options):
        self.calls, self.colour, self.loop, self.store = [], colour, loop, store
        self.guard = Guard(store, cache=0)
        decorate = self.guard.tool(kind="write", downstream="key", wait_s=0, name="pay", **options)

        def pay(invoice: str):
            self.calls.append(invoice)
            return {"receipt": len(self.calls)}

        async def apay(invoice: str):
            return pay(invoice)

        self.tool = decorate(pay if colour == "sync" else apay)

    def __call__(self, invoice="inv_1"):
        with self.guard.step("chat", f"pay {invoice}"):
            return (
                self.tool(invoice)
                if self.colour == "sync"
                else self.loop.run_until_complete(self._await(invoice))
            )

    async def _await(self, invoice):
        return await self.tool(invoice)

    def apply(self, op):
        if self.colour == "sync":
            return self.store.apply(op)
        return self.loop.run_until_complete(self.store.aapply(op))


def hurry(store, timeout_s):
    """From now on whatever is asked has so much time, also on the connections that are open."""
    store._timeout_s = timeout_s
    for connection in [one for pool in store._pools.values() for one in pool._idle]:
        connection.timeout_s = timeout_s
        limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    for lane in store._lanes.values():
        lane.connection.timeout_s = timeout_s
        if lane._timer is not None:
            lane._timer.cancel()
            lane._timer = None


# ---------------------------------------------------------------- round trips and lost replies


def test_a_first_call_is_two_round_trips_and_a_replay_is_one(server, opened, caller):
    with Proxy(server.socket) as proxy:
        pay = caller(opened(f"redis://127.0.0.1:{proxy.port}"))
        pay("warm up")
        counted = []

        for _ in range(2):
            before = proxy.round_trips
            pay()
            counted.append(proxy.round_trips - before)

        assert counted == [2, 1]
        pay.store.close()


@pytest.mark.parametrize("written", [BEAR, SWAP, FINISH], ids=["claim", "dispatch", "complete"])
@pytest.mark.parametrize("what", ["lose_the_answer_to", "lose_the_request_with"])
def test_a_lost_reply_or_request_is_repeated_and_the_effect_lands_once(
    server, opened, caller, written, what
):
    with Proxy(server.socket) as proxy:
        pay = caller(opened(f"redis://127.0.0.1:{proxy.port}"), separate_dispatch=written is SWAP)
        pay("warm up")
        getattr(proxy, what)(written.sha)

        assert pay() == {"receipt": 2}

        assert proxy.lost.is_set()
        assert pay() == {"receipt": 2}
        assert pay.calls == ["warm up", "inv_1"]
        pay.store.close()


def test_a_lost_reply_says_what_is_not_known(server, opened, caller):
    with Proxy(server.socket) as proxy:
        pay = caller(opened(f"redis://127.0.0.1:{proxy.port}"))
        pay.apply(ops.Tally())
        proxy.lose_the_answer_to(BEAR.sha)

        with pytest.raises(StoreUnavailable, match=r"Whether the write was applied is not known"):
            pay.apply(claim())

        assert pay.apply(claim()) == ops.Held(1, 1, dispatched=True)
        pay.store.close()


def test_a_server_that_forgot_its_scripts_is_told_them_again(server, opened, caller):
    pay = caller(opened(server.url))
    pay("inv_1")
    server.ask("SCRIPT", "FLUSH")

    assert pay("inv_2") == {"receipt": 2}
    assert pay.calls == ["inv_1", "inv_2"]


def test_tasks_of_one_loop_share_one_connection_and_one_write(server, opened):
    store = opened(server.url)

    async def crowd():
        await store.aapply(ops.Tally())
        before = int(server.info()["total_connections_received"])
        replies = await asyncio.gather(*(store.aapply(claim(f"k{n}")) for n in range(50)))
        return replies, int(server.info()["total_connections_received"]) - before

    replies, connections = asyncio.run(crowd())

    assert all(isinstance(reply, ops.Held) for reply in replies)
    assert connections == 1, "the one that asked"


# ---------------------------------------------------------------- servers that fail


def test_a_hung_server_is_unavailable_after_the_deadline(private, opened, caller):
    pay = caller(opened(private.url), retry=Retry(attempts=3, deadline_s=0.1))
    pay("warm up")
    private.send(signal.SIGSTOP)
    hurry(pay.store, 0.2)

    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.2 s"):
        pay()

    private.send(signal.SIGCONT)
    hurry(pay.store, 60.0)
    assert pay.calls == ["warm up"]
    assert pay("inv_2") == {"receipt": 2}


def test_a_server_that_answers_a_byte_at_a_time_is_unavailable_after_the_deadline(opened):
    def drip(line):
        line.recv(1 << 16)
        for byte in b"$100\r\n" + b"x" * 50:
            line.sendall(bytes([byte]))
            threading.Event().wait(0.02)

    with Listener(drip) as listener:
        store = opened(f"redis://127.0.0.1:{listener.port}", timeout_s=0.1)
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.1 s"):
            store.apply(claim())


def test_a_full_server_sends_nothing_but_still_completes_what_was_sent(private, opened, caller):
    pay = caller(opened(private.url), retry=Retry(attempts=3, deadline_s=0.1))
    assert isinstance(pay.apply(claim("sent")), ops.Held)
    private.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(StoreUnavailable, match=r"Nothing was written. Its memory is full"):
        pay()

    assert pay.calls == []
    assert pay.apply(ops.Complete("sent", "t", 1, b"done")) == ops.Applied(1)
    private.ask("CONFIG", "SET", "maxmemory", "0")
    assert pay() == {"receipt": 1}


def test_a_killed_server_is_found_again_when_it_is_back(tmp_path, opened, caller):
    server = redis.Server(tmp_path / "killed", fsync="always")
    pay = caller(opened(server.url), retry=Retry(attempts=3, deadline_s=0.1))
    pay("inv_1")
    server.stop()

    with pytest.raises(StoreUnavailable, match=r"redis at .*(gone|cannot be reached)"):
        pay("inv_2")

    server.start()
    assert pay("inv_1") == {"receipt": 1}
    assert pay("inv_2") == {"receipt": 2}
    server.stop()


def test_a_connection_that_the_server_hung_up_on_is_not_used(server, opened, monkeypatch):
    monkeypatch.setattr("effectonce.stores.redis.connection.IDLE_S", -1.0)
    store = opened(server.url)
    store.apply(claim())
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert store.apply(claim()) == ops.Held(1, 1, dispatched=True)


def test_an_event_loop_notices_that_the_server_hung_up(server, opened):
    store = opened(server.url)

    async def hang_up():
        await store.aapply(claim())
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        # there is nobody who would tell
        while not next(iter(store._lanes.values())).closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return await store.aapply(claim())

    assert asyncio.run(hang_up()) == ops.Held(1, 1, dispatched=True)


def test_a_primary_that_became_a_replica_is_left(private, opened, caller):
    pay = caller(opened(private.url), retry=Retry(attempts=3, deadline_s=0.1))
    pay("warm up")
    private.ask("REPLICAOF", "127.0.0.1", redis.free_port())

    with pytest.raises(StoreUnavailable, match=r"is a slave, which takes no writes|READONLY"):
        pay()

    assert pay.calls == ["warm up"]
    private.ask("REPLICAOF", "NO", "ONE")
    assert pay() == {"receipt": 2}


def test_an_error_that_nobody_expects_says_that_nothing_is_known(server, opened, caller):
    pay = caller(opened(server.url))
    server.ask("RPUSH", "eo:{other}:s", "not an index")

    with pytest.raises(
        StoreUnavailable, match=r"WRONGTYPE.*Whether anything was written is not known"
    ):
        pay.apply(claim())


# ---------------------------------------------------------------- what is asked of a server


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused(private, opened, caller, policy):
    private.ask("CONFIG", "SET", "maxmemory-policy", policy)
    pay = caller(opened(private.url), retry=Retry(attempts=3, deadline_s=0.1))

    with pytest.raises(
        StoreUnavailable, match=f"maxmemory-policy {policy}.*CONFIG SET maxmemory-policy noeviction"
    ):
        pay()

    assert pay.calls == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Redis"),
        (b"$19\r\nredis_version:7.2.0\r\n*0\r\n*0\r\n", "does not say what its 'role' is"),
    ],
)
def test_something_that_is_not_redis_is_an_unavailable_store(opened, said, told):
    def answer(line):
        line.recv(1024)
        line.sendall(said)

    with Listener(answer) as listener:
        store = opened(f"redis://127.0.0.1:{listener.port}/0")
        health = Guard(store).health()
    assert not health.ok
    assert told in health.error


def test_an_old_server_is_refused():
    from effectonce.stores.redis.connection import ServerFacts

    assert "6.2 is the oldest" in ServerFacts("6.0.16", "master", "noeviction", True, 0).complaint()
    assert ServerFacts("6.2.0", "master", "noeviction", True, 0).complaint() == ""


@pytest.mark.parametrize(
    ("fsync", "durable"),
    [(None, False), ("no", False), ("everysec", False), ("always", True)],
    ids=str,
)
def test_only_a_server_that_syncs_every_write_is_durable(tmp_path, opened, fsync, durable):
    server = redis.Server(tmp_path / "server", fsync=fsync)

    capabilities = opened(server.url).capabilities

    server.stop()
    assert (capabilities.durable, capabilities.transactions) == (durable, False)


def test_what_a_server_does_not_tell_is_not_promised(tmp_path, opened):
    server = redis.Server(tmp_path / "server", fsync="always")
    server.ask("ACL", "SETUSER", "ada", "on", ">pw", "~*", "+@all", "-config")

    capabilities = opened(f"redis+unix://ada:pw@{server.socket}").capabilities

    server.stop()
    assert not capabilities.durable


def test_an_irreversible_effect_is_refused_on_a_server_that_can_forget(server, opened):
    guard = Guard(opened(server.url))

    for downstream in ("key", "probe", "none"):
        with pytest.raises(ContractViolation, match=r"can forget"):
            guard.tool(kind="irreversible", downstream=downstream)(lambda: 1)
    guard.tool(kind="irreversible", name="accepted", accept_store_loss=True)(lambda: 1)
    with pytest.raises(ContractViolation, match=r"no transactions"):
        guard.tool(kind="write", downstream="transaction")(lambda: 1)


def test_a_tool_can_be_registered_while_the_server_is_away(opened):
    guard = Guard(opened(f"redis://127.0.0.1:{redis.free_port()}"), cache=0)
    calls = []

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=3, deadline_s=0.1))
    def pay():
        calls.append(1)

    with (
        pytest.raises(StoreUnavailable, match=r"cannot be reached.*Nothing was written"),
        guard.step("chat", "pay"),
    ):
        pay()
    assert calls == []


# ---------------------------------------------------------------- replicas


@pytest.fixture
def pair(tmp_path):
    primary = redis.Server(
        tmp_path / "primary", port=redis.free_port(), fsync="always", repl_diskless_sync_delay=0
    )
    replica = redis.Server(
        tmp_path / "replica", fsync="always", replicaof=f"127.0.0.1 {primary.port}"
    )
    redis.until(lambda: replica.info()["master_link_status"] == "up", "a replica in step")
    redis.until(
        lambda: "state=online" in primary.info().get("slave0", ""), "a replica that is online"
    )
    yield primary, replica
    replica.stop()
    primary.stop()


def test_a_primary_with_replicas_is_durable_only_if_writes_wait_for_them(pair, opened):
    primary, replica = pair

    assert not opened(primary.url).capabilities.durable
    assert opened(primary.url, replicas=1).capabilities.durable
    with pytest.raises(StoreUnavailable, match=r"is a slave, which takes no writes"):
        opened(replica.url).apply(claim())


def test_a_write_that_no_replica_confirmed_is_unavailable_until_one_has_it(pair, opened, caller):
    primary, replica = pair
    pay = caller(opened(primary.url, replicas=1))
    assert pay("warm up") == {"receipt": 1}
    replica.send(signal.SIGSTOP)
    enough_ms, pay.store._talk._wait_ms = pay.store._talk._wait_ms, "100"

    for _ in range(2):  # the repeat finds its own claim, and still may not go on
        with pytest.raises(StoreUnavailable, match=r"only 0 of 1 replicas confirmed"):
            pay.apply(claim())

    replica.send(signal.SIGCONT)
    pay.store._talk._wait_ms = enough_ms
    redis.until(lambda: replica.info()["master_link_status"] == "up", "a replica in step")
    assert pay.apply(claim()) == ops.Held(1, 1, dispatched=True)
    assert replica.ask("EXISTS", "eo:{other}:r:k") == 1


def test_a_write_that_cannot_be_marked_is_unavailable(pair, opened):
    primary, _ = pair
    store = opened(primary.url, replicas=1)
    store.apply(claim())
    primary.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(StoreUnavailable, match=r"Its memory is full"):
        store.apply(ops.Find("k"))


# ---------------------------------------------------------------- processes, threads and loops


def test_a_forked_child_has_connections_of_its_own(server, opened):
    store = opened(server.url)

    async def claim_and_fork():
        await store.aapply(claim("first"))
        pid = os.fork()
        if pid == 0:
            try:
                ok = store.apply(claim("child")) == ops.Held(1, 1, dispatched=True)
                os._exit(0 if ok and not store._lanes else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(pid, 0)  # noqa: ASYNC222  # nothing else is to happen meanwhile
        return os.waitstatus_to_exitcode(status), await store.aapply(claim("parent"))

    store.apply(claim("zeroth"))
    exit_code, reply = asyncio.run(claim_and_fork())

    assert exit_code == 0
    assert isinstance(reply, ops.Held)
    assert store.apply(ops.Tally()) == {State.DISPATCHED: 4}


def test_what_a_child_inherits_is_put_aside_and_not_closed(server, opened):
    store = opened(server.url)
    store.apply(claim())
    inherited = store._pools

    redis_module._after_fork()

    assert store._pools == store._lanes == {}
    (pool,) = inherited.values()
    assert pool._idle[0].exchange(b"*1\r\n$4\r\nPING\r\n", 1) == [b"PONG"], (
        "its parent's connection still works"
    )
    assert isinstance(store.apply(claim("other")), ops.Held)


def test_one_store_serves_loops_one_after_the_other_and_side_by_side(server, opened):
    store, replies = opened(server.url), []

    def in_a_loop(n):
        replies.append(asyncio.run(store.aapply(claim(f"k{n}"))))

    for n in range(3):
        in_a_loop(n)
    in_threads(partial(in_a_loop, n) for n in range(3, 6))

    assert len(replies) == 6
    assert all(isinstance(reply, ops.Held) for reply in replies)
    asyncio.run(store.aapply(ops.Tally()))
    assert len(store._lanes) == 1, "loops that are gone leave nothing behind"


def test_a_store_that_is_closed_under_its_callers_tells_them(private, opened):
    store = opened(private.url)

    async def close():
        await store.aapply(claim())
        private.send(signal.SIGSTOP)
        waiting = asyncio.ensure_future(store.aapply(claim("other")))
        await asyncio.sleep(0)
        store.close()
        with pytest.raises(StoreUnavailable, match=r"the store was closed"):
            await waiting
        private.send(signal.SIGCONT)
        return await store.aapply(claim("other", "t2"))

    assert isinstance(asyncio.run(close()), ops.Held | ops.Busy)


def test_a_store_that_is_closed_while_it_connects_connects_all_the_same(server, opened):
    store = opened(server.url)

    async def close():
        waiting = asyncio.ensure_future(store.aapply(claim()))
        await asyncio.sleep(0)
        store.close()
        return await waiting

    assert isinstance(asyncio.run(close()), ops.Held)


def test_a_cancelled_caller_does_not_get_anybody_elses_reply(server, opened):
    store = opened(server.url)

    async def cancel():
        await store.aapply(ops.Tally())
        first = asyncio.ensure_future(store.aapply(claim("first", on=KEYED)))
        second = asyncio.ensure_future(store.aapply(ops.Find("nobody")))
        await asyncio.sleep(0)
        first.cancel()
        return await second, await store.aapply(claim("first", on=KEYED))

    assert asyncio.run(cancel()) == (None, ops.Held(1, 1, dispatched=True))


def test_a_caller_that_gives_up_connecting_does_not_spoil_it_for_others(server, opened):
    store = opened(server.url)

    async def cancel():
        first, second = (asyncio.ensure_future(store.aapply(ops.Find("k"))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(cancel()) is None


def test_more_threads_than_connections_wait_for_each_other(server, opened):
    store, replies = opened(server.url, connections=2), []

    def caller(n):
        replies.extend(store.apply(claim(f"{n}-{m}")) for m in range(20))

    in_threads(partial(caller, n) for n in range(16))

    assert len(replies) == 320
    assert all(isinstance(reply, ops.Held) for reply in replies)


def test_a_thread_that_gets_no_connection_in_time_is_told(server, opened):
    store = opened(server.url, connections=1)
    pool = store._pool(store._target.address)
    taken, pool._timeout_s = pool.take(), 0.05

    with pytest.raises(
        StoreUnavailable, match=r"all connections were in use for 0\.05 s\. Nothing was written"
    ):
        store.apply(claim())

    pool.give(taken)
    assert isinstance(store.apply(claim()), ops.Held)


def test_an_interrupted_caller_leaves_no_reply_for_the_next(server, opened):
    store = opened(server.url)
    store.apply(claim())
    connection = store._look(store._target.address)
    connection.reader = Interrupting(connection.reader)

    with pytest.raises(KeyboardInterrupt):
        store.apply(ops.Find("k"))

    assert store.apply(ops.Find("nobody")) is None


class Interrupting:
    def __init__(self, reader):
        self.gets = reader.gets

    def feed(self, data):
        raise KeyboardInterrupt


def test_open_store_opens_it(server):
    store = open_store(
        f"redis+unix://{server.socket}?prefix=mine&timeout_s=60&replicas=0&connections=3"
    )
    store.apply(claim())

    assert server.ask("EXISTS", "mine:{other}:r:k") == 1
    store.close()


def key_of_the_record(server):
    (key,) = [key for key in server.ask("KEYS", "*") if b":r:" in key]
    return key


@pytest.mark.parametrize(("byte", "value"), [(0, 2), (1, 9)], ids=["version", "state"])
def test_a_record_of_a_newer_release_is_refused_not_guessed(server, opened, caller, byte, value):
    pay = caller(opened(server.url))
    pay.apply(claim())
    key = key_of_the_record(server)
    written = bytearray(server.ask("GET", key))
    written[byte] = value
    server.ask("SET", key, bytes(written))

    for op in (claim(), ops.Complete("k", "t", 1, b"done"), ops.Find("k")):
        with pytest.raises(StoreUnavailable, match="written by a newer release"):
            pay.apply(op)
    assert server.ask("GET", key) == bytes(written)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda written: written.replace(b"write", b"wrote"),
        lambda written: written[:20],
        lambda _: b"",
    ],
    ids=["an unknown kind", "cut off", "empty"],
)
def test_a_record_that_cannot_be_read_is_refused_with_the_reason(server, opened, caller, spoil):
    pay = caller(opened(server.url))
    pay.apply(claim())
    key = key_of_the_record(server)
    spoilt = spoil(server.ask("GET", key))
    server.ask("SET", key, spoilt)

    for again in (False, True):
        with pytest.raises(StoreUnavailable, match="cannot be read by this release"):
            pay.apply(msgspec.structs.replace(claim(), again=again))
    assert server.ask("GET", key) == spoilt


class LoopOfAnotherThread:
    """Its thread tidies up, and another loop begins to use the store, while somebody looks
    whether it is closed.
    """

    def __init__(self, store):
        self.store = store

    def is_closed(self):
        self.store._lanes.clear()
        self.store._lanes.update({(object(), n): None for n in range(9)})
        return True


def test_loops_that_come_and_go_in_other_threads_disturb_nobody(server, opened):
    store = opened(server.url)
    store._lanes[LoopOfAnotherThread(store), "address"] = None

    assert asyncio.run(store.aapply(ops.Find("k"))) is None
    store._lanes.clear()


def test_a_server_that_is_still_reading_its_data_is_not_taken_for_one_that_can_forget(
    tmp_path, opened
):
    server = redis.Server(tmp_path / "loading", fsync="always")
    server.ask("EVAL", "for n = 1, 5000 do redis.call('SET', 'k' .. n, n) end", "0")
    assert opened(server.url).capabilities.durable
    server.stop()
    server.command += ["--key-load-delay", "2000"]  # microseconds for each key
    server.launch()
    redis.until(lambda: is_loading(server), "a server that reads its data")

    with pytest.raises(StoreUnavailable, match="is reading its data"):
        _ = opened(server.url).capabilities
    server.stop()


def is_loading(server):
    with suppress(OSError):
        return b"loading:1" in server.ask("INFO", "persistence")
    return False
