"""Restate: `Service("refunds", invocation_context_managers=[EffectOnce(guard)])`, and guarded
tools in its handlers have one effect.

Theory of operation. Restate writes a `ctx.run` down after it ran, so a crash in between runs it
again: then it must have the same place. The scope is the invocation. Its id stays the same
through retries, kills and resumptions, and Restate makes it from the idempotency key or from the
key of a workflow, where there is one: sent again, also after Restate has forgotten it, it is the
same. An invocation that is restarted as new has another id, and the headers of the first one:
`effectonce-scope` among them names the scope.

The place in it is counted by what is asked for, see `_occurrence.py`, and where the handler asks
for it, not where it is run: a run that is in the journal is not run again. A guarded tool that
is called without a run is a step of its handler.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

try:
    from restate import Context, RestateDurableFuture, RunOptions, TerminalError
    from restate.exceptions import RetryableError
    from restate.extensions import current_context
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.restate needs the SDK: pip install 'effectonce[restate]'"
    ) from missing

from effectonce import EffectOnceError, Guard, Stable
from effectonce._runtime.step import Step, flagged
from effectonce.integrations._occurrence import Occurrences, asked_for, retriable, run_within

HEADER = "effectonce-scope"
Of = Callable[[Context], str]


def EffectOnce(
    guard: Guard, *, tenant: Of | None = None
) -> Callable[[], AbstractAsyncContextManager[None]]:
    """For `invocation_context_managers` of a service, a virtual object, a workflow or a handler.
    *tenant* is a function of the context.

    What may go better is retried by Restate, after `retry_after_s` if the error says so. What is
    in doubt, or failed for good, is a `TerminalError`, whose metadata is what a model may see of
    it: `code`, `retriable`, `corrective_action`, `operation`.
    """

    @asynccontextmanager
    async def entered() -> AsyncIterator[None]:
        context = current_context()
        runs = _Runs(guard, context, None if tenant is None else tenant(context))
        vars(context).update(run=runs.run, run_typed=runs.run_typed)  # this invocation's alone
        with _as_restate_errors(), runs.step("handler"):
            yield

    return entered


class _Runs:
    """The runs of one attempt of an invocation, each at its place."""

    def __init__(self, guard: Guard, context: Any, tenant: str | None) -> None:
        self._guard, self._tenant, self._places = guard, tenant, Occurrences()
        self._run, self._run_typed = context.run, context.run_typed
        request, handler = context.request(), context.handler
        given = request.headers.get(HEADER)
        self._scope = Stable(flagged(given, "the scope in the header") if given else request.id)
        self._handler = f"{handler.service_tag.name}/{handler.name}"

    def step(self, at: str) -> Step:
        whose = None if self._tenant is None else Stable(flagged(self._tenant, "tenant"))
        return self._guard.step(
            self._scope, Stable(f"{self._handler}/{at}"), tenant=whose, latch=False
        )

    def run(
        self,
        name: str,
        action: Callable[..., Any],
        *options: Any,
        args: tuple[Any, ...] | None = None,
        **more: Any,
    ) -> RestateDurableFuture[Any]:
        asked = asked_for(args or (), {})
        place = self._places.take(name, asked)
        placed = self._at(f"{name}#{place}", action)
        durable = self._run(name, placed, *options, args=args, **more)
        return self._giving_back(durable, name, asked, place)

    def run_typed(
        self,
        name: str,
        action: Callable[..., Any],
        options: RunOptions[Any] | None = None,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> RestateDurableFuture[Any]:
        asked = asked_for(args, kwargs)
        place = self._places.take(name, asked)
        options = RunOptions() if options is None else options
        placed = self._at(f"{name}#{place}", action)
        durable = self._run_typed(name, placed, options, *args, **kwargs)
        return self._giving_back(durable, name, asked, place)

    def _at(self, at: str, action: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def around(*_args: Any, **_kwargs: Any) -> Iterator[None]:
            with _as_restate_errors(), self.step(at):
                yield

        return run_within(action, around)

    def _giving_back(
        self, durable: Any, name: str, asked: bytes, place: int
    ) -> RestateDurableFuture[Any]:
        """Its place, when the handler sees the failure: the same moment on every run of it."""
        fetched = durable.future.async_def

        async def fetch() -> Any:
            try:
                return await fetched()
            except TerminalError:
                self._places.give_back(name, asked, place)
                raise

        durable.future.async_def = fetch
        return durable


class _as_restate_errors:  # noqa: N801  # used like a function
    """Our errors leave as Restate's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Restate's own
        if not isinstance(error, Exception) or isinstance(error, TerminalError | RetryableError):
            return
        if not retriable(error):
            # 409: a client that sees a server's error would send it again
            raise TerminalError(str(error), status_code=409, metadata=_metadata(error)) from error
        if isinstance(error, EffectOnceError) and error.retry_after_s is not None:
            after = timedelta(seconds=error.retry_after_s)
            raise RetryableError(str(error), retry_after=after) from error


def _metadata(error: Exception) -> dict[str, str]:
    if not isinstance(error, EffectOnceError):
        return {"code": type(error).__name__, "retriable": "false"}
    reported = error.as_model_error()
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in reported.items()
        if name != "message"
    }
