"""Anthropic's tool runner: the tools that it runs land once.

    asked = {"model": ..., "max_tokens": ..., "messages": [...], "tools": [refund]}
    runner = protect(client, guard, conversation="chat-42", **asked)
    message = runner.until_done()

It is `client.beta.messages.tool_runner(...)`, for sync and async clients, with tools of which
each knows its place. What the model was shown are the messages of the last request, so history
that is to count is among *messages*. A tool use that is answered twice, as happens with
`generate_tool_call_response()` and `append_messages()`, is one effect.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

try:
    from anthropic import Anthropic, AsyncAnthropic
    from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool, ToolError
    from pydantic import ValidationError
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.anthropic_runner needs the SDK: pip install"
        " 'effectonce[anthropic]'"
    ) from missing

from effectonce._runtime.step import Delivered
from effectonce._tools.tool import GuardedTool
from effectonce.errors import EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    AgentCall,
    AgentTools,
    ReportedError,
    ToolAnswer,
    ToolRun,
    error_text,
    text_of,
)
from effectonce.integrations._contracts import ToolOptions


def protect(
    client: Anthropic | AsyncAnthropic,
    guard: Guard,
    *,
    conversation: str,
    tools: Iterable[Any],
    tenant: str | None = None,
    contracts: Mapping[str, ToolOptions] | None = None,
    default: ToolOptions | None = None,
    **params: Any,
) -> Any:
    """The runner of *client* with tools that land once. *params* are its own.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already (`@beta_tool` above `@guard.tool`) need
    none. Tools that run elsewhere are left as they are.
    """
    once = _RunnerTools(AgentTools(guard, contracts, default), conversation, tenant)
    once.runner = client.beta.messages.tool_runner(
        tools=[once.around(tool) for tool in tools], **params
    )
    return once.runner


class _RunnerTools:
    runner: Any

    def __init__(self, box: AgentTools, conversation: str, tenant: str | None) -> None:
        self._box, self._conversation, self._tenant = box, conversation, tenant

    def around(self, tool: Any) -> Any:
        if not isinstance(tool, BetaFunctionTool | BetaAsyncFunctionTool):
            return tool
        guarded = self._box.mine(tool.func)
        if guarded is None and self._box.passes(tool.name):
            return tool
        protected = copy.copy(tool)
        calling = self._acalling if isinstance(tool, BetaAsyncFunctionTool) else self._calling
        vars(protected)["call"] = calling(tool, guarded)
        return protected

    def _calling(self, tool: Any, guarded: GuardedTool | None) -> Callable[[object], Any]:
        def call(given: object) -> Any:
            try:
                asked = self._call(tool, given)
                if guarded is not None:
                    with self._box.within(guarded, asked):
                        return tool.call(given)
                leg = ToolRun(lambda: _run(tool, given), _same)
                return _shown(self._box.run(asked, leg))
            except ReportedError as error:
                raise error.result from None
            except EffectOnceError as error:
                raise _as_tool_error(error) from error

        return call

    def _acalling(self, tool: Any, guarded: GuardedTool | None) -> Callable[[object], Any]:
        async def call(given: object) -> Any:
            try:
                asked = self._call(tool, given)
                if guarded is not None:
                    async with await self._box.awithin(guarded, asked):
                        return await tool.call(given)
                leg = ToolRun(lambda: _arun(tool, given), _same)
                return _shown(await self._box.arun(asked, leg))
            except ReportedError as error:
                raise error.result from None
            except EffectOnceError as error:
                raise _as_tool_error(error) from error

        return call

    def _call(self, tool: Any, given: object) -> AgentCall:
        # what the last request went out with: nothing public says it
        sent: Sequence[Any] = self.runner._sent_messages  # noqa: SLF001
        return AgentCall(
            tool=tool.name,
            arguments=given if isinstance(given, Mapping) else {},
            scope=self._conversation,
            tenant=self._tenant,
            shown=tuple(delivered(sent)),
            schema=tool.input_schema,
        )


def _run(tool: Any, given: object) -> Any:
    with _refused_as_unfit(tool):
        return tool.call(given)


async def _arun(tool: Any, given: object) -> Any:
    with _refused_as_unfit(tool):
        return await tool.call(given)


@contextmanager
def _refused_as_unfit(tool: Any) -> Iterator[None]:
    """The SDK refuses arguments without a run. An error from inside the tool is the tool's own."""
    try:
        yield
    except ValueError as error:
        names, cause = (tool.func.__name__, tool.func.__qualname__), error.__cause__
        if not isinstance(cause, ValidationError) or cause.title not in names:
            raise
        raise ReportedError(error, str(error), ran=False) from error


def _same(result: Any) -> Any:
    return result


def _shown(answer: ToolAnswer) -> Any:
    """What goes into a message: text and blocks. What a probe or a person gave may be anything."""
    recorded = answer.recorded
    blocks = isinstance(recorded, list) and all(
        isinstance(block, Mapping) and "type" in block for block in recorded
    )
    return recorded if answer.fresh or blocks else text_of(recorded)


def _as_tool_error(error: EffectOnceError) -> ToolError:
    return ToolError([{"type": "text", "text": error_text(error)}])


def delivered(messages: Iterable[Any]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the message before."""
    asked: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for message in messages:
        content = _field(message, "content")
        if not isinstance(content, Iterable) or isinstance(content, str):
            continue
        for block in content:
            if _field(block, "type") == "tool_use":
                asked[_field(block, "id")] = (_field(block, "name"), _field(block, "input"))
            elif _field(block, "type") == "tool_result" and not _field(block, "is_error"):
                known = asked.get(_field(block, "tool_use_id"))
                if known is not None:
                    yield Delivered(*known)


def _field(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)
