"""What is sent, and done, where nobody expects it: by clients, by servers, and by whoever cancels."""

import asyncio
import threading

import pytest

from effectonce import Guard, current_effect
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from tests.http.helpers import Shop, answer, ask, guarded, run
from tests.http.test_inside import TRANSACTION, ledger  # noqa: F401  # a fixture


def test_a_method_in_small_letters_is_the_same_method():
    """`fetch(url, {method: "patch"})` sends it like that, and Django does not tell them apart."""

    async def main():
        shop = Shop()
        app = guarded(shop)
        seen = [await ask(app, method=method) for method in ("patch", "PATCH", "Patch")]
        return shop.effects, seen, await ask(app, method="patch", key=None)

    effects, seen, without = run(main)

    assert (effects, [s.status for s in seen], [s.replayed for s in seen]) == (1, [201] * 3, [False, True, True])
    assert without.json["code"] == "KEY_MISSING"


def test_a_stream_to_a_client_that_cannot_tell_its_end_leaves_when_it_is_recorded():
    """HTTP/1.0 has no chunks: a stream that was cut off looks like one that ended. Some proxies speak it by default."""
    store, recorded = MemoryStore(), []

    async def streaming(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async def main():
        guard = Guard(store, cache=0)

        async def look(_message):
            recorded.append({state.value for state, count in guard.counts().items() if count})

        app = guarded(Shop(streaming), guard)
        return await ask(app, on_send=look, version="1.0")

    seen = run(main)

    assert (seen.body, seen.complete) == (b"one two", True)
    assert recorded == [{"completed"}] * len(recorded)


def test_what_may_have_no_end_is_not_waited_for_there():
    """It would fill the disk. It is more than is kept, so nobody gets it again anyway."""
    left = []

    async def streaming(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5):
            await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
            left.append(len(seen))
        await send({"type": "http.response.body", "body": b""})

    seen = []

    async def main():
        async def look(message):
            seen.append(message)

        return await ask(guarded(Shop(streaming), response_max=250), on_send=look, version="1.0")

    whole = run(main)

    assert (left[:2], left[2] > 0, len(whole.body), whole.complete) == ([0, 0], True, 500, True)


def test_however_often_a_request_is_cancelled_its_handler_ends_before_its_transaction(ledger):  # noqa: F811
    """A cancel scope of anyio cancels again and again. A `def` handler goes on in its thread until it is done."""
    store, count = ledger

    async def main():
        go, order = threading.Event(), []

        async def slow(_scope, _receive, _send):
            connection = current_effect().connection
            work = asyncio.ensure_future(asyncio.to_thread(go.wait))
            while not work.done():
                try:
                    await asyncio.shield(work)
                except asyncio.CancelledError:
                    order.append("cancelled")
            done = connection.execute("INSERT INTO bookings VALUES (1)")
            if asyncio.iscoroutine(done):
                await done
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


def test_a_request_whose_lease_was_lost_runs_again_from_the_start(postgres):
    """Its transaction is rolled back, and if whoever took it over has let it go, it is ours again: with its whole body."""
    url = postgres.database()
    postgres.execute("CREATE TABLE bookings (amount INTEGER)", url)
    store = PostgresStore(url)
    told = []

    async def book(send, status, text):
        await current_effect().connection.execute("INSERT INTO bookings VALUES (1)")
        try:
            await answer(send, status, text)
        except Exception as error:
            told.append((text, type(error).__name__))
            raise

    async def main():
        taken_over = asyncio.Event()

        async def too_slow(_scope, _receive, send):
            await taken_over.wait()
            await book(send, 201, b"too slow")

        async def refuses(_scope, _receive, send):
            await book(send, 422, b"no")

        async def well(_scope, _receive, send):
            await book(send, 201, b"well")

        shop = Shop(too_slow, refuses, well)
        app = guarded(shop, Guard(store, cache=0), routes=TRANSACTION, lease_s=0.05)
        first = asyncio.create_task(ask(app))
        await shop.started.wait()
        async with asyncio.timeout(60):
            while (other := await ask(app)).status == 409:
                pass
            taken_over.set()
            return other, await first, await ask(app), shop.bodies

    other, first, again, bodies = run(main)
    store.close()

    assert (other.status, first.status, first.body) == (422, 201, b"well")
    assert (again.body, again.replayed, bodies) == (b"well", True, [b'{"amount":1}'] * 3)
    assert (b"too slow", "Undone") in told
    assert postgres.execute("SELECT count(*) FROM bookings", url)[0][0] == 1


@pytest.mark.parametrize("kind", ["content-type", "content-encoding"])
def test_a_header_that_comes_twice_counts_with_both_its_lines(kind):
    async def main():
        shop = Shop()
        app = guarded(shop)

        def lines(first):
            async def both(scope, receive, send):
                scope["headers"] = [(kind.encode(), first), *scope["headers"], (kind.encode(), b"application/json")]
                await app(scope, receive, send)

            return both

        return [await ask(lines(first)) for first in (b"text/a", b"text/a", b"text/b")]

    seen = run(main)

    assert [s.status for s in seen] == [201, 201, 422]
