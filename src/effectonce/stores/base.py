"""What a store is: one method in each colour, and what it can promise."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from effectonce._core.ops import Applied, Complete, Op, Recorded, Refused, Request

R = TypeVar("R")


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a store can promise. Declared, not guessed: the conformance suite holds a store to it."""

    durable: bool  # an acknowledged write survives the death of every process and of the machine
    transactions: bool  # a tool's own writes can commit together with its record


class Store(Protocol):
    """Applies one op atomically and replies. Raises `StoreUnavailable` when it cannot say."""

    @property
    def capabilities(self) -> Capabilities: ...

    def apply(self, op: Op[R], /) -> R: ...

    async def aapply(self, op: Op[R], /) -> R: ...

    def close(self) -> None: ...


@runtime_checkable
class LocalStore(Protocol):
    """A store that is read without a round trip: a call that was made before looks for its outcome first, and claims nothing."""

    def look(self, request: Request, /) -> Recorded | None:
        """The known outcome of exactly this request. Never waits; None says nothing, not even that there is none."""


class Transaction(Protocol):
    """An open transaction: the connection for the tool, and the record's write in the same COMMIT.

    `complete` replies `Applied` only if it changed the record. A record that is done already was done by somebody else, or by an older run
    whose COMMIT was not answered: then this run's writes must not stay.
    """

    connection: Any

    def complete(self, op: Complete, /) -> Applied | Refused: ...

    def commit(self) -> None: ...


class AsyncTransaction(Protocol):
    """The same in the other colour."""

    connection: Any

    async def complete(self, op: Complete, /) -> Applied | Refused: ...

    async def commit(self) -> None: ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store whose `capabilities.transactions` is true. Leaving the block without `commit()` rolls back."""

    def transaction(self) -> AbstractContextManager[Transaction]: ...

    def atransaction(self) -> AbstractAsyncContextManager[AsyncTransaction]: ...
