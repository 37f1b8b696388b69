"""Bytes that arrive in pieces: in memory while they are few, in a temporary file from then on. So memory is bounded whatever is sent."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from typing import IO

from msgspec import Struct

from effectonce.http._answers import Receive
from effectonce.http._problems import Gone, TooLarge, TooSlow

PIECE = 65_536
BODY_PIECE_S, BODY_S = 20.0, 120.0  # for a piece of a body, and for all of it, if nothing else is said


class BodyLimits(Struct, frozen=True):
    """How much a body may be, and for how long it is waited for: for each piece, and for all of it."""

    bytes_max: int
    piece_s: float
    whole_s: float


class Spooled:
    """A body. Read it from the start, as often as you like, once everything is in it."""

    __slots__ = ("_file", "_memory", "_memory_max", "size")

    def __init__(self, memory_max: int) -> None:
        self._memory_max, self._memory = memory_max, bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    @property
    def in_memory(self) -> bool:
        return self._file is None

    async def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._file is not None:
            await asyncio.to_thread(self._file.write, piece)
            return
        self._memory += piece
        if self.size > self._memory_max:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
            await asyncio.to_thread(self._file.write, self._memory)
            self._memory = bytearray()

    def view(self) -> bytes | mmap.mmap:
        """All of it, to be looked at: a file is mapped, not read."""
        if self._file is None:
            return bytes(self._memory)
        self._file.flush()
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    async def piece(self, at: int) -> tuple[bytes, bool]:
        """What stands there, and whether it is the last of it."""
        if self._file is None:
            return bytes(self._memory), True
        piece = await asyncio.to_thread(self._read, self._file, at)
        return piece, at + len(piece) >= self.size

    def _read(self, file: IO[bytes], at: int) -> bytes:
        file.seek(at)
        return file.read(PIECE)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def read_body(receive: Receive, body: Spooled, limits: BodyLimits) -> None:
    """The whole body: not one byte more than is allowed, and no longer than it may take."""
    now = asyncio.get_running_loop().time
    ends_at, more = now() + limits.whole_s, True
    while more:
        try:
            async with asyncio.timeout_at(min(ends_at, now() + limits.piece_s)):
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        if message["type"] == "http.disconnect":
            raise Gone
        await body.add(message.get("body", b""))
        if body.size > limits.bytes_max:
            raise TooLarge
        more = message.get("more_body", False)
