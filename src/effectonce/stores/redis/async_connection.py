"""One connection for a loop's tasks: what one tick asks is one write; replies come in order."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any

from effectonce.errors import StoreUnavailable
from effectonce.stores.redis.connection import (
    ABOUT_YOU,
    ABOUT_YOU_REPLIES,
    MORE,
    ProtocolError,
    RedisConnection,
    lost,
)

_CHUNK = (
    1 << 15
    # more than a record of TLS: nothing stays behind, decrypted. Not much more: hiredis moves
    # what is left at each reply
)
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Lane:
    """An open connection that a loop watches. It is used on that loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: RedisConnection) -> None:
        self._loop, self.connection = loop, connection
        self._socket, self._reader, self.target = (
            connection.socket,
            connection.reader,
            connection.target,
        )
        self._socket.setblocking(False)
        self._asked: deque[tuple[asyncio.Future[list[Any]], int, float]] = deque()
        self._got: list[Any] = []  # replies of the oldest batch so far
        self._out: list[bytes | memoryview] = []
        self._flushing = self._watching = False
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        loop.add_reader(self._socket, self._read)

    def ask(self, payload: bytes, replies: int) -> asyncio.Future[list[Any]]:
        """Send one batch. Its replies come in a list, or `StoreUnavailable` does."""
        loop, timeout_s = self._loop, self.connection.timeout_s
        future: asyncio.Future[list[Any]] = loop.create_future()
        if self.closed:  # between finding this lane and asking it: no answer would ever come
            future.set_exception(
                StoreUnavailable(f"{self.target} hung up before it was asked. Nothing was written.")
            )
            return future
        try:
            self.connection.check_size(payload)
        except StoreUnavailable as error:
            future.set_exception(error)
            return future
        self._asked.append((future, replies, loop.time() + timeout_s))
        self._out.append(payload)
        if self._timer is None:
            self._timer = loop.call_later(timeout_s, self._check_time)
        if len(self._asked) == 1:
            self._flush()  # no other request is waiting: a tick later would only be later
        elif not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush)
        return future

    async def ask_again(self) -> None:
        """What does its server promise today? Raises if no record may be kept there."""
        self.connection.hear(await self.ask(ABOUT_YOU, ABOUT_YOU_REPLIES))

    def close(self, error: StoreUnavailable | None = None) -> None:
        """Hang up. Callers that wait for a reply do not get one."""
        if self.closed:
            return
        self.closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            if self._timer is not None:
                self._timer.cancel()
        self.connection.close()
        waiting, self._asked = self._asked, deque()
        for future, _, _ in waiting:
            # otherwise no caller is left that could be notified
            if not future.done() and not self._loop.is_closed():
                future.set_exception(
                    error or lost(self.target, ConnectionError("the store was closed"), 0)
                )

    # ------------------------------------------------------------ what the loop calls

    def _flush(self) -> None:
        self._flushing = False
        if self.closed or self._watching or not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        try:
            sent = self._socket.send(data)
        except _LATER:
            sent = 0
        except OSError as error:
            self.close(lost(self.target, error, 0))
            return
        if sent < len(data):
            # a copy of what is left, each time, would take longer than the socket
            self._out.insert(0, memoryview(data)[sent:])
            self._watching = True
            self._loop.add_writer(self._socket, self._write_on)

    def _write_on(self) -> None:
        """The socket takes more."""
        self._loop.remove_writer(self._socket)
        self._watching = False
        self._flush()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except _LATER:
            return
        except OSError as error:
            self.close(lost(self.target, error, 0))
            return
        if not data:
            self.close(
                lost(self.target, ConnectionError("it closed the connection before it answered"), 0)
            )
            return
        self._reader.feed(data)
        try:
            self._deliver()
        except ProtocolError as error:
            self.close(lost(self.target, error, 0))

    def _deliver(self) -> None:
        gets, got, asked = self._reader.gets, self._got, self._asked
        while (reply := gets()) is not MORE:
            if not asked:
                self.close()  # no request is open: the server is closing the connection
                return
            got.append(reply)
            future, replies, _ = asked[0]
            if len(got) == replies:
                asked.popleft()
                if not future.done():  # its caller may be gone
                    future.set_result(got)
                got = self._got = []

    def _check_time(self) -> None:
        """One timer for all: batches are answered in order, so the oldest is late first."""
        self._timer = None
        if not self._asked:
            return
        late_at = self._asked[0][2]
        if late_at <= self._loop.time():
            self.close(lost(self.target, TimeoutError(), self.connection.timeout_s))
        else:
            self._timer = self._loop.call_at(late_at, self._check_time)
