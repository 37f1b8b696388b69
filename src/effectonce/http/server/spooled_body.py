"""Bytes that arrive in pieces: in memory while few, then in a temporary file. Memory is bounded."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from collections.abc import Generator
from typing import IO, Any, Self

from msgspec import Struct

from effectonce.http.server.problems import BodyTooLarge, Gone, TooSlow
from effectonce.http.server.responses import Message, Receive

PIECE = 65_536
# for a piece of a body, and for all of it, if nothing else is given
BODY_PIECE_S, BODY_S = 20.0, 120.0


class BodyLimits(Struct, frozen=True):
    """How big a body may be, and how long to wait for it: for each piece, and for all of it."""

    bytes_max: int
    piece_s: float
    whole_s: float


class Spooled:
    """A body. Read it from the start, as often as you like, once everything is in it."""

    __slots__ = ("_file", "_memory", "_memory_max", "in_memory", "size")

    def __init__(self, memory_max: int) -> None:
        self._memory_max, self.size, self.in_memory = memory_max, 0, True
        self._memory: bytes | bytearray = b""
        self._file: IO[bytes] | None = None

    def takes(self, piece: bytes) -> bool:
        """Keep it in memory, if there is room for it. If there is not, `add` it."""
        size = self.size + len(piece)
        if not self.in_memory or size > self._memory_max:
            return False
        if self.size == 0:
            self._memory = bytes(piece)  # mostly the only one: it is not copied
        else:
            if isinstance(self._memory, bytes):
                self._memory = bytearray(self._memory)
            self._memory += piece
        self.size = size
        return True

    async def add(self, piece: bytes) -> None:
        if self.takes(piece):
            return
        if self._file is None:
            # closed by `close`
            self._file, self.in_memory = tempfile.TemporaryFile(), False  # noqa: SIM115
            await asyncio.to_thread(self._file.write, self._memory)
            self._memory = b""
        self.size += len(piece)
        await asyncio.to_thread(self._file.write, piece)

    def view(self) -> bytes | mmap.mmap:
        """All of it, to be looked at: a file is mapped, not read."""
        if self._file is None:
            return self.whole()
        self._file.flush()
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def whole(self) -> bytes:
        """All of it, if it is in memory."""
        return bytes(self._memory)

    async def piece(self, at: int) -> tuple[bytes, bool]:
        """What stands there, and whether it is the last of it."""
        if self._file is None:
            return self.whole(), True
        piece = await asyncio.to_thread(self._read, self._file, at)
        return piece, at + len(piece) >= self.size

    def _read(self, file: IO[bytes], at: int) -> bytes:
        file.seek(at)
        return file.read(PIECE)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


# ---------------------------------------------------------------- reading it


async def read_body(receive: Receive, body: Spooled, limits: BodyLimits) -> None:
    """The whole body: not one byte more than is allowed, and no longer than it may take.

    Most bodies have come with their headers. So each piece is asked for before a timer is set:
    one that is there needs none.
    """
    ends_at, more = 0.0, True  # 0: nothing has been waited for
    while more:
        try:
            receiving = receive().__await__()
            try:
                waits_for = next(receiving)
            except StopIteration as received:
                message = received.value
            else:
                now = asyncio.get_running_loop().time()
                ends_at = ends_at or now + limits.whole_s
                async with asyncio.timeout_at(min(ends_at, now + limits.piece_s)):
                    message = await _Begun(receiving, waits_for)
        except TimeoutError:
            raise TooSlow from None
        if message["type"] == "http.disconnect":
            raise Gone
        piece = message.get("body", b"")
        if not body.takes(piece):
            await body.add(piece)
        if body.size > limits.bytes_max:
            raise BodyTooLarge
        more = message.get("more_body", False)


class _Begun:
    """To await what waits for something already, because its first step has been made by hand."""

    __slots__ = ("_first", "_receiving", "_waits_for")

    def __init__(self, receiving: Generator[Any, Any, Message], waits_for: Any) -> None:
        self._receiving, self._waits_for, self._first = receiving, waits_for, True

    def __await__(self) -> Generator[Any, Any, Message]:
        message: Message = yield from self
        return message

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._first:
            self._first = False
            return self._waits_for
        return next(self._receiving)

    def throw(self, *error: Any) -> Any:
        """What it waits for failed, or it is cancelled."""
        return self._receiving.throw(*error)

    def close(self) -> None:
        self._receiving.close()
