"""Which of several equal requests is this? The place of a call in a workflow, without the ids
that an engine makes.

An engine numbers what it starts, run by run. Those numbers move when code before them changes,
and start anew in another run. So a place is counted here by what is asked for: it is the
smallest number that no equal request holds, of those that are under way or have succeeded. Asked
for again after a failure, it is the same place: a retry. Asked for again after a success, or
beside one that is under way, it is another: a wish.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from effectonce._core.canonical import NotCanonical, canonical
from effectonce._runtime.signature import is_async
from effectonce.errors import EffectOnceError


class Occurrences:
    """The places of one run of a workflow."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bytes], set[int]] = {}

    def take(self, name: str, asked: bytes) -> int:
        """The first free place of this request."""
        held = self._held.setdefault((name, asked), set())
        place = next(number for number in range(len(held) + 1) if number not in held)
        held.add(place)
        return place

    def give_back(self, name: str, asked: bytes, place: int) -> None:
        """It failed: a caller that asks again means the same effect."""
        self._held[name, asked].discard(place)


def asked_for(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """What is asked for, as bytes. Arguments that have no canonical form all count as one."""
    try:
        return canonical([list(args), dict(kwargs)])
    except NotCanonical:
        return b""


def run_within(
    function: Callable[..., Any], around: Callable[..., AbstractContextManager[Any]]
) -> Callable[..., Any]:
    """*function*, sync or async as it is, in a `with` of what *around* makes of its arguments."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with around(*args, **kwargs):
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        with around(*args, **kwargs):
            return await function(*args, **kwargs)

    return arun if is_async(function) else run


def retriable(error: BaseException) -> bool:
    """May an engine rerun the step? Not if the effect is in doubt or failed for good."""
    return error.retriable if isinstance(error, EffectOnceError) else not is_known(error)


def is_known(error: BaseException) -> bool:
    """Is it a guarded tool's own error? It is certain, and the policy saw no use in a retry."""
    return getattr(error, "effectonce_of", None) is not None
