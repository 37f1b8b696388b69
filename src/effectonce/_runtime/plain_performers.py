"""What runs the flow of a call that has no record: retries, breakers and budgets without a tool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from effectonce._core.ops import Invoke, Ok, Op, Raised, Sleep, Unavailable
from effectonce.errors import StoreUnavailable
from effectonce.stores.base import Store


class Plain:
    """Performs ops for one sync call that has no record. *store*, if any, keeps the budgets."""

    __slots__ = ("call", "store")

    def __init__(self, store: Store | None, call: Callable[[], Any] | None = None) -> None:
        self.store, self.call = store, call

    def __call__(self, op: Op[Any]) -> Any:
        try:
            match op:
                case Invoke():
                    assert self.call is not None
                    return Ok(self.call())
                case Sleep(seconds):
                    return time.sleep(seconds)
                case _:
                    return _NO_STORE if self.store is None else self.store.apply(op)
        except BaseException as error:  # noqa: BLE001  # whatever the function raises is its answer
            return _answered(op, error)


_NO_STORE = Unavailable(StoreUnavailable("there is no store to share it through"))


def _answered(op: Op[Any], error: BaseException) -> Raised | Unavailable:
    """What an error says to a flow that can do without a store."""
    if isinstance(op, Invoke):
        return Raised(error)
    if isinstance(error, StoreUnavailable):
        return Unavailable(error)
    raise error


class AsyncPlain:
    """The same for async tools. A cancellation passes at once: there is nothing to write down."""

    __slots__ = ("call", "store")
    cancelled: ClassVar[None] = None

    def __init__(
        self, store: Store | None, call: Callable[[], Awaitable[Any]] | None = None
    ) -> None:
        self.store, self.call = store, call

    async def __call__(self, op: Op[Any]) -> Any:
        try:
            match op:
                case Invoke():
                    assert self.call is not None
                    return Ok(await self.call())
                case Sleep(seconds):
                    return await asyncio.sleep(seconds)
                case _:
                    return _NO_STORE if self.store is None else await self.store.aapply(op)
        except BaseException as error:  # noqa: BLE001
            # whatever the function raises is its answer, cancellation included
            return _answered(op, error)
