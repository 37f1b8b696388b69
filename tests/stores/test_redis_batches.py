"""Callers that wait share one write to the socket; nothing else of one is any business of
another.
"""

import asyncio

import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import State
from effectonce.stores._births import Births
from effectonce.stores.redis import RedisStore, records, scripts
from effectonce.stores.redis import connection as wire
from tests.conformance.sabotage import sabotage_redis
from tests.conformance.test_wire_mutants import REDIS
from tests.servers.proxy import Proxy
from tests.stores import crowds
from tests.stores.crowds import CALLERS, HELD, at_once, claims, complete, completions


@pytest.fixture
def store(server):
    store = RedisStore(server.url)
    yield store
    store.close()


@pytest.fixture
def proxy(server):
    with Proxy(server.socket) as proxy:
        yield proxy


@pytest.fixture
def through_proxy(proxy):
    store = RedisStore(f"redis://127.0.0.1:{proxy.port}")
    yield store
    store.close()


def test_the_string_of_a_first_claim_is_that_of_its_record():
    """Two ways to write the same: one by way of a record, and one from what all calls of a tool
    have in common.
    """
    births, op = Births(records.pack_birth), claims(1)[0]
    born = crowds.born(op)

    by_record = records.born(born, records.due_at(born))
    at_once = records.born_of(op, births.of(op).packed)

    assert [part[10:] if n == 0 else part for n, part in enumerate(at_once)] == [
        part[10:] if n == 0 else part for n, part in enumerate(by_record)
    ]  # but for the revision, which is drawn
    assert at_once[0][:2] == by_record[0][:2]


SABOTAGE = {
    fault: REDIS[fault]
    for fault in (
        "a birth writes over what is there",
        "a birth does not look for its step",
        "a completion is not fenced by its token",
        "a completion is not fenced by its epoch",
        "a completion takes any state",
    )
} | {
    "a birth has no time": (
        "BEAR",
        "created_at, due = created_at + now, due + now",
        "due = due + now",
    ),
    "a completion forgets its window": ("FINISH", "now + window_s", "now"),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", SABOTAGE)
def test_an_answer_that_is_not_its_callers_own_is_noticed(store, fault, monkeypatch):
    sabotage_redis(monkeypatch, *SABOTAGE[fault])

    with pytest.raises(AssertionError):
        asyncio.run(crowds.everybody_gets_an_answer_of_its_own(store))


LOSSES = {
    "before it was asked": Proxy.lose_the_request_with,
    "in the middle": Proxy.break_off_the_request_with,
    "after it was written": Proxy.lose_the_answer_to,
}


@pytest.mark.parametrize("when", LOSSES)
def test_an_answer_that_is_lost_is_asked_for_again_by_each(through_proxy, proxy, when):
    words = iter((b"step 40", b"$3\r\nt40\r\n"))

    asyncio.run(
        crowds.a_lost_answer_is_asked_for_again(
            through_proxy, lambda: LOSSES[when](proxy, next(words))
        )
    )

    assert proxy.lost.is_set()


def test_one_bad_key_fails_its_own_caller_only(store, server):
    server.ask("LPUSH", "eo:{other}:r:bad", "no record")

    async def main():
        replies = await at_once(store, [*claims(40), complete("bad"), *claims(23, begin=40)])
        assert replies[:40] + replies[41:] == [HELD] * 63
        assert isinstance(replies[40], StoreUnavailable)
        assert "WRONGTYPE" in str(replies[40])

        replies = await at_once(store, [*completions(20), complete("bad"), *completions(63)[20:]])
        assert replies[:20] + replies[21:] == [ops.Applied(1)] * 63
        assert isinstance(replies[20], StoreUnavailable)
        return await store.aapply(ops.Tally())

    assert asyncio.run(main()) == {State.COMPLETED: 63}


def test_a_server_that_forgot_its_scripts_answers_everybody(store, server):
    async def main():
        await at_once(store, claims(2))
        server.ask("SCRIPT", "FLUSH")
        assert await at_once(store, claims(CALLERS, begin=2)) == [HELD] * CALLERS
        server.ask("SCRIPT", "FLUSH")
        return await at_once(store, completions())

    assert asyncio.run(main()) == [ops.Applied(1)] * CALLERS


@pytest.mark.parametrize("size_b", [0, 9, 10, 2047, 2048, 100_000])
def test_a_script_is_packed_as_any_command_is(size_b):
    words = (b"", b"key", b"x" * size_b, b"1", b"outcome\r\n", b"$3\r\n")

    packed = wire.pack_script(scripts.FINISH.sha, b"eo:{3f}:", words)

    assert packed == wire.pack(
        (b"EVALSHA", scripts.FINISH.sha, b"2", b"eo:{3f}:", b"eo:{3f}:?", *words)
    )
