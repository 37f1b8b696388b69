"""Inside the handler: one key for everything it calls, steps that are not done twice, and writes
that commit with the record.
"""

import asyncio
import contextlib
import json
import sqlite3
import threading

import httpx
import pytest

from effectonce import Certainty, Guard, StoreUnavailable, classify, current_effect
from effectonce.http.server import Route
from effectonce.stores.base import RolledBack
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore, transaction
from effectonce.testing.clock import FakeClock
from tests.http.helpers import Shop, answer, ask, guarded, run

# ---------------------------------------------------------------- recovery points


def test_guarded_tools_in_a_handler_are_steps_of_the_request():
    """The first attempt fails after its first step; the second one replays that step and goes
    on.
    """
    guard, done = Guard(MemoryStore(), cache=0), []

    @guard.tool(kind="write", downstream="none")
    async def charge(amount: int) -> str:
        done.append(("charge", current_effect().downstream_key))
        return f"charge {len(done)}"

    @guard.tool(kind="write", downstream="none")
    async def ship(receipt: str) -> str:
        done.append(("ship", receipt))
        return "shipped"

    async def fails_between(_scope, _receive, send):
        await charge(1)
        await answer(send, 500, b"crashed between the steps")

    async def whole(_scope, _receive, send):
        receipt = await charge(1)
        await ship(receipt)
        await answer(send, 201, receipt.encode())

    async def main():
        app = guarded(Shop(fails_between, whole, whole), guard, profile="stripe_v2")
        return [await ask(app) for _ in range(3)], await ask(
            app, key="5c0f3a52-54b2-4d6e-9a0f-6f3b7b0f2e11"
        )

    seen, other = run(main)

    assert [(s.status, s.body) for s in seen[1:]] == [(201, b"charge 1")] * 2
    assert other.body == b"charge 3"
    assert [step for step, _ in done] == ["charge", "ship", "charge", "ship"]
    assert done[0][1] != done[2][1]


def test_a_step_in_doubt_keeps_the_request_from_doing_something_else():
    guard, done = Guard(MemoryStore(), cache=0), []

    @guard.tool(kind="write", downstream="none")
    async def charge(amount: int) -> str:
        done.append("charge")
        raise TimeoutError

    @guard.tool(kind="write", downstream="none")
    async def charge_elsewhere(amount: int) -> str:
        done.append("elsewhere")
        return "charged"

    async def first(_scope, _receive, _send):
        await charge(1)

    async def second(_scope, _receive, send):
        await answer(send, 201, (await charge_elsewhere(1)).encode())

    async def main():
        app = guarded(Shop(first, second), guard, profile="stripe_v2")
        return [await ask(app) for _ in range(2)]

    seen = run(main)

    assert done == ["charge"]
    assert [type(s.raised).__name__ for s in seen] == ["InDoubt", "InDoubt"]


# ---------------------------------------------------------------- transactions

TRANSACTION = [Route("/pay", downstream="transaction")]


async def book():
    """Book in the transaction of the request."""
    done = current_effect().connection.execute("INSERT INTO bookings VALUES (1)")
    if asyncio.iscoroutine(done):
        await done


def with_bookings(path):
    """A new SQLite database with a table of bookings."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE bookings (amount INTEGER)")
    return path


def booking(*, then):
    """Books in the transaction of the request, then answers or raises *then*."""

    async def handler(_scope, _receive, send):
        await book()
        if isinstance(then, BaseException):
            raise then
        await answer(send, then, b"booked")

    return handler


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request, tmp_path):
    """A store, and how many bookings its database holds."""
    if request.param == "sqlite":
        path = with_bookings(tmp_path / "shop.db")

        def count():
            with contextlib.closing(sqlite3.connect(path)) as reader:
                return reader.execute("SELECT count(*) FROM bookings").fetchone()[0]

        store = SqliteStore(path)
    else:
        server = request.getfixturevalue("postgres")
        url = server.database()
        server.execute("CREATE TABLE bookings (amount INTEGER)", url)

        def count():
            return server.execute("SELECT count(*) FROM bookings", url)[0][0]

        store = PostgresStore(url)
    yield store, count
    store.close()


def booked(store, *script, times=2, **settings):
    async def main():
        app = guarded(Shop(*script), Guard(store, cache=0), **({"routes": TRANSACTION} | settings))
        return [await ask(app) for _ in range(times)]

    return run(main)


def test_the_handlers_writes_commit_with_the_record(ledger):
    store, count = ledger

    first, again = booked(store, booking(then=201))

    assert (first.status, again.status, again.body, again.replayed) == (201, 201, b"booked", True)
    assert count() == 1


@pytest.mark.cover(1)
@pytest.mark.parametrize("then", [500, 422, 404, RuntimeError("a bug after the insert")], ids=repr)
@pytest.mark.parametrize("profile", ["ietf", "stripe_v1"])
def test_what_fails_is_rolled_back_and_runs_again(ledger, then, profile):
    store, count = ledger

    first, second, again = booked(
        store, booking(then=then), booking(then=201), times=3, profile=profile
    )

    assert first.raised is then if isinstance(then, Exception) else first.status == then
    assert [(s.status, s.replayed) for s in (second, again)] == [(201, False), (201, True)]
    assert count() == 1


def test_nothing_leaves_before_the_commit(ledger):
    store, count = ledger

    async def streaming(_scope, _receive, send):
        await book()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    async def main():
        told = []

        async def look(_message):
            told.append(count())

        app = guarded(Shop(streaming), Guard(store, cache=0), routes=TRANSACTION, memory_max=1000)
        return told, await ask(app, on_send=look)

    told, seen = run(main)

    assert set(told) == {1}
    assert len(seen.body) == 300_003
    assert seen.complete


def test_a_commit_that_fails_is_told_as_nothing_done_and_the_app_does_not_go_on(
    tmp_path, monkeypatch
):
    store = SqliteStore(with_bookings(tmp_path / "shop.db"))
    commits, background = [], []

    async def handler(scope, receive, send):
        await booking(then=201)(scope, receive, send)
        background.append("mail")

    owner = transaction.AsyncLent
    original = owner.commit

    async def failing(self):
        commits.append(1)
        if len(commits) == 1:
            raise RolledBack("the disk is full")
        await original(self)

    monkeypatch.setattr(owner, "commit", failing)

    first, second = booked(store, handler, handler)
    store.close()

    assert (first.status, first.json["code"], first.raised) == (503, StoreUnavailable.code, None)
    assert (second.status, background) == (201, ["mail"])


def test_a_cancelled_request_ends_its_handler_before_its_transaction(ledger):
    store, count = ledger

    async def main():
        ended = []

        async def slow(_scope, _receive, _send):
            try:
                await asyncio.Event().wait()
            finally:
                await book()
                ended.append(True)

        shop = Shop(slow)
        task = asyncio.create_task(ask(guarded(shop, Guard(store, cache=0), routes=TRANSACTION)))
        await shop.started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return len(ended)

    assert run(main) == 1
    assert count() == 0


def test_a_commit_that_nobody_can_confirm_is_not_told_as_done(tmp_path, monkeypatch):
    class Leaving(SqliteStore):
        away = False

        async def aapply(self, op):
            if self.away:
                raise StoreUnavailable("away")
            return await super().aapply(op)

    store, told = Leaving(tmp_path / "shop.db"), []

    async def lost(self):
        store.away = True
        raise StoreUnavailable("the answer to COMMIT was lost")

    async def handler(_scope, _receive, send):
        await answer(send, 201, b"booked")
        told.append("gone on")

    monkeypatch.setattr(transaction.AsyncLent, "commit", lost)

    (seen,) = booked(store, handler, times=1)
    store.close()

    assert (seen.status, seen.json["code"], seen.raised, told) == (
        503,
        "STORE_UNAVAILABLE",
        None,
        [],
    )
    assert b"booked" not in seen.body
    assert "retry-after" not in seen.headers, "with it, a 503 says that nothing was done"
    assert (
        classify(httpx.Response(seen.status, headers=seen.headers)).certainty is Certainty.AMBIGUOUS
    )


def test_what_the_app_does_after_its_response_is_outside_of_the_transaction(ledger):
    store, count = ledger
    guard, after = Guard(store, cache=0), []

    @guard.tool(kind="write", downstream="none")
    async def mail(order: int) -> str:
        after.append("mailed")
        return "mailed"

    async def handler(scope, receive, send):
        await booking(then=201)(scope, receive, send)
        after.append(current_effect().connection)
        await mail(1)

    async def main():
        app = guarded(Shop(handler), guard, routes=TRANSACTION)
        return [await ask(app) for _ in range(2)]

    first, again = run(main)

    assert (first.status, first.raised, again.replayed, after) == (
        201,
        None,
        True,
        [None, "mailed"],
    )
    assert count() == 1


def test_however_often_a_request_is_cancelled_its_handler_ends_before_its_transaction(ledger):
    """A cancel scope of anyio cancels again and again. A `def` handler goes on in its thread
    until it is done.
    """
    store, count = ledger

    async def main():
        go, order = threading.Event(), []

        async def slow(_scope, _receive, _send):
            work = asyncio.ensure_future(asyncio.to_thread(go.wait))
            while not work.done():
                try:
                    await asyncio.shield(work)
                except asyncio.CancelledError:
                    order.append("cancelled")
            await book()
            order.append("written")

        shop = Shop(slow)
        task = asyncio.create_task(ask(guarded(shop, Guard(store, cache=0), routes=TRANSACTION)))
        await shop.started.wait()
        for _ in range(5):
            task.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
        ended_early = task.done()
        go.set()
        await asyncio.gather(task, return_exceptions=True)
        return ended_early, order[-1]

    assert run(main) == (False, "written")
    assert count() == 0


def test_a_request_whose_lease_was_lost_is_undone_and_may_be_asked_for_again(postgres):
    """Its transaction is rolled back, and it has had its one run. The same request again runs
    from the start.
    """
    url = postgres.database()
    postgres.execute("CREATE TABLE bookings (amount INTEGER)", url)
    clock, heard = FakeClock(), []
    store = PostgresStore(url, clock=clock)

    async def book_and_answer(send, status, text):
        await current_effect().connection.execute("INSERT INTO bookings VALUES (1)")
        try:
            await answer(send, status, text)
        except Exception as error:
            heard.append((text, type(error).__name__))
            raise

    async def main():
        taken_over = asyncio.Event()

        async def too_slow(_scope, _receive, send):
            await taken_over.wait()
            await book_and_answer(send, 201, b"too slow")

        async def refuses(_scope, _receive, send):
            await book_and_answer(send, 422, b"no")

        async def well(_scope, _receive, send):
            await book_and_answer(send, 201, b"well")

        shop = Shop(too_slow, refuses, well)
        app = guarded(shop, Guard(store, cache=0), routes=TRANSACTION)
        first = asyncio.create_task(ask(app))
        await shop.started.wait()
        clock.advance(1000)
        other = await ask(app)
        taken_over.set()
        return other, await first, await ask(app), shop.bodies

    other, first, again, bodies = run(main)
    store.close()

    assert (other.status, first.status, json.loads(first.body)["code"]) == (
        422,
        409,
        "RETRY_IN_FLIGHT",
    )
    assert (b"too slow", "Undone") in heard
    assert (again.status, again.body, again.replayed, bodies) == (
        201,
        b"well",
        False,
        [b'{"amount":1}'] * 3,
    )
    assert postgres.execute("SELECT count(*) FROM bookings", url)[0][0] == 1
