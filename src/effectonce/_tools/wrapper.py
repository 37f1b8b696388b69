"""The function that a user gets back for a tool: sync around sync, async around async."""

from __future__ import annotations

import functools
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable
from typing import Any, cast

from effectonce._core.guarantees import Kind
from effectonce._runtime.unawaited import WRAPPERS
from effectonce._tools.context import Tool
from effectonce._tools.error_text import brief
from effectonce._tools.tool import GuardedTool
from effectonce._tools.undo import UndoDecorator, UndoHost
from effectonce.errors import EffectOnceError
from effectonce.outcome import value_of
from effectonce.retries.retry import Retrier


def wrap(tool: GuardedTool, host: UndoHost | None = None) -> Tool[..., Any]:
    """The function that the user gets back. *host* makes a tool of its undo."""
    recorded = tool.contract.kind is not Kind.READ or tool.contract.dedup is not None
    wrapper = (
        _reader(tool)
        if not recorded
        else _async_wrapper(tool)
        if tool.is_async
        else _sync_wrapper(tool)
    )
    functools.update_wrapper(wrapper, tool.function)
    named = cast(Any, wrapper)
    named.contract, named.probe, named.fallback, named.explain = (
        tool.contract,
        tool.probe,
        tool.fallback,
        tool.explain,
    )
    named.undo, named.__effectonce_tool__ = UndoDecorator(tool, host), tool
    return cast("Tool[..., Any]", wrapper)


def _sync_wrapper(tool: GuardedTool) -> Callable[..., Any]:
    returns = tool.signature.returns

    def call(*args: Any, **kwargs: Any) -> Any:
        if _get_running_loop() is not None:
            tool.warn_of_loop()
        try:
            prepared = tool.prepare(args, kwargs)
            return value_of(tool.run(prepared), prepared.ref, returns)
        except EffectOnceError as error:
            return tool.rescue(brief(error, tool.house.where), args, kwargs)

    return call


def _async_wrapper(tool: GuardedTool) -> Callable[..., Awaitable[Any]]:
    returns = tool.signature.returns

    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            prepared = tool.prepare(args, kwargs)
            return value_of(await tool.arun(prepared), prepared.ref, returns)
        except EffectOnceError as error:
            return await tool.arescue(brief(error, tool.house.where), args, kwargs)

    WRAPPERS.add(call.__code__)
    return call


def _reader(tool: GuardedTool) -> Callable[..., Any]:
    """A read has no record: it is the function itself, and the policy when it fails."""
    read = Retrier(
        tool.retrying,
        repeatable=True,
        store=tool.house.store,
        name=tool.contract.name,
        env=tool.house.env,
    )
    if tool.house.watch.observers:
        from effectonce._tools.instrument import watched_aread, watched_read

        return (watched_aread if tool.is_async else watched_read)(tool, read)
    return (
        read.around_async(tool.function, tool.arescue)
        if tool.is_async
        else read.around(tool.function, tool.rescue)
    )
