"""DBOS: whatever is recovered, resumed or forked, a step's guarded tools have one effect.

    once = EffectOnce(guard)

    @once.step()          # as @DBOS.step()
    @once.workflow()      # as @DBOS.workflow()

Theory of operation. A DBOS step is checkpointed after it ran, so a crash in between runs it
again: then it must have the same place. The scope is the workflow id; a fork has another one,
and is traced back to the workflow that it was forked from, as a child is to its parent. The
place in it is counted by what is asked for, see `_occurrence.py`: step ids move when code before
them changes, and a step that is called again after a failure has a new one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, cast

from effectonce import ContractViolation, Guard, Stable
from effectonce._drivers import adrive, drive
from effectonce._runtime.signature import is_async
from effectonce.integrations._occurrence import Occurrences, asked_for, retriable, run_within

try:
    from dbos import DBOS, WorkflowStatus
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.dbos needs dbos: pip install 'effectonce[dbos]'"
    ) from missing

P = ParamSpec("P")
R = TypeVar("R")
_places: ContextVar[Occurrences | None] = ContextVar("effectonce_dbos_places", default=None)
_at: ContextVar[str | None] = ContextVar("effectonce_dbos_at", default=None)


class EffectOnce:
    """Decorators that stand where DBOS's stood, and take the same options."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def workflow(self, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A workflow whose steps have a place."""

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            counting = run_within(function, lambda *_args, **_kwargs: _counting())
            return cast("Callable[P, R]", DBOS.workflow(**options)(counting))

        return decorate

    def step(self, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A step whose guarded tools have one effect. With `retries_allowed`, what cannot go
        better is not retried.
        """
        options.setdefault("should_retry", retriable)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            entering = self._aentering if is_async(function) else self._entering
            step = DBOS.step(**options)(entering(function))
            return run_within(step, functools.partial(_placed, step.__qualname__))

        return decorate

    def _entering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            at, workflow_id = _at.get(), DBOS.workflow_id
            if at is None or workflow_id is None:
                return function(*args, **kwargs)
            scope = drive(_scope(workflow_id), DBOS.get_workflow_status)
            with self.guard.step(Stable(scope), Stable(at), latch=False):
                return function(*args, **kwargs)

        return run

    def _aentering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            at, workflow_id = _at.get(), DBOS.workflow_id
            if at is None or workflow_id is None:
                return await function(*args, **kwargs)
            scope = await adrive(_scope(workflow_id), DBOS.get_workflow_status_async)
            with self.guard.step(Stable(scope), Stable(at), latch=False):
                return await function(*args, **kwargs)

        return run


def _scope(workflow_id: str) -> Generator[str, WorkflowStatus | None, str]:
    """The workflow that it goes back to, and the places on the way. Asks for their status."""
    scope = ""
    while (status := (yield workflow_id)) is not None:
        parent = status.parent_workflow_id
        if status.forked_from is not None:
            workflow_id = status.forked_from
        # as DBOS names a child: its parent, and the place in it
        elif parent is not None and workflow_id.startswith(f"{parent}-"):
            workflow_id, scope = parent, workflow_id.removeprefix(parent) + scope
        else:
            break
    return workflow_id + scope


@contextmanager
def _counting() -> Iterator[None]:
    """Each run of a workflow counts its places, from the first."""
    token = _places.set(Occurrences())
    try:
        yield
    finally:
        _places.reset(token)


@contextmanager
def _placed(name: str, /, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A step of a workflow has a place, which it gives back if it fails. One in a step is part
    of it.
    """
    places = _places.get()
    if DBOS.step_id is not None or (places is None and DBOS.workflow_id is None):
        yield
        return
    if places is None:
        raise ContractViolation(
            f"{name} was called in a workflow that does not count its places. Nothing was sent."
            " Declare the workflow with EffectOnce(guard).workflow() instead of DBOS.workflow()."
        )
    asked = asked_for(args, kwargs)
    place = places.take(name, asked)
    token = _at.set(f"{name}#{place}")
    try:
        yield
    except BaseException:
        places.give_back(name, asked, place)
        raise
    finally:
        _at.reset(token)
