"""Redis and Valkey: for many machines, as durable as its server is set up to be.

Theory of operation. The protocol is not in Lua. A script sees, or swaps what was seen, and
Python decides by the table (`_roundtrip`); the two exchanges of every call, bear and finish, are
one round trip each. Time is the server's. Threads borrow connections from a pool; the tasks of
an event loop share one. There is no retry here: a reply that does not come is
`StoreUnavailable`, its connection is thrown away, and the engine repeats the write with the same
token.

What a server promises is asked, not assumed: `maxmemory-policy` must be `noeviction`, and only
`appendonly yes` with `appendfsync always` counts as durable. `everysec` outlives its process but
not its machine. A primary that has replicas may be succeeded by one that lags behind, so it is
durable only if every write waits for all of them (`replicas=`).
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar, cast

from effectonce._core.ops import Applied, Claim, Complete, Op
from effectonce._drivers import adrive, drive
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.stores._births import Births
from effectonce.stores._roundtrip import (
    Answering,
    Due,
    Read,
    ReadOutcome,
    RoundTrip,
    answer,
    go_on,
    is_first,
)
from effectonce.stores.base import DUE_SHOWN, Capabilities, Finding, clock_finding, due_finding
from effectonce.stores.redis import records
from effectonce.stores.redis.async_connection import Lane
from effectonce.stores.redis.client import RedisClient
from effectonce.stores.redis.connection import Batch, Pool, RedisConnection, ReplyError
from effectonce.stores.redis.lists import Command
from effectonce.stores.redis.url import Address, parse

R = TypeVar("R")
Place: TypeAlias = tuple[asyncio.AbstractEventLoop, Address]


class RedisStore:
    """One Redis or Valkey server, or a cluster of them.

    *replicas* is how many replicas must have confirmed a write before it counts. *connections*
    is how many threads may talk at once. *prefix* keeps stores apart that share a server. Only
    tests pass a *clock*.
    """

    has_cells = True

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        replicas: int = 0,
        timeout_s: float = 5.0,
        connections: int = 16,
        prefix: str = "eo",
    ) -> None:
        self._target, from_url = parse(url)
        options: dict[str, Any] = {
            "replicas": replicas,
            "timeout_s": timeout_s,
            "connections": connections,
            "prefix": prefix,
        } | from_url
        self._replicas, self._timeout_s, self._connections = (
            options["replicas"],
            options["timeout_s"],
            options["connections"],
        )
        if (
            self._replicas < 0
            or self._timeout_s <= 0
            or self._connections < 1
            or set(options["prefix"]) & set("{}")
        ):
            raise ContractViolation(
                "replicas, timeout_s and connections must be positive, and a prefix has no braces:"
                f" {options}"
            )
        self._talk = RedisClient(
            self._target,
            options["prefix"],
            clock=clock,
            replicas=self._replicas,
            timeout_s=self._timeout_s,
            hang_up=self._hang_up,
        )
        self._births = Births(records.pack_birth)
        self._promised = False
        self._start()
        _STORES.add(self)

    def _start(self) -> None:
        """Everything that must not cross a fork: sockets, and who waits for them."""
        self._pools: dict[Address, Pool] = {}
        self._lanes: dict[Place, Lane] = {}
        self._opening: dict[Place, asyncio.Task[Lane]] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What the server or each node promises today. Later connections to less are refused."""
        addresses = drive(self._talk.discover(), self._send)
        durable = all(self._durable(self._look(address)) for address in addresses)
        self._promised = self._promised or durable
        return Capabilities(durable=durable, transactions=False)

    def apply(self, op: Op[R], /) -> R:
        ordinary = self._ordinary(op)
        if ordinary is None:
            return drive(answer(op), self._perform)
        done: R
        payload, done = ordinary
        (reply,) = self._pool(self._target.address).exchange(payload, 1)
        if reply == 1:
            return done
        answering, command, read = self._again(op)
        seen = read(
            drive(self._talk.again(command, reply), self._send)
            if isinstance(reply, ReplyError)
            else reply
        )
        return drive(go_on(answering, seen), self._perform)

    def aapply(self, op: Op[R], /) -> Coroutine[Any, Any, R]:
        ordinary = self._ordinary(op)
        return (
            adrive(answer(op), self._aperform) if ordinary is None else self._aapply(op, *ordinary)
        )

    async def _aapply(self, op: Op[R], payload: bytes, done: R) -> R:
        lane = self._near(self._target.address)
        if lane is None:
            lane = await self._lane(self._target.address)
        (reply,) = await lane.ask(payload, 1)
        if reply == 1:
            return done
        answering, command, read = self._again(op)
        seen = read(
            await adrive(self._talk.again(command, reply), self._asend)
            if isinstance(reply, ReplyError)
            else reply
        )
        return await adrive(go_on(answering, seen), self._aperform)

    def _ordinary(self, op: Any) -> tuple[bytes, Any] | None:
        """One of an ordinary call's two writes: payload and reply if done. None: another op."""
        talk, kind = self._talk, type(op)  # `isinstance` costs more where it says no
        if not talk.simple:
            return None
        if kind is Complete:
            return talk.finish(op), Applied(op.epoch)
        if kind is Claim and is_first(op):
            birth = self._births.of(op)
            return talk.first(op, birth.packed), birth.reply
        return None

    def _again(self, op: Op[R]) -> tuple[Answering[R], Command, Callable[[Any], Any]]:
        """Such a write's answer at its first exchange; its script, and how the reply reads."""
        answering = answer(op)
        command, read = cast(
            tuple[Command, Callable[[Any], Any]], self._talk.single(next(answering))
        )
        return answering, command, read

    def examine(self) -> tuple[Finding, ...]:
        """What each node promises, how far its clock is from ours, and what is due."""
        nodes = [self._look(address) for address in drive(self._talk.discover(), self._send)]
        about = [
            finding
            for node in nodes
            for finding in node.facts.findings(str(node.target), self._replicas)
        ]
        before_s = time.time()
        its_s = self._perform(Read("a key without a record")).now
        due = self._perform(Due(DUE_SHOWN))
        return (
            *about,
            clock_finding(its_s - (before_s + time.time()) / 2),
            due_finding(due.count, due.unreadable),
        )

    def close(self) -> None:
        """Close every connection. A later call opens new ones."""
        for pool in self._pools.values():
            pool.close()
        lanes, self._lanes = self._lanes, {}
        for (loop, _), lane in lanes.items():
            _close(loop, lane)

    def _hang_up(self, address: Address) -> None:
        """Forget the connections to one node: those that rest, and that of the running loop."""
        if address in self._pools:
            self._pools[address].close()
        # documented, for libraries; None in a thread without one
        loop = asyncio._get_running_loop()  # noqa: SLF001
        if loop is not None and (loop, address) in self._lanes:
            self._lanes[loop, address].close()

    # ------------------------------------------------------------ threads

    def _perform(self, exchange: RoundTrip[Any]) -> Any:
        if isinstance(exchange, ReadOutcome):
            if not self._talk.simple:
                return None  # a cluster and replicas have more to say than one reply
            return self._talk.known(
                exchange.request,
                self._pool(self._target.address).exchange(self._talk.look(exchange.request), 2),
            )
        single = self._talk.single(exchange) if self._talk.simple else None
        if single is None:
            return drive(self._talk.converse(exchange), self._send)
        command, read = single
        (reply,) = self._pool(self._target.address).exchange(command.pack(), 1)
        return read(
            drive(self._talk.again(command, reply), self._send)
            if isinstance(reply, ReplyError)
            else reply
        )

    def _send(self, batch: Batch) -> list[Any] | StoreUnavailable:
        try:
            return self._pool(batch.address).exchange(batch.payload, batch.replies)
        except StoreUnavailable as error:
            return error

    def _pool(self, address: Address) -> Pool:
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools.setdefault(
                address,
                Pool(lambda: self._open(address), self._accept, self._timeout_s, self._connections),
            )
        return pool

    def _look(self, address: Address) -> RedisConnection:
        """A connection that has just been asked what its server promises."""
        pool = self._pool(address)
        connection = pool.take()
        pool.ask_again(connection)
        pool.give(connection)
        return connection

    def _open(self, address: Address) -> RedisConnection:
        connection = RedisConnection(self._target.at(address), self._timeout_s)
        try:
            self._accept(connection)
        except StoreUnavailable:
            connection.close()
            raise
        return connection

    def _accept(self, connection: RedisConnection) -> None:
        """Refuse a server that promises less than tools rely on."""
        if self._promised and not self._durable(connection):
            raise StoreUnavailable(
                f"{connection.target} can forget what it acknowledged, but tools were registered"
                " that rely on it. Nothing was written. It needs appendonly yes and appendfsync"
                f" always, and replicas={connection.facts.replicas} for its replicas."
            )

    def _durable(self, connection: RedisConnection) -> bool:
        return connection.facts.synced and connection.facts.replicas <= self._replicas

    # ------------------------------------------------------------ event loops

    async def _aperform(self, exchange: RoundTrip[Any]) -> Any:
        if not self._talk.simple:
            return (
                None
                if isinstance(exchange, ReadOutcome)
                else await adrive(self._talk.converse(exchange), self._asend)
            )
        lane = self._near(self._target.address)
        if lane is None:
            lane = await self._lane(self._target.address)
        if isinstance(exchange, ReadOutcome):
            return self._talk.known(
                exchange.request, await lane.ask(self._talk.look(exchange.request), 2)
            )
        single = self._talk.single(exchange)
        if single is None:
            return await adrive(self._talk.converse(exchange), self._asend)
        command, read = single
        (reply,) = await lane.ask(command.pack(), 1)
        return read(
            await adrive(self._talk.again(command, reply), self._asend)
            if isinstance(reply, ReplyError)
            else reply
        )

    async def _asend(self, batch: Batch) -> list[Any] | StoreUnavailable:
        lane = self._near(batch.address)
        try:
            if lane is None:
                lane = await self._lane(batch.address)
            return await lane.ask(batch.payload, batch.replies)
        except StoreUnavailable as error:
            return error

    def _near(self, address: Address) -> Lane | None:
        """This loop's connection, if open and its server has lately reported what it promises."""
        lane = self._lanes.get((asyncio.get_running_loop(), address))
        return (
            None
            if lane is None or lane.closed or lane.connection.outdated(time.monotonic())
            else lane
        )

    async def _lane(self, address: Address) -> Lane:
        """The connection of this loop, opened in a thread by the first task that asks."""
        place = (asyncio.get_running_loop(), address)
        opening = self._opening.get(place)
        if opening is None:
            opening = self._opening[place] = asyncio.ensure_future(self._open_lane(place))
        # one caller that gives up must not spoil it for the others
        return await asyncio.shield(opening)

    async def _open_lane(self, place: Place) -> Lane:
        loop, address = place
        try:
            open_one = self._lanes.get(place)
            if open_one is not None and not open_one.closed:
                return await self._ask_again(open_one)
            # a copy: other loops come and go in their own threads
            for known, old in list(self._lanes.items()):
                if known[0].is_closed() and self._lanes.pop(known, None) is not None:
                    old.close()
            lane = self._lanes[place] = Lane(
                loop, await loop.run_in_executor(None, self._open, address)
            )
            return lane
        finally:
            self._opening.pop(place, None)

    async def _ask_again(self, lane: Lane) -> Lane:
        try:
            await lane.ask_again()
            self._accept(lane.connection)
        except StoreUnavailable as error:
            lane.close(error)
            raise
        return lane


def _close(loop: asyncio.AbstractEventLoop, lane: Lane) -> None:
    """A running loop closes its connection in its own thread."""
    if loop.is_running():
        loop.call_soon_threadsafe(lane.close)
    else:
        lane.close()


# ---------------------------------------------------------------- fork

_STORES: weakref.WeakSet[RedisStore] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _after_fork() -> None:
    """Give the child its own connections. Closing the parent's would stop its loop's watch."""
    for store in _STORES:
        # the same module's
        _INHERITED.append((store._pools, store._lanes, store._opening))  # noqa: SLF001
        store._start()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)
