"""One run of a tool, whatever a framework lets stand between the tool and us.

Middleware further in may ask for the tool again, at the same time even, and may make a result of
its error. So a caller that asks once more gets the result of the one run; and where it failed,
its error is judged, whatever was made of that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import MethodType
from typing import Any, Self

from effectonce.errors import EffectOnceError

_under_way: ContextVar[SingleRun | None] = ContextVar("effectonce_one_run", default=None)


class CutOff(TimeoutError):
    """A layer in between stopped the run, which may have had its effect."""


Ran = Callable[[BaseException], bool]  # did the tool raise it, or was it refused before?


class SingleRun:
    """A run that is made once. *of* is what is run."""

    def __init__(self, of: object = None) -> None:
        self.of = of
        self._one, self._aone = threading.Lock(), asyncio.Lock()
        self.anew()

    def anew(self) -> None:
        """The next attempt of ours is a run of its own."""
        self._going = self._ended = False
        self._result = self._made_of_it = None
        self.error: Exception | None = None

    # ------------------------------------------------------------ from outside

    def ask(self, proceed: Callable[[], Any]) -> Any:
        """Ask for it through those between: what they make of it, unless it failed."""
        self.anew()
        with self:
            self._made_of_it = proceed()
        return self._judged()

    async def aask(self, proceed: Callable[[], Awaitable[Any]]) -> Any:
        self.anew()
        with self:
            self._made_of_it = await proceed()
        return self._judged()

    def _judged(self) -> Any:
        if self.error is None and self._going:
            self.error = CutOff("no caller waits for its run, which goes on")
        if self.error is not None:
            raise self.error
        return self._made_of_it

    def instead_of(self, error: BaseException) -> Any:
        """What those between say about an error that is definite; None: nothing."""
        return self._made_of_it if error is self.error else None

    def __enter__(self) -> Self:
        self._before = _under_way.set(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _under_way.reset(self._before)

    # ------------------------------------------------------------ from inside

    def run(self, tool: Callable[[], Any], *, ran: Ran = lambda _: True) -> Any:
        with self._one:
            if not self._ended:
                with _Ending(self, ran):
                    self._result = tool()
        return self._known()

    async def arun(self, tool: Callable[[], Awaitable[Any]], *, ran: Ran = lambda _: True) -> Any:
        async with self._aone:
            if not self._ended:
                with _Ending(self, ran):
                    self._result = await tool()
        return self._known()

    def begins(self) -> None:
        self._going = True

    def ends(self, error: BaseException | None, ran: Ran) -> None:
        self._going = False
        self._ended = error is None or ran(error)
        if error is not None and self._ended:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        self.error = error if isinstance(error, Exception) else CutOff("its run was cut off")

    def _known(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._result


class Guarded(SingleRun):
    """`with`: a run of an already guarded tool. It was judged: only our own errors override it."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(self.error, EffectOnceError) and error is not self.error:
            raise self.error


class _Ending:
    """`with`: the one run. What it calls is no part of it, if that is a tool, too."""

    def __init__(self, run: SingleRun, ran: Ran) -> None:
        self._run, self._ran = run, ran

    def __enter__(self) -> None:
        self._before = _under_way.set(None)
        self._run.begins()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _under_way.reset(self._before)
        self._run.ends(error, self._ran)


def under_way(of: object) -> SingleRun | None:
    """The run of it that is asked for here, if it is one of ours."""
    run = _under_way.get()
    return run if run is not None and run.of == of else None


def stand_around(
    thing: Any,
    method: str,
    *,
    ran: Ran = lambda _: True,
    where: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> None:
    """From now on, a framework's direct call of *method* of *thing* is one run, if it is ours."""
    known = getattr(getattr(thing, method), "__effectonce__", None)
    if known is thing:
        return
    # Of a copy of something that we stood around, the method is still that of the first.
    bare = getattr(thing, method)
    if known is not None:
        bare = MethodType(getattr(type(thing), method), thing)

    async def around(*args: Any, **kwargs: Any) -> Any:
        run = under_way(thing) if where(kwargs) else None
        if run is None:
            return await bare(*args, **kwargs)
        return await run.arun(lambda: bare(*args, **kwargs), ran=ran)

    around.__effectonce__ = thing  # type: ignore[attr-defined]
    vars(thing)[method] = around
