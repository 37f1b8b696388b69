"""Connections of our own: a socket, hiredis, and nothing that retries behind our back.

A connection is opened by blocking code, sync and async (a loop lends it a thread), because that
happens once. It is checked before it is used: a server that may drop records, or is a replica,
is refused there. What breaks is thrown away, never repaired: a reply that did not come may still
come, and would be taken for the answer to another question.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from effectonce.errors import StoreUnavailable
from effectonce.stores.base import Finding, StoreUnusable, TooLarge, size_finding
from effectonce.stores.redis.url import Target

try:
    from hiredis import ProtocolError as ProtocolError  # noqa: PLC0414  # for our neighbours
    from hiredis import Reader, pack_command
    from hiredis import ReplyError as ReplyError  # noqa: PLC0414
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "Redis and Valkey stores need hiredis: pip install 'effectonce[redis]'"
    ) from missing

# a connection that rested longer is looked at before it is used: the server may have hung up
IDLE_S = 1.0
# what a server reports about itself is asked again after this: CONFIG SET changes it under an
# open connection
FACTS_S = 30.0
_CHUNK = 1 << 16
_OLDEST = (6, 2)
MORE = object()


def pack(words: tuple[bytes | str, ...]) -> bytes:
    """One command as it goes over the wire."""
    packed: bytes = pack_command(words)  # type: ignore[arg-type]  # its stub knows tuples of one
    return packed


_SIZES = [b"\r\n$%d\r\n" % size_b for size_b in range(2048)]  # as they stand between two words


Six: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, bytes]


def _script(sha: bytes, prefix: bytes, words: Six) -> bytes:
    return pack((b"EVALSHA", sha, b"2", prefix, prefix + b"?", *words))


@lru_cache(maxsize=1024)  # a store has 257 prefixes, and an ordinary call two scripts
def _beginning(sha: bytes, prefix: bytes) -> bytes:
    return _script(sha, prefix, (b"",) * 6).removesuffix(b"\r\n$0\r\n" * 6 + b"\r\n")


def pack_script(sha: bytes, prefix: bytes, words: Six) -> bytes:
    """`pack` for ordinary calls' scripts, a quarter of the instructions: nearly half is fixed."""
    a, b, c, d, e, f = words
    try:
        sizes = (
            _SIZES[len(a)],
            _SIZES[len(b)],
            _SIZES[len(c)],
            _SIZES[len(d)],
            _SIZES[len(e)],
            _SIZES[len(f)],
        )
    except IndexError:  # a long word
        return _script(sha, prefix, words)
    x, y, z, u, v, w = sizes
    return b"".join((_beginning(sha, prefix), x, a, y, b, z, c, u, d, v, e, w, f, b"\r\n"))


class Batch(Struct, frozen=True):
    """Commands for one node, and how many replies they get."""

    address: tuple[str, int]
    payload: bytes
    replies: int


_ASKED = (("INFO",), ("CONFIG", "GET", "appendfsync"), ("CONFIG", "GET", "proto-max-bulk-len"))
ABOUT_YOU, ABOUT_YOU_REPLIES = b"".join(map(pack, _ASKED)), len(_ASKED)
BULK_MAX_B = 512 << 20  # the largest value of a server that does not say


def largest_b(payload: bytes) -> int:
    """The largest word of these commands."""
    at, largest, end = 0, 0, len(payload)
    while at < end:
        line_end = payload.index(b"\r\n", at)
        if payload[at : at + 1] == b"$":
            size_b = int(payload[at + 1 : line_end])
            largest, line_end = max(largest, size_b), line_end + 2 + size_b
        at = line_end + 2
    return largest


class ServerFacts(Struct, frozen=True):
    """What a server says about itself."""

    version: str
    role: str
    policy: str  # what it does when its memory is full
    synced: bool  # every acknowledged write is on the disk
    replicas: int  # may take over, without the last writes
    memory_b: int = 0
    bulk_max_b: int = BULK_MAX_B  # a larger value ends the connection

    def complaint(self) -> str:
        """Why no record may be kept there; "" if there is no reason."""
        if tuple(int(part) for part in self.version.split(".")[:2]) < _OLDEST:
            return f"is version {self.version}; 6.2 is the oldest that works"
        if self.role != "master":
            return f"is a {self.role}, which takes no writes. Connect to its primary"
        if self.policy != "noeviction":
            return (
                f"has maxmemory-policy {self.policy}: it would drop records when its memory is"
                " full, and an effect could run twice. CONFIG SET maxmemory-policy noeviction,"
                " there and in its configuration file"
            )
        return ""

    def findings(self, node: str, waits_for: int) -> tuple[Finding, ...]:
        """What a node promises. That it can forget is no fault: irreversible tools are refused."""
        forgets = (
            "" if self.synced else "For irreversible tools: appendonly yes and appendfsync always."
        )
        lags = (
            f"For irreversible tools: RedisStore(url, replicas={self.replicas})."
            if self.replicas > waits_for
            else ""
        )
        synced = (
            "every write is on the disk before it is acknowledged"
            if self.synced
            else "the last writes can be lost"
        )
        return (
            Finding("server", f"{node}, version {self.version}, {self.policy}"),
            Finding("durability", synced, forgets),
            Finding(
                "replicas", f"{self.replicas} connected, each write waits for {waits_for}", lags
            ),
            size_finding(self.memory_b, "of memory, with whatever else it holds"),
        )


UNKNOWN = ServerFacts("", "", "", synced=False, replicas=0)


class RedisConnection:
    """One socket to one node. Not shared: its holder waits for its replies."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target, self.timeout_s, self.used_at = target, timeout_s, 0.0
        self.asked_at, self.facts = time.monotonic(), UNKNOWN
        self.reader = Reader(notEnoughData=MORE)
        try:
            self.socket = _connect(target, timeout_s)
        except OSError as error:
            raise StoreUnavailable(
                f"{target} cannot be reached: {error}. Nothing was written."
            ) from error
        try:
            self._introduce()
        except BaseException:
            self.close()
            raise

    def _introduce(self) -> None:
        target = self.target
        login = (
            [("AUTH", *([target.username] if target.username else []), target.password)]
            if target.password
            else []
        )
        choose = [("SELECT", str(target.db))] if target.db else []
        commands = [pack(command) for command in (*login, *choose)]
        self.hear(
            self.exchange(b"".join((*commands, ABOUT_YOU)), len(commands) + ABOUT_YOU_REPLIES)
        )

    def ask_again(self) -> None:
        """Does it still promise what it did?"""
        self.hear(self.exchange(ABOUT_YOU, ABOUT_YOU_REPLIES))

    def hear(self, replies: list[Any]) -> None:
        """Note what it says about itself. Raises if no record may be kept there."""
        target, (*done, info, fsync, bulk_max) = self.target, replies
        refusals = [str(reply) for reply in (*done, info) if isinstance(reply, ReplyError)]
        if refusals:
            raise refused(refusals[0])(
                f"{target} refused us: {refusals[0]}. Nothing was written. Check user, password and"
                " database."
            )
        reported = info.decode(errors="replace")  # it also quotes paths, in whatever encoding
        if "loading:1\r\n" in reported:
            # Until it has read its append-only file, it says that it has none.
            raise StoreUnavailable(
                f"{target} is reading its data and will answer soon. Nothing was written."
            )
        try:
            facts = _facts(reported, fsync, bulk_max)
        except KeyError as missing:
            raise StoreUnavailable(
                f"{target} does not say what its {missing} is, so no record may be kept there."
                " Nothing was written."
            ) from missing
        if facts.complaint():
            raise StoreUnavailable(f"{target} {facts.complaint()}. Nothing was written.")
        self.facts, self.asked_at = facts, time.monotonic()

    def exchange(self, payload: bytes, replies: int) -> list[Any]:
        """Send commands and wait for their replies."""
        self.check_size(payload)
        until, reader, sock = 0.0, self.reader, self.socket
        got: list[Any] = []
        try:
            sock.sendall(payload)
            while True:
                data = sock.recv(_CHUNK)
                if not data:
                    raise ConnectionError("it closed the connection before it answered")
                reader.feed(data)
                while (reply := reader.gets()) is not MORE:
                    got.append(reply)
                if len(got) >= replies:
                    return got
                now = time.monotonic()  # only now: nearly always all of it is there at once
                until = until or now + self.timeout_s
                if now > until:
                    raise TimeoutError  # it answers, but a byte at a time
        except (OSError, ProtocolError) as error:
            raise lost(self.target, error, self.timeout_s) from error

    def check_size(self, payload: bytes) -> None:
        """A server hangs up on a value that is too large for it, without a word that reaches us."""
        limit_b = self.facts.bulk_max_b
        if len(payload) > limit_b and largest_b(payload) > limit_b:
            raise TooLarge(
                f"{self.target} takes no value of {largest_b(payload) / 1e6:,.0f} MB: its"
                f" proto-max-bulk-len is {limit_b / 1e6:,.0f} MB. Nothing of it was written."
            )

    def stale(self, now: float) -> bool:
        """Did the server hang up while it was idle? Nothing is due: anything to read is an end."""
        return now - self.used_at > IDLE_S and bool(_readable(self.socket))

    def outdated(self, now: float) -> bool:
        """Did the server report its settings so long ago that they may have changed?"""
        return now - self.asked_at > FACTS_S

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.close()


def _connect(target: Target, timeout_s: float) -> socket.socket:
    host, port = target.address
    if port:
        plain = socket.create_connection((host, port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    else:
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        plain.settimeout(timeout_s)
        if not port:
            plain.connect(host)
        if target.tls is not None:
            return target.tls.wrap_socket(plain, server_hostname=host)
    except OSError:
        plain.close()
        raise
    # The kernel watches the time. A timeout of Python's costs a poll() before every read and write.
    limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    plain.settimeout(None)
    return plain


def _readable(sock: socket.socket) -> list[Any]:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll.poll(0)


def _facts(info: str, fsync: Any, bulk_max: Any) -> ServerFacts:
    reported = dict(line.split(":", 1) for line in info.split("\r\n") if ":" in line)
    # Where CONFIG is forbidden it is not known how often it syncs, and what is not known is not
    # promised.
    always = isinstance(fsync, list) and fsync[1:] == [b"always"]
    return ServerFacts(
        reported["redis_version"],
        reported["role"],
        reported["maxmemory_policy"],
        reported["aof_enabled"] == "1" and always,
        int(reported.get("connected_slaves", "0")),
        int(reported.get("used_memory", "0")),
        int(bulk_max[1]) if isinstance(bulk_max, list) and bulk_max else BULK_MAX_B,
    )


def refused(reply: str) -> type[StoreUnavailable]:
    """The error for a refusal: a server that refuses a user now will refuse it a moment later."""
    return (
        StoreUnusable
        if reply.partition(" ")[0] in ("NOAUTH", "WRONGPASS", "NOPERM")
        else StoreUnavailable
    )


def lost(target: Target, error: Exception, timeout_s: float) -> StoreUnavailable:
    """What is known when a reply does not come: nothing."""
    slow = isinstance(error, BlockingIOError | TimeoutError)
    gone = (
        f"does not speak Redis: {error}"
        if isinstance(error, ProtocolError)
        else f"is gone: {error}"
    )
    what = f"did not answer within {timeout_s:g} s" if slow else gone
    return StoreUnavailable(
        f"{target} {what}. Whether the write was applied is not known; repeating it is safe."
    )


# ---------------------------------------------------------------- threads


class Pool:
    """A process's connections to a node, last used first. When all are in use, callers wait."""

    def __init__(
        self,
        connect: Callable[[], RedisConnection],
        accept: Callable[[RedisConnection], None],
        timeout_s: float,
        size: int,
    ) -> None:
        self._connect, self._accept, self._timeout_s = connect, accept, timeout_s
        self._idle: deque[RedisConnection] = deque()
        # Not a number that is counted down and up: a signal may strike in between. A connection
        # that no thread holds any more makes room.
        self._alive: weakref.WeakSet[RedisConnection] = weakref.WeakSet()
        self._size, self._opening, self._waiting = size, 0, 0
        self._changed = threading.Condition()

    def exchange(self, payload: bytes, replies: int) -> list[Any]:
        """A connection for one batch. If it fails, it is dropped, and so are the idle ones."""
        connection = self.take()
        got = None
        try:
            got = connection.exchange(payload, replies)
            return got
        finally:
            if got is None:
                self.discard(connection)
            else:
                self.give(connection)

    def take(self) -> RedisConnection:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._open()
        now = time.monotonic()
        if connection.stale(now):
            self.discard(connection)
            return self._open()
        if connection.outdated(now):
            self.ask_again(connection)
        return connection

    def ask_again(self, connection: RedisConnection) -> None:
        """What does its server promise today? If that is not enough, it is thrown away."""
        try:
            connection.ask_again()
            self._accept(connection)
        except BaseException:
            self.discard(connection)
            raise

    def give(self, connection: RedisConnection) -> None:
        connection.used_at = time.monotonic()
        self._idle.append(connection)
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def discard(self, connection: RedisConnection) -> None:
        """It is broken, so its neighbours probably are: the next caller gets a new one."""
        connection.close()
        with self._changed:
            self._alive.discard(connection)
            self._changed.notify()
        self.close()

    def close(self) -> None:
        """Close those that rest."""
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread took it
                connection = self._idle.pop()
                connection.close()
                with self._changed:
                    self._alive.discard(connection)

    def _open(self) -> RedisConnection:
        until = time.monotonic() + self._timeout_s
        with self._changed:
            self._waiting += 1
            try:
                while len(self._alive) + self._opening >= self._size:
                    if self._idle:
                        with contextlib.suppress(IndexError):  # another thread took it
                            return self._idle.pop()
                    left_s = until - time.monotonic()
                    if left_s <= 0:
                        raise StoreUnavailable(
                            f"all connections were in use for {self._timeout_s:g} s. Nothing was"
                            " written. Allow more of them with connections=."
                        )
                    self._changed.wait(left_s)
                self._opening += 1
            finally:
                self._waiting -= 1
        try:
            connection = self._connect()
            self._alive.add(connection)
            return connection
        finally:
            with self._changed:
                self._opening -= 1
                self._changed.notify()
