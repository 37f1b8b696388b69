"""AutoGen: `agent = protect(agent, guard, scope="chat-42")`, and the tools of an
`AssistantAgent` land once.

AutoGen has no name for a conversation, so *scope* is yours: whatever the state of the agent is
saved under. What the model was shown are the messages of the agent's own context, which
`save_state` keeps. Ids of calls are not looked at.

A tool of the agent is judged by its own error, before a workbench makes a text of it. The tools
of any other workbench, of an MCP server above all, report errors as results only: what was done
is then unknown, and the model is shown that.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any

try:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.tools import AgentTool, TeamTool
    from autogen_core import CancellationToken, FunctionCall
    from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage
    from autogen_core.tools import (
        FunctionTool,
        StaticWorkbench,
        StreamTool,
        TextResultContent,
        Tool,
        ToolResult,
        ToolSchema,
        Workbench,
    )
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.autogen needs AutoGen: pip install 'effectonce[autogen]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered, named
from effectonce.errors import EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    AgentCall,
    AgentTools,
    CallAgain,
    ReportedError,
    ToolRun,
    error_text,
    text_of,
)
from effectonce.integrations._contracts import ToolOptions


def protect(
    agent: AssistantAgent,
    guard: Guard,
    *,
    scope: str | Stable,
    tenant: str | None = None,
    contracts: Mapping[str, ToolOptions] | None = None,
    default: ToolOptions | None = None,
) -> AssistantAgent:
    """A copy of *agent* whose tools land once. It shares the context of the model with *agent*,
    so use one of them.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already need none. Agents and teams that are used
    as tools are no effects: protect those agents.
    """
    once = _AgentTools(
        AgentTools(guard, contracts, default), Stable(named(scope, "scope")), tenant, agent
    )
    protected = copy.copy(agent)
    # nothing public takes it later on
    protected._workbench = [once.around(bench) for bench in agent._workbench]  # noqa: SLF001
    return protected


class _ErrorForModel(Exception):
    """An error as the model reads it: a workbench makes a result of its text."""


class _AgentTools:
    def __init__(
        self, box: AgentTools, scope: Stable, tenant: str | None, agent: AssistantAgent
    ) -> None:
        self.box, self._scope, self._tenant, self._context = box, scope, tenant, agent.model_context

    def around(self, bench: Workbench) -> Workbench:
        if not isinstance(bench, StaticWorkbench):
            return _Bench(bench, self)
        protected = copy.copy(bench)
        shown_as = {of: name for name, of in bench._override_name_to_original.items()}  # noqa: SLF001
        protected._tools = [  # noqa: SLF001
            self._tool(tool, shown_as.get(tool.name, tool.name))
            for tool in bench._tools  # noqa: SLF001
        ]
        return protected

    async def call(
        self, name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any], shown_as: str
    ) -> AgentCall:
        """*shown_as* is the tool's name in the history: a workbench may give it another one."""
        known = delivered(await self._context.get_messages())
        return AgentCall(
            tool=name,
            arguments=arguments,
            scope=self._scope,
            tenant=self._tenant,
            shown=tuple(Delivered(name, each.arguments) for each in known if each.tool == shown_as),
            schema=schema,
        )

    def _tool(self, tool: Tool, shown_as: str) -> Tool:
        guarded = self.box.mine(getattr(tool, "_func", None))
        passes = isinstance(tool, AgentTool | TeamTool)
        if passes or (guarded is None and self.box.passes(tool.name)):
            return tool

        async def run(
            args: Mapping[str, Any], token: CancellationToken, call_id: str | None, seen: list[Any]
        ) -> Any:
            # what does not fit is reported as ever, and nothing was done
            tool.args_type().model_validate(args)
            proceed = functools.partial(_proceed, tool, args, token, call_id, seen)
            try:
                call = await self.call(tool.name, args, _parameters(tool.schema), shown_as)
                if guarded is not None:
                    async with await self.box.awithin(guarded, call):
                        return await proceed()
                answer = await self.box.arun(call, ToolRun(proceed, tool.return_value_as_string))
                return answer.own if answer.fresh else CallAgain(text_of(answer.recorded))
            except EffectOnceError as error:
                raise _ErrorForModel(error_text(error)) from error

        async def run_json(
            args: Mapping[str, Any], token: CancellationToken, call_id: str | None = None
        ) -> Any:
            return await run(args, token, call_id, [])

        async def run_json_stream(
            args: Mapping[str, Any], token: CancellationToken, call_id: str | None = None
        ) -> AsyncGenerator[Any, None]:
            events: list[Any] = []
            result = await run(args, token, call_id, events)
            for event in events:
                yield event
            yield result

        def as_text(value: Any) -> str:
            again = isinstance(value, CallAgain)
            return str(value if again else tool.return_value_as_string(value))

        protected = copy.copy(tool)
        vars(protected).update(run_json=run_json, return_value_as_string=as_text)
        if isinstance(tool, StreamTool):
            vars(protected).update(run_json_stream=run_json_stream)
        return protected


async def _proceed(
    tool: Tool,
    args: Mapping[str, Any],
    token: CancellationToken,
    call_id: str | None,
    events: list[Any],
) -> Any:
    if isinstance(tool, StreamTool):
        *streamed, result = [event async for event in tool.run_json_stream(args, token, call_id)]
        events += streamed
        return result
    return await _carried(tool).run_json(args, token, call_id)


def _carried(tool: Tool) -> Tool:
    """AutoGen runs a sync function in a thread without its caller's context. Here it has it."""
    if not isinstance(tool, FunctionTool) or asyncio.iscoroutinefunction(tool._func):  # noqa: SLF001
        return tool
    carried = copy.copy(tool)
    # it looks at the signature no more
    carried._func = functools.partial(contextvars.copy_context().run, tool._func)  # noqa: SLF001
    return carried


class _Bench(Workbench):
    """Any other workbench. An error is a result there, and says nothing about what was done."""

    def __init__(self, bench: Workbench, once: _AgentTools) -> None:
        self._bench, self._once = bench, once

    async def list_tools(self) -> list[ToolSchema]:
        return await self._bench.list_tools()

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        schema = next(
            (_parameters(tool) for tool in await self._bench.list_tools() if tool["name"] == name),
            None,
        )
        if schema is None or self._once.box.passes(name):
            return await self._bench.call_tool(name, arguments, cancellation_token, call_id)

        async def proceed() -> ToolResult:
            return await self._bench.call_tool(name, arguments, cancellation_token, call_id)

        try:
            call = await self._once.call(name, arguments or {}, schema, name)
            answer = await self._once.box.arun(call, ToolRun(proceed, _plain))
            return answer.own if answer.fresh else _again(name, answer.recorded)
        except EffectOnceError as error:
            return ToolResult(
                name=name, result=[TextResultContent(content=error_text(error))], is_error=True
            )

    async def start(self) -> None:
        await self._bench.start()

    async def stop(self) -> None:
        await self._bench.stop()

    async def reset(self) -> None:
        await self._bench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        return await self._bench.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await self._bench.load_state(state)


def _plain(result: ToolResult) -> Any:
    if result.is_error:
        raise ReportedError(
            result, f"the tool reports an error: {result.to_text('[image]')[:200]}", ran=True
        )
    return {"tool_result": result.model_dump_json().encode()}


def _again(name: str, recorded: Any) -> ToolResult:
    """The same result. What a person settled is returned as that person gave it."""
    match recorded:
        case {"tool_result": bytes() as result, **more} if not more:
            return ToolResult.model_validate_json(result)
        case _:
            return ToolResult(name=name, result=[TextResultContent(content=text_of(recorded))])


def _parameters(schema: ToolSchema) -> Mapping[str, Any]:
    return schema.get("parameters") or {}


def delivered(messages: Iterable[LLMMessage]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the message before."""
    asked: dict[str, FunctionCall] = {}
    for message in messages:
        if isinstance(message, AssistantMessage) and isinstance(message.content, list):
            asked |= {call.id: call for call in message.content}
        elif isinstance(message, FunctionExecutionResultMessage):
            for result in message.content:
                if not result.is_error and result.call_id in asked:
                    call = asked[result.call_id]
                    yield Delivered(call.name, json.loads(call.arguments or "{}"))
