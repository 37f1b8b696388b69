"""A body on its way in: what it waits for, and what it hears of."""

import asyncio

import pytest

from effectonce.http.server.problems import TooSlow
from effectonce.http.server.spooled_body import BodyLimits, Spooled, read_body
from tests.http.helpers import Shop, ask, guarded, run

WHOLE = {"type": "http.request", "body": b"all of it", "more_body": False}


def waiting(heard, begun=None):
    """A `receive` that waits without end, and says that it was cancelled."""

    async def receive():
        if begun is not None:
            begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    return receive


async def read(receive, *, piece_s=60.0):
    body = Spooled(1000)
    await read_body(receive, body, BodyLimits(1000, piece_s, 60.0))
    return (await body.piece(0))[0]


def test_a_request_that_is_there_sets_no_timer_and_one_that_is_not_sets_one():
    async def main():
        loop, app = asyncio.get_running_loop(), guarded(Shop())
        timers, call_at = [], loop.call_at

        def counted(when, callback, *args, **more):
            timers.append(callback)
            return call_at(when, callback, *args, **more)

        loop.call_at = counted

        async def late():
            await asyncio.sleep(0)
            return WHOLE

        first = await ask(app)
        again = await ask(app)
        at_hand = [timer for timer in timers if "Timeout" in repr(timer)]
        await read(late)
        return (
            first.status,
            again.replayed,
            at_hand,
            [timer for timer in timers if "Timeout" in repr(timer)],
        )

    status, replayed, at_hand, waited = run(main)

    assert (status, replayed, at_hand, len(waited)) == (201, True, [], 1)


def test_a_body_in_pieces_some_of_which_are_there_is_read_to_its_end():
    async def main():
        pieces = [b"a", b"", b"bc", b"d"]

        async def receive():
            piece = pieces.pop(0)
            for _ in piece:
                await asyncio.sleep(0)  # as many times as it has bytes
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        return await read(receive)

    assert run(main) == b"abcd"


def test_a_receive_may_be_any_awaitable():
    async def main():
        loop = asyncio.get_running_loop()
        here, later = loop.create_future(), loop.create_future()
        here.set_result(WHOLE)
        loop.call_soon(later.set_result, WHOLE)
        return await read(lambda: here), await read(lambda: later)

    assert run(main) == (b"all of it", b"all of it")


def test_a_receive_whose_wait_fails_hears_of_it():
    async def main():
        failing = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, OSError("reset"))

        async def receive():
            try:
                await failing
            except OSError:
                return WHOLE

        return await read(receive)

    assert run(main) == b"all of it"


def test_a_receive_that_is_too_slow_hears_of_it():
    heard = []

    with pytest.raises(TooSlow):
        run(lambda: read(waiting(heard), piece_s=0.01))

    assert heard == ["cancelled"]


@pytest.mark.parametrize("waits_again", [False, True])
def test_a_receive_that_has_its_message_just_when_its_time_is_over_is_heard(waits_again):
    async def receive():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if waits_again:
                await asyncio.sleep(0)
        return WHOLE

    assert run(lambda: read(receive, piece_s=0.01)) == b"all of it"


def test_a_cancelled_request_cancels_its_receive():
    async def main():
        begun, heard = asyncio.Event(), []
        reading = asyncio.create_task(read(waiting(heard, begun)))
        await begun.wait()
        reading.cancel()
        await asyncio.wait([reading])
        return reading.cancelled(), heard

    assert run(main) == (True, ["cancelled"])


def test_a_read_that_is_dropped_ends_its_receive():
    """As when a loop is closed over it: nobody waits any more, and nothing is awaited."""
    ended = []

    async def receive():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("receive")

    async def main():
        reading = read(receive)
        reading.send(None)
        reading.close()

    run(main)

    assert ended == ["receive"]


@pytest.mark.parametrize(
    "pieces", [[b"abc"], [b"a", b"bc"], [b"a", b"b", b"c"], [b"", b"abc"], [bytearray(b"abc")]]
)
@pytest.mark.parametrize("memory_max", [100, 3, 2, 0])
def test_what_was_added_is_read_back_whatever_pieces_it_came_in(pieces, memory_max):
    async def main():
        spooled = Spooled(memory_max)
        for piece in pieces:
            await spooled.add(piece)
        first = await spooled.piece(0)
        read_back = (bytes(spooled.view()[:]), first, spooled.size, spooled.in_memory)
        spooled.close()
        return read_back

    assert run(main) == (b"abc", (b"abc", True), 3, memory_max >= 3)


def test_a_piece_that_its_owner_changes_later_stays_as_it_was():
    async def main():
        spooled, piece = Spooled(100), bytearray(b"abc")
        await spooled.add(piece)
        piece[:] = b"xyz"
        return spooled.whole()

    assert run(main) == b"abc"
