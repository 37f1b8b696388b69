"""Callers that wait share one statement; nothing else of one is any business of another."""

import asyncio
import os
import threading
import time

import psycopg
import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import State
from effectonce.stores._roundtrip import Counted, Finish, Read
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.postgres import shared_statements as batches
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres.batch import PendingQuery
from effectonce.testing.conformance.bench import request
from tests.conformance.sabotage import sabotage_postgres
from tests.servers.postgres import through
from tests.servers.proxy import Proxy
from tests.stores import crowds
from tests.stores.crowds import CALLERS, HELD, at_once, claim, claims, complete, completions


@pytest.fixture
def store(database):
    store = PostgresStore(database, connections=1)
    yield store
    store.close()


@pytest.fixture
def through_proxy(database, proxy):
    store = PostgresStore(through(proxy, database), connections=1)
    yield store
    store.close()


def test_callers_that_wait_share_one_statement(through_proxy, proxy):
    shared = (batches.BEAR_MANY, batches.FINISH_MANY, batches.LOOK_MANY)
    single = (sql.BEAR, sql.FINISH, sql.LOOK)

    def asked():
        return [proxy.sent[0].count(statement.name) for statement in (*shared, *single)]

    async def main():
        # from now on the statements are known to the server
        await at_once(through_proxy, claims(2))
        await at_once(through_proxy, completions(2))
        await at_once(through_proxy, claims(2, again=True))
        counts = asked()
        assert await at_once(through_proxy, claims(CALLERS, begin=2)) == [HELD] * CALLERS
        assert await at_once(through_proxy, completions()[2:]) == [ops.Applied(1)] * (CALLERS - 2)
        replays = await at_once(through_proxy, claims(again=True))
        assert [type(reply) for reply in replays] == [ops.Recorded] * CALLERS
        return [after - before for before, after in zip(counts, asked(), strict=True)]

    assert asyncio.run(main()) == [1, 1, 1, 0, 0, 0]


def test_threads_that_wait_share_one_statement(through_proxy, proxy):
    through_proxy.apply(claim("warm up"))
    proxy.stall()
    replies = []
    asked = [claim("alone"), *claims(8)]
    threads = [
        threading.Thread(target=lambda op=op: replies.append(through_proxy.apply(op)))
        for op in asked
    ]
    for thread in threads:
        thread.start()
    while len(through_proxy._crew._waiting) < 8:
        os.sched_yield()
    proxy.flow()
    for thread in threads:
        thread.join()

    assert replies == [HELD] * 9
    assert proxy.sent[0].count(batches.BEAR_MANY.name) == 2, "once to prepare it, once to ask"


SABOTAGE = {  # statement, what is taken out of it, what stands there instead
    "a birth has no time": (
        "BEAR_MANY",
        "{now} + $13[6 * (place - 1) + 1]",
        "$13[6 * (place - 1) + 1]",
    ),
    "the times of a birth are another row's": (
        "BEAR_MANY",
        "$13[6 * (place - 1) + 6]",
        "$13[6 * (place - 1) + 5]",
    ),
    "a birth that lost is taken for one": (
        "BEAR_MANY",
        "WHERE key NOT IN (SELECT key FROM born)",
        "WHERE seen_state IS NOT NULL",
    ),
    "a birth takes another's place in the answer": (
        "BEAR_MANY",
        "SELECT place, {now}",
        "SELECT place % 4 + 1, {now}",
    ),
    "a replay comes from any request": ("BEAR_MANY", "seen.fingerprint AS", "given.fingerprint AS"),
    "scope and step are mixed up": (
        "BEAR_MANY",
        "given (key, fingerprint, terms, tenant, scope, step",
        "given (key, fingerprint, terms, tenant, step, scope",
    ),
    "a completion is not fenced by its token": ("FINISH_MANY", "e.token = asked.token AND ", ""),
    "a completion is not fenced by its epoch": ("FINISH_MANY", "e.epoch = asked.epoch AND ", ""),
    "a completion takes any state": ("FINISH_MANY", " AND e.state = asked.state", ""),
    "a completion forgets its window": (
        "FINISH_MANY",
        "dedup_until = {now} + window_s",
        "dedup_until = {now}",
    ),
    "a completion that was refused is taken for one": (
        "FINISH_MANY",
        "WHERE key NOT IN",
        "WHERE false AND key NOT IN",
    ),
    "outcomes are mixed up": (
        "FINISH_MANY",
        "outcome = asked.outcome",
        "outcome = (SELECT outcome FROM asked LIMIT 1)",
    ),
    "a look sees another's record": ("LOOK_MANY", "place::int", "(place % 4 + 1)::int"),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", SABOTAGE)
def test_an_answer_that_is_not_its_callers_own_is_noticed(store, fault, monkeypatch):
    sabotage_postgres(monkeypatch, batches, *SABOTAGE[fault])

    with pytest.raises(AssertionError):
        asyncio.run(crowds.everybody_gets_an_answer_of_its_own(store))


@pytest.mark.parametrize(
    "statement",
    [batches.BEAR_MANY, batches.FINISH_MANY, batches.LOOK_MANY],
    ids=["bear", "finish", "look"],
)
def test_each_row_is_looked_up_by_its_key_however_small_the_table_is(
    store, postgres, database, statement
):
    """The plan for an empty table is kept while it grows."""
    store.apply(ops.Tally())
    postgres.execute("VACUUM ANALYZE effectonce.effects", database)
    values = ", ".join(["NULL"] * len(statement.types))
    with psycopg.connect(database) as connection:
        connection.execute(sql.TOGETHER.sql)
        connection.execute(
            b"PREPARE many ("
            + b", ".join(TYPES[kind] for kind in statement.types)
            + b") AS "
            + statement.sql
        )
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN EXECUTE many ({values})"))

    assert "Seq Scan on effects" not in plan, plan
    assert plan.count("effects_pkey") == 1, plan
    assert "Index Cond: (key = " in plan, plan


TYPES = {25: b"text", 701: b"float8", 1022: b"float8[]", 1016: b"int8[]", 1001: b"bytea[]"}

# ---------------------------------------------------------------- connections that die


LOSSES = {
    "before it was asked": Proxy.lose_the_request_with,
    "in the middle": Proxy.break_off_the_request_with,
    "after COMMIT": Proxy.lose_the_answer_to,
}


@pytest.mark.parametrize("when", LOSSES)
def test_an_answer_that_is_lost_is_asked_for_again_by_each(through_proxy, proxy, when):
    words = iter((batches.BEAR_MANY.name, batches.FINISH_MANY.name))

    asyncio.run(
        crowds.a_lost_answer_is_asked_for_again(
            through_proxy, lambda: LOSSES[when](proxy, next(words))
        )
    )

    assert proxy.lost.is_set()


DIES = """
CREATE FUNCTION dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
CREATE TRIGGER dies BEFORE INSERT OR UPDATE ON effectonce.effects FOR EACH ROW WHEN (NEW.key = 'k17') EXECUTE FUNCTION dies()
"""


def test_a_connection_that_dies_in_the_middle_of_a_batch_has_written_nothing_of_it(
    store, postgres, database
):
    """The 18th of 64 rows ends the server's process: 17 were written by then, and are rolled
    back.
    """

    async def main():
        await store.aapply(ops.Tally())
        for asked, expected in ((claims(), HELD), (completions(), ops.Applied(1))):
            before = await store.aapply(ops.Tally())
            await asyncio.to_thread(postgres.execute, DIES, database)
            replies = await at_once(store, asked)
            assert [type(reply) for reply in replies] == [StoreUnavailable] * CALLERS
            assert await store.aapply(ops.Tally()) == before
            await asyncio.to_thread(postgres.execute, "DROP FUNCTION dies CASCADE", database)
            assert await at_once(store, asked) == [expected] * CALLERS

    asyncio.run(main())


# ---------------------------------------------------------------- fates


def test_one_bad_row_fails_its_own_caller_only(store, postgres, database):
    async def main():
        await store.aapply(ops.Tally())
        await asyncio.to_thread(
            postgres.execute,
            "ALTER TABLE effectonce.effects ADD CHECK (outcome <> 'bad' AND key <> 'bad')",
            database,
        )
        replies = await at_once(store, [*claims(40), claim("bad"), *claims(23, begin=40)])
        assert replies[:40] + replies[41:] == [HELD] * 63
        assert "violates check constraint" in str(replies[40])
        assert isinstance(replies[40], StoreUnavailable)

        replies = await at_once(
            store, [*completions(20), complete("k20", "t20", outcome=b"bad"), *completions(63)[21:]]
        )
        assert replies[:20] + replies[21:] == [ops.Applied(1)] * 62
        assert isinstance(replies[20], StoreUnavailable)
        return await store.aapply(ops.Find("k20"))

    assert asyncio.run(main()).state is State.DISPATCHED


def test_one_row_that_is_locked_holds_up_its_own_caller_only(store, database):
    async def main():
        assert await at_once(store, claims()) == [HELD] * CALLERS
        other = await psycopg.AsyncConnection.connect(database)
        await other.execute("SELECT FROM effectonce.effects WHERE key = 'k7' FOR UPDATE")
        busy = asyncio.create_task(store.aapply(ops.Tally()))
        callers = [asyncio.create_task(store.aapply(op)) for op in completions()]
        locked = callers.pop(7)

        assert await asyncio.gather(*callers) == [ops.Applied(1)] * (CALLERS - 1)
        assert not locked.done()
        await other.close()
        assert await locked == ops.Applied(1)
        await busy

    asyncio.run(main())


async def stalled(store, proxy, exchanges, short):
    """Send these together, and hold the answers back. One has a short time. The jobs, and
    something to await for each of them.
    """
    await store.aapply(ops.Tally())  # to connect may take longer than that
    loop = asyncio.get_running_loop()
    lanes = store._lanes[loop]
    lanes._lanes[0]._watch.cancel()  # it waits for deadlines of before
    lanes._lanes[0]._watch = None
    proxy.stall()
    now = time.monotonic()
    jobs = [
        PendingQuery(exchange, None, now + (1.0 if n == short else 60.0))
        for n, exchange in enumerate(exchanges)
    ]
    told = [loop.create_future() for _ in jobs]
    for job, future in zip(jobs, told, strict=True):
        job.notify = future.set_result
    lanes.waiting.extend(jobs)
    lanes._begin()
    return jobs, told


def test_a_caller_whose_time_is_over_takes_nobody_with_it(through_proxy, proxy):
    async def main():
        jobs, told = await stalled(
            through_proxy, proxy, [Finish(op) for op in completions()], short=7
        )

        await told[7]
        assert "no answer in time" in str(jobs[7].error)
        assert [n for n, future in enumerate(told) if future.done()] == [7]
        proxy.flow()
        await asyncio.gather(*told)
        return [job.error for n, job in enumerate(jobs) if n != 7]

    assert asyncio.run(main()) == [None] * (CALLERS - 1)


def test_what_is_too_late_before_it_was_asked_is_not_asked(through_proxy, proxy):
    async def main():
        _, told = await stalled(through_proxy, proxy, [Read("k"), Counted()], short=1)
        before = proxy.sent[0].count(sql.COUNTED.name)

        await told[1]
        proxy.flow()
        await told[0]
        await through_proxy.aapply(ops.Find("k"))  # whatever was to be sent has been sent by now
        return proxy.sent[0].count(sql.COUNTED.name) - before

    assert asyncio.run(main()) == 0


# ---------------------------------------------------------------- values

STRANGE = (
    "",
    "\0",
    "\x1b",
    "\x1b,",
    "\x1b1",
    "\x1b0,",
    ",",
    "{}",
    '"',
    "\\",
    "NULL",
    "ä",
    "\U0001f4b6",
    "a\nb",
)


def test_texts_that_are_hard_to_write_come_back_as_they_were(store):
    asked = [
        ops.Claim(
            request(f"k{n}{text}", scope=text, step=text, arguments=text.encode()),
            f"t{text}",
            30.0,
            dispatch=True,
        )
        for n, text in enumerate(STRANGE)
    ]

    async def main():
        assert await at_once(store, asked) == [HELD] * len(STRANGE)
        for op in asked:
            assert (await store.aapply(ops.Find(op.key))).request == op.request
        ends = [
            ops.Complete(op.key, op.token, 1, text.encode(), text)
            for op, text in zip(asked, STRANGE, strict=True)
        ]
        assert await at_once(store, ends) == [ops.Applied(1)] * len(STRANGE)
        return [await store.aapply(ops.Find(op.key)) for op in asked]

    found = asyncio.run(main())
    assert [(record.outcome.decode(), record.settled_by) for record in found] == [
        (text, text) for text in STRANGE
    ]


def test_a_text_that_cannot_be_written_fails_its_own_caller_only(store):
    async def main():
        replies = await at_once(
            store, [*claims(3), claim("half", step="\ud800"), *claims(3, begin=3)]
        )
        assert replies[:3] + replies[4:] == [HELD] * 6
        assert isinstance(replies[3], UnicodeEncodeError)

    asyncio.run(main())


def test_a_large_value_is_written_beside_the_batch(through_proxy, proxy):
    large = b"x" * (batches.ROW_MAX_B + 1)

    async def main():
        first = claim("large", arguments=large)
        assert await at_once(through_proxy, [*claims(2), first]) == [HELD] * 3
        assert (
            await at_once(through_proxy, [*completions(2), complete("large", outcome=large)])
            == [ops.Applied(1)] * 3
        )
        return await through_proxy.aapply(ops.Find("large"))

    record = asyncio.run(main())
    assert (record.request.arguments, record.outcome) == (large, large)
    assert proxy.sent[0].count(sql.FINISH.name) == 2, "its statement, and its values"


def test_an_async_caller_whose_key_is_no_text_is_refused_and_the_next_is_served(store):
    async def main():
        with pytest.raises(Exception, match="surrogates not allowed"):
            await store.aapply(ops.Find("\ud800"))
        return await store.aapply(ops.Find("k"))

    assert asyncio.run(main()) is None
