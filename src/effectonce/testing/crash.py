"""Die at a named point, for real: SIGKILL or SIGSTOP of the own process, at the worst moment.

    store = CrashingStore(SqliteStore("effects.db"), at="claimed")
    guard = Guard(store)          # this process dies right after its first claim was written

Run it in a process of its own, start another one without a crash point, and count what happened
downstream.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from effectonce._core.ops import Applied, Claim, Complete, Dispatch, Held, Op, Refused, Together
from effectonce.stores.base import (
    AsyncTransaction,
    Capabilities,
    Store,
    Transaction,
    TransactionalStore,
)

R = TypeVar("R")

# In the order in which a call passes them. The store reaches most of them, the tool itself two.
TOOL_POINTS = ("in flight", "effect done")
POINTS = (
    "before the claim", "claimed", "dispatched", *TOOL_POINTS, "before the commit", "completed",
)  # fmt: skip


def die(how: signal.Signals = signal.SIGKILL) -> None:
    """Kill or stop this very process, now."""
    os.kill(os.getpid(), how)


class CrashingStore:
    """A store whose process dies when a call reaches the named point."""

    def __init__(self, store: Store, *, at: str, how: signal.Signals = signal.SIGKILL) -> None:
        if at not in POINTS:
            raise ValueError(f"{at!r} is not a crash point; choose one of {', '.join(POINTS)}")
        self._store, self._at, self._how = store, at, how

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def apply(self, op: Op[R], /) -> R:
        self._before(op)
        reply = self._store.apply(op)
        self._after(op, reply)
        return reply

    async def aapply(self, op: Op[R], /) -> R:
        self._before(op)
        reply = await self._store.aapply(op)
        self._after(op, reply)
        return reply

    def close(self) -> None:
        self._store.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        assert isinstance(self._store, TransactionalStore)
        with self._store.transaction() as transaction:
            yield _CrashingTransaction(transaction, self)

    @contextlib.asynccontextmanager
    async def atransaction(self) -> AsyncIterator[AsyncTransaction]:
        assert isinstance(self._store, TransactionalStore)
        async with self._store.atransaction() as transaction:
            yield _AsyncCrashingTransaction(transaction, self)

    def reached(self, point: str) -> None:
        """Die, if this is the point."""
        if point == self._at:
            die(self._how)

    def _before(self, op: Op[Any]) -> None:
        ops = op.ops if isinstance(op, Together) else (op,)
        if any(isinstance(each, Claim) for each in ops):
            self.reached("before the claim")

    def _after(self, op: Op[Any], reply: Any) -> None:
        match op, reply:
            case Together(several), _:
                for each, its in zip(several, reply, strict=True):
                    self._after(each, its)
            case Claim(), Held():
                self.reached("claimed")
            case Dispatch(), Applied():
                self.reached("dispatched")
            case Complete(), Applied():
                self.reached("completed")
            case _:
                pass


class _CrashingTransaction:
    def __init__(self, transaction: Transaction, store: CrashingStore) -> None:
        self._transaction, self._store = transaction, store
        self.connection, self.exclusive = transaction.connection, transaction.exclusive

    @property
    def broken(self) -> bool:
        return self._transaction.broken

    def complete(self, op: Complete, /) -> Applied | Refused:
        return self._transaction.complete(op)

    def commit(self) -> None:
        self._store.reached("before the commit")
        self._transaction.commit()
        self._store.reached("completed")


class _AsyncCrashingTransaction:
    def __init__(self, transaction: AsyncTransaction, store: CrashingStore) -> None:
        self._transaction, self._store = transaction, store
        self.connection, self.exclusive = transaction.connection, transaction.exclusive

    @property
    def broken(self) -> bool:
        return self._transaction.broken

    async def complete(self, op: Complete, /) -> Applied | Refused:
        return await self._transaction.complete(op)

    async def commit(self) -> None:
        self._store.reached("before the commit")
        await self._transaction.commit()
        self._store.reached("completed")
