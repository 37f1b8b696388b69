"""One request and its app, below the middleware."""

import asyncio

import pytest

from effectonce.http.server.profiles import IETF
from effectonce.http.server.recorder import Keeping, ResponseRecorder
from effectonce.http.server.spooled_body import Spooled


def test_an_app_that_is_cancelled_before_it_begins_holds_nobody_up():
    async def app(scope, receive, send):
        pytest.fail("it began")

    async def send(message):
        pytest.fail("it answered")

    async def main():
        exchange = ResponseRecorder(
            app, {}, Spooled(100), send, IETF, Keeping(frozenset(), 100, 100), in_transaction=False
        )
        running = asyncio.create_task(exchange.run())
        await asyncio.sleep(0)  # it has made the app's task, which has not had its turn
        exchange._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(60):
                await running
        await exchange.close()

    asyncio.run(main())
