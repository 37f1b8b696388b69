"""A circuit around a function, as a decorator: sync or async, with a fallback or without."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Protocol, cast

from effectonce._runtime.signature import is_async
from effectonce.errors import CircuitOpen
from effectonce.retries.permit import WELL, Permit, SharedPermit


class Guarding(Protocol):
    """What the decorator needs of a circuit."""

    _measures: bool
    _clock: Callable[[], float]
    _shared_permit: SharedPermit | None

    def _ask(self) -> Permit | CircuitOpen: ...

    def _settle(self, permit: Permit | SharedPermit, ended: object, started_at: float) -> None: ...


def guarded(
    circuit: Guarding, function: Callable[..., Any], fallback: Callable[..., Any] | None
) -> Callable[..., Any]:
    asynchronous = is_async(function)
    if fallback is not None and is_async(fallback) is not asynchronous:
        raise TypeError(
            f"{_named(function)} and its fallback {_named(fallback)}: both must be def, or both"
            " async def"
        )
    around = _around_async if asynchronous else _around
    wrapper = around(circuit, function, fallback)
    cast(Any, wrapper).circuit = circuit
    return wrapper


def _around(
    circuit: Guarding, function: Callable[..., Any], fallback: Callable[..., Any] | None
) -> Callable[..., Any]:
    measures, clock, settle = circuit._measures, circuit._clock, circuit._settle

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        started_at = clock() if measures else 0.0
        permit: Permit | SharedPermit | None = circuit._shared_permit
        if permit is None:
            asked = circuit._ask()
            if isinstance(asked, CircuitOpen):
                if fallback is None:
                    raise asked
                return fallback(asked, *args, **kwargs)
            permit = asked
        try:
            value = function(*args, **kwargs)
            if type(value) is CoroutineType:
                value.close()
                raise TypeError(
                    f"{_named(function)} returned a coroutine, so its outcome would not be"
                    " seen; guard the async def"
                )
        except BaseException as error:  # the function's own: it is judged, and raised as it is
            settle(permit, error, started_at)
            raise
        if measures:
            settle(permit, WELL, started_at)
        else:
            permit.succeeded()
        return value

    return call


def _around_async(
    circuit: Guarding, function: Callable[..., Any], fallback: Callable[..., Any] | None
) -> Callable[..., Any]:
    measures, clock, settle = circuit._measures, circuit._clock, circuit._settle

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        started_at = clock() if measures else 0.0
        permit: Permit | SharedPermit | None = circuit._shared_permit
        if permit is None:
            asked = circuit._ask()
            if isinstance(asked, CircuitOpen):
                if fallback is None:
                    raise asked
                return await fallback(asked, *args, **kwargs)
            permit = asked
        try:
            value = await function(*args, **kwargs)
        except BaseException as error:  # the function's own, cancellation included
            settle(permit, error, started_at)
            raise
        if measures:
            settle(permit, WELL, started_at)
        else:
            permit.succeeded()
        return value

    return call


def _named(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))
