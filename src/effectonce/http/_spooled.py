"""Bytes that arrive in pieces: in memory while they are few, in a temporary file from then on. So memory is bounded whatever is sent."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from typing import IO

PIECE = 65_536


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
