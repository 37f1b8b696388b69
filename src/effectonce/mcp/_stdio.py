"""The two ends of a proxy: the client's pipes, which we have, and the server's, which we start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from effectonce.mcp._jsonrpc import LINE_MAX

PIECE = 1 << 16
ENDS = 4096  # bytes of each end of a line that is too long
STOP_WITHIN_S = 5.0


class Cut(bytes):
    """The beginning and the end of a line that was too long to be kept."""


class Lines:
    """Bytes, cut at line ends. Of a line of more than *line_max* bytes only the ends are kept."""

    def __init__(self, line_max: int = LINE_MAX) -> None:
        self._line_max = line_max
        self._begun: list[bytes] = []
        self._size = 0

    def cut(self, piece: bytes) -> list[bytes]:
        """The lines that *piece* ends. Each has its end with it."""
        *ended, rest = piece.split(b"\n")
        made = []
        for line in ended:
            self._add(line + b"\n")
            made.append(self._taken())
        self._add(rest)
        return made

    def rest(self) -> list[bytes]:
        """What came without an end, at the end of all."""
        if not self._begun:
            return []
        self._add(b"\n")
        return [self._taken()]

    def _add(self, part: bytes) -> None:
        if part:
            self._begun.append(part)
            self._size += len(part)
        if self._size > self._line_max:
            whole = b"".join(self._begun)
            self._begun = [whole[:ENDS], whole[-ENDS:]]

    def _taken(self) -> bytes:
        line = b"".join(self._begun)
        taken = Cut(line) if self._size > self._line_max else line
        self._begun, self._size = [], 0
        return taken


class ClientPipes:
    """Our stdin and stdout, of any kind. Threads wait for them, so that nothing else has to."""

    def __init__(self, reading: int = 0, writing: int = 1) -> None:
        self._reading, self._writing = reading, writing
        # one: lines leave in the order in which they were given
        self._writer = ThreadPoolExecutor(1, "effectonce-client")

    async def lines(self) -> AsyncIterator[tuple[bytes, float]]:
        """Every line that the client sends, until it closes its end, and when it came."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[bytes, float] | None]()

        def read() -> None:
            lines, piece = Lines(), b"-"
            while piece:
                try:
                    piece = os.read(self._reading, PIECE)
                except OSError:
                    piece = b""
                now = time.monotonic()
                for line in lines.cut(piece) if piece else lines.rest():
                    loop.call_soon_threadsafe(queue.put_nowait, (line, now))
            loop.call_soon_threadsafe(queue.put_nowait, None)

        def safely() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it is not wanted any more
                read()

        threading.Thread(target=safely, name="effectonce-stdin", daemon=True).start()
        while (came := await queue.get()) is not None:
            yield came

    async def send(self, line: bytes, leaves: Callable[[float], None] | None = None) -> bool:
        """False: the client is gone. *leaves* gets the time the line leaves, before any answer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._write, line, leaves)

    def _write(self, line: bytes, leaves: Callable[[float], None] | None) -> bool:
        view = memoryview(line)
        if leaves is not None:
            leaves(time.monotonic())
        try:
            while view:
                view = view[os.write(self._writing, view) :]
        except OSError:
            return False
        return True


class ServerNotStarted(Exception):  # it is shown to the person who gave the command
    """The server's command cannot be started."""


class ServerProcess:
    """The server, in a session of its own: a client that ends us does not end its work first."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self.spoke = process, False
        self.broken = False  # it cannot be written to any more

    @classmethod
    async def start(cls, command: Sequence[str]) -> ServerProcess:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, start_new_session=True
            )
        except OSError as error:
            why = error.strerror or error
            raise ServerNotStarted(f"{command[0]} cannot be started: {why}") from None
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """Every line that it says, until it ends."""
        assert self._process.stdout is not None
        lines = Lines()
        while piece := await self._process.stdout.read(PIECE):
            for line in lines.cut(piece):
                self.spoke = True
                yield line
        for line in lines.rest():
            yield line
        self.broken = True

    async def send(self, line: bytes) -> bool:
        """False: nothing of it was read, because the server is gone."""
        assert self._process.stdin is not None
        if self.broken or self._process.stdin.is_closing():
            return False
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            # Some of it may have been read: a caller that waits for an answer gets an error when
            # the process is gone.
            self.broken = True
        return True

    async def stop(self) -> int:
        """Close its stdin, as the protocol has it, and wait for its end; if it stays, force it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for end in (self._process.terminate, self._process.kill):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN_S):
                    return await self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                end()
        return await self._process.wait()

    async def wait(self) -> int:
        return await self._process.wait()
