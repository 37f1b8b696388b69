"""The connection that all tasks of a loop share, against a peer that is turned by hand."""

import asyncio
import socket
import struct

import pytest

from effectonce import StoreUnavailable
from effectonce.stores.redis.async_connection import Lane
from effectonce.stores.redis.connection import MORE, Reader
from effectonce.stores.redis.url import Target


class Line:
    """What a lane needs of a connection."""

    def __init__(self, sock, timeout_s=60.0):
        self.socket, self.timeout_s = sock, timeout_s
        self.reader, self.target = Reader(notEnoughData=MORE), Target(address=("peer", 1))

    def check_size(self, payload):
        """It takes everything."""

    def outdated(self, _now):
        return False

    def close(self):
        self.socket.close()


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def pair(loop):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    far.settimeout(60)
    lane = Lane(loop, Line(near))
    yield lane, far
    lane.close()
    far.close()


def test_what_a_socket_does_not_take_at_once_is_written_when_it_does(loop, pair):
    lane, far = pair
    payload = b"x" * 20_000_000

    def answer():
        left = len(payload) + 2
        while left:
            left -= len(far.recv(min(left, 1 << 20)))
        far.sendall(b"+one\r\n+two\r\n+three\r\n+four\r\n")

    async def ask():
        answers = [lane.ask(payload, 1), lane.ask(b"y", 2)]
        await asyncio.sleep(0)
        answers.append(lane.ask(b"!", 1))  # the socket is full by now
        await loop.run_in_executor(None, answer)
        return await asyncio.gather(*answers)

    assert loop.run_until_complete(ask()) == [[b"one"], [b"two", b"three"], [b"four"]]


def test_a_full_socket_is_tried_again(loop, pair):
    lane, far = pair
    filler = bytes(1 << 20)
    filled = 0
    with pytest.raises(BlockingIOError):
        while True:
            filled += lane._socket.send(filler)

    async def ask():
        answer = lane.ask(b"!", 1)
        left = filled + 1
        while left:
            left -= len(await loop.run_in_executor(None, far.recv, left))
        far.sendall(b"+late\r\n")
        return await answer

    assert loop.run_until_complete(ask()) == [b"late"]


def test_a_peer_that_is_gone_is_noticed_when_writing(loop, pair):
    lane, _ = pair
    lane._socket.shutdown(socket.SHUT_WR)

    async def ask():
        await lane.ask(b"x", 1)

    with pytest.raises(StoreUnavailable, match="is gone"):
        loop.run_until_complete(ask())
    assert lane.closed
    lane._flush()


def test_a_peer_that_is_gone_is_noticed_when_reading(loop, pair):
    lane, far = pair
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def ask():
        answer = lane.ask(b"x", 1)
        await loop.run_in_executor(None, far.recv, 1)
        far.close()
        await answer

    with pytest.raises(
        StoreUnavailable, match=r"reset by peer.*Whether the write was applied is not known"
    ):
        loop.run_until_complete(ask())


def test_a_connection_that_closed_a_moment_before_it_is_asked_says_so(loop, pair):
    lane, _ = pair
    lane.close()

    async def ask():
        await asyncio.wait_for(lane.ask(b"x", 1), 60)

    with pytest.raises(StoreUnavailable, match=r"before it was asked\. Nothing was written"):
        loop.run_until_complete(ask())


def test_a_peer_that_speaks_something_else_is_unavailable_at_once(loop, pair):
    lane, far = pair

    async def ask():
        answer = lane.ask(b"x", 1)
        await loop.run_in_executor(None, far.sendall, b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        await asyncio.wait_for(answer, 60)

    with pytest.raises(
        StoreUnavailable, match=r"does not speak Redis.*Whether the write was applied is not known"
    ):
        loop.run_until_complete(ask())
    assert lane.closed


def test_a_false_alarm_is_ignored(loop, pair):
    lane, _ = pair
    lane._read()
    assert not lane.closed


def test_a_reply_that_nobody_asked_for_ends_the_connection(loop, pair):
    lane, far = pair
    far.sendall(b"-ERR max number of clients reached\r\n")

    while not lane.closed:
        loop.run_until_complete(asyncio.sleep(0))


def test_the_timer_rests_when_nobody_waits(loop, pair):
    lane, _ = pair
    lane._check_time()
    assert lane._timer is None


def test_the_timer_goes_on_for_those_who_came_later(loop, pair):
    lane, _ = pair

    async def ask():
        answer = lane.ask(b"x", 1)
        lane._check_time()
        assert lane._timer is not None
        answer.cancel()
        lane.close()  # somebody waits who is gone: he is not told

    loop.run_until_complete(ask())
    assert lane.closed
