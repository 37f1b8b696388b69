"""What a store is: one method in each colour, and what it can promise."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from effectonce._core.ops import Op

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


class Transaction(Protocol):
    """An open transaction: the connection for the tool, and the record's write in the same COMMIT."""

    connection: Any

    def apply(self, op: Op[R], /) -> R: ...

    def commit(self) -> None: ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store whose `capabilities.transactions` is true. Leaving the block without `commit()` rolls back."""

    def transaction(self) -> AbstractContextManager[Transaction]: ...

    def atransaction(self) -> AbstractAsyncContextManager[Transaction]: ...
