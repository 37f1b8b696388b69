"""OpenAI Agents SDK: `agent = protect(agent, guard)`, and the function tools of the agent and of
its MCP servers land once.

    await Runner.run(agent, "refund pay_7", run_config=RunConfig(group_id="chat-42"))

The conversation is the `group_id` of the run, or what *scope* says. What the model was shown is
what the SDK sends to it, so the history has to be sent along: as input or from a session. Where
the server keeps it (`conversation_id`, `previous_response_id`), results of earlier runs are not
seen, and a call that is meant once more is answered with the earlier result.

The SDK turns every error of a tool into "Please try again". Here an error is judged first: what
may have happened is reported as such. A call to an MCP server is sent once, whatever its
`max_retry_attempts`, and an error that the server reports is judged, too.

A call that needs an approval is an interruption of the run, as of a tool with `needs_approval`:

    state = result.to_state()
    state.approve(result.interruptions[0])
    await Runner.run(agent, state, run_config=RunConfig(group_id="chat-42"))

Then it is approved in the store, by who *approver* says, and sent. The SDK's answer has no name,
so without *approver* the run does not pause: the model gets that the call waits. Approvals of
calls that were never shown (`always_approve`) do not count. `sync_approvals(state)` lets the store
know what waits, and the run what was decided there: see `_openai_pause.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import json
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

try:
    from agents import Agent, AgentHooks, FunctionTool
    from agents.exceptions import ModelBehaviorError, UserError
    from agents.function_schema import function_schema
    from agents.mcp import MCPServer
    from agents.tool import default_tool_error_function, set_function_tool_failure_error_function
    from agents.tool_context import ToolContext
    from pydantic import ValidationError
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.openai_agents needs the SDK: pip install"
        " 'effectonce[openai-agents]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered
from effectonce._tools.tool import GuardedTool
from effectonce.approvals._questions import Approver
from effectonce.errors import ContractViolation, EffectOnceError, InDoubt
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    FAILED,
    AgentCall,
    AgentTools,
    Converted,
    ReportedError,
    Shown,
    ToolRun,
    error_text,
    is_error_text,
)
from effectonce.integrations._contracts import ToolOptions
from effectonce.integrations._openai_pause import (
    PausedTool,
    RunPause,
    had_the_same_call,
    sync_approvals,
)

__all__ = ["protect", "sync_approvals"]
Of = Callable[[ToolContext[Any]], str | Stable]
_once_only: ContextVar[bool] = ContextVar("effectonce_openai_agents_once_only", default=False)


def protect(
    agent: Agent[Any],
    guard: Guard,
    *,
    contracts: Mapping[str, ToolOptions] | None = None,
    default: ToolOptions | None = None,
    scope: Of | None = None,
    tenant: Of | None = None,
    asked_by: Callable[[ToolContext[Any]], str] | None = None,
    approver: Approver | None = None,
) -> Agent[Any]:
    """A copy of *agent* whose function tools, and those of its MCP servers, land once.

    Agents that it hands over to are protected by themselves.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already need none. An agent that is used as a tool
    is no effect: protect it, too.

    *approver* says who approves a call that needs it, where the run is resumed with its approval:
    a name, or a function of the tool's context. *asked_by* says for whom it is made.
    """
    for tool in agent.tools:
        if not isinstance(tool, FunctionTool) and tool.name in (contracts or ()):
            raise ContractViolation(
                f"{tool.name} is a {type(tool).__name__}, and only function tools can be protected."
                " Make it a function tool, or leave it out."
            )
    box, shown = AgentTools(guard, contracts, default), Shown()
    pause = RunPause(guard, approver)
    once = _ProtectedTools(box, shown, _group if scope is None else scope, tenant, asked_by, pause)
    tools = [once.around(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools]
    protected = agent.clone(tools=tools, hooks=_Listening(agent.hooks, shown))
    protected.__class__ = _with_servers(type(protected), once)
    return protected


def _with_servers(kind: type[Agent[Any]], once: _ProtectedTools) -> type[Agent[Any]]:
    """MCP tools are made each turn, by the agent: its class, and that of clones, protects them."""

    class ProtectedFunction(kind):  # type: ignore[valid-type, misc]
        async def get_mcp_tools(self, run_context: Any) -> list[Any]:
            for server in self.mcp_servers:
                _send_once(server)
            tools = await super().get_mcp_tools(run_context)
            return [once.around(tool, of_server=True) for tool in tools]

    ProtectedFunction.__name__, ProtectedFunction.__qualname__ = kind.__name__, kind.__qualname__
    return ProtectedFunction


def _send_once(server: MCPServer) -> None:
    """In our effect, a call is sent once and a server's error is one: the SDK makes it a result."""
    if getattr(server.call_tool, "__effectonce__", None) is server:
        return
    send = server.call_tool

    async def call_tool(
        tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> Any:
        with_meta = {} if meta is None else {"meta": meta}
        if not _once_only.get():
            return await send(tool_name, arguments, **with_meta)
        if getattr(server, "max_retry_attempts", 0):
            resigned = copy.copy(server)  # the same session; but this one does not try again
            resigned.max_retry_attempts = 0  # type: ignore[attr-defined]
            result = await type(server).call_tool(resigned, tool_name, arguments, **with_meta)
        else:
            result = await send(tool_name, arguments, **with_meta)
        # by the version of MCP
        if getattr(result, "is_error" if hasattr(result, "is_error") else "isError", False):
            text = " ".join(getattr(part, "text", "") for part in result.content)
            raise ReportedError(result, f"the server reports an error: {text[:200]}", ran=True)
        return result

    call_tool.__effectonce__ = server  # type: ignore[attr-defined]
    vars(server)["call_tool"] = call_tool


class _ProtectedTools:
    def __init__(
        self,
        box: AgentTools,
        shown: Shown,
        scope: Of,
        tenant: Of | None,
        asked_by: Callable[[ToolContext[Any]], str] | None,
        pause: RunPause,
    ) -> None:
        self._box, self._shown, self._scope, self._tenant = box, shown, scope, tenant
        self._asked_by, self._pause = asked_by, pause

    def around(self, tool: FunctionTool, *, of_server: bool = False) -> FunctionTool:
        """The same tool to the model. Errors reach us as they are; a time-out is one of them."""
        guarded = self._box.mine(getattr(tool, "__wrapped__", None))
        is_agent = tool._is_agent_tool  # noqa: SLF001  # nothing public says so
        once = getattr(tool.on_invoke_tool, "__effectonce__", None)
        if once is self._box.guard or is_agent or (guarded is None and self._box.passes(tool.name)):
            return tool
        bare = set_function_tool_failure_error_function(copy.copy(tool), None)

        async def proceed(
            context: ToolContext[Any], given: str, given_up: type[Exception] = TimeoutError
        ) -> Any:
            limit = asyncio.timeout(tool.timeout_seconds)
            try:
                async with limit:
                    run = bare.on_invoke_tool(context, given)
                    return await (_by_server(run) if of_server else run)
            except ModelBehaviorError as error:
                if _unfit(tool, context, error):
                    raise _Unfit(str(error)) from error.__cause__
                raise error from error.__cause__
            except TimeoutError:
                if not limit.expired():
                    raise
                what = f"{tool.name} had no answer after {tool.timeout_seconds} s"
                raise given_up(f"{what}, and may have happened.") from None

        async def once_only(context: ToolContext[Any], given: str) -> Any:
            call = self._call(tool, context, given)
            if guarded is not None:
                async with await self._box.awithin(guarded, call):
                    return await proceed(context, given, InDoubt)
            leg = ToolRun(lambda: proceed(context, given), _result, (_Unfit,))
            return (await self._box.arun(call, leg)).recorded

        async def invoke(context: ToolContext[Any], given: str) -> Any:
            try:
                return await self._pause.around(lambda: once_only(context, given), context)
            except EffectOnceError as error:
                return error_text(error)
            except ModelBehaviorError as error:
                return await _formatted(tool, context, error, {**FAILED, "message": str(error)})
            except Exception as error:  # noqa: BLE001
                # the tool's own, and definite: as the tool wants it shown
                return await _formatted(tool, context, error, FAILED)

        async def ask(context: ToolContext[Any], given: str) -> bool:
            call = self._call(tool, context, given)
            with contextlib.suppress(ContractViolation):  # the call itself says what is wrong
                return await self._box.aask(guarded, call, lambda: _converted(tool, context, call))
            return False

        invoke.__effectonce__ = self._box.guard  # type: ignore[attr-defined]
        invoke.__effectonce_paused__ = PausedTool(ask, self._pause, self._shown)  # type: ignore[attr-defined]
        protected = copy.copy(tool)
        protected.on_invoke_tool, protected.timeout_seconds = invoke, None
        protected.needs_approval = self._asks(tool, guarded)
        return protected

    def _asks(self, tool: FunctionTool, guarded: GuardedTool | None) -> Any:
        own = tool.needs_approval

        async def needed(context: Any, params: dict[str, Any], call_id: str) -> bool:
            asked = own(context, params, call_id) if callable(own) else own
            if isinstance(asked, Awaitable):
                asked = await asked
            schema = tool.params_json_schema
            call = AgentCall(tool=tool.name, arguments=params, scope="", schema=schema)
            return bool(asked) or self._box.may_need_approval(guarded, call)

        pauses = self._pause.knows_who and self._box.asks_a_person(guarded, tool.name)
        return needed if pauses else own

    def _call(self, tool: FunctionTool, context: ToolContext[Any], given: str) -> AgentCall:
        try:
            arguments = json.loads(given) if given else {}
        except ValueError:
            raise ModelBehaviorError(f"the arguments of {tool.name} are no JSON") from None
        # a run is known by the object in which its usage is counted
        sent = self._shown.to(context.usage)
        if sent is None and had_the_same_call(context):
            raise ContractViolation(
                f"this run had the same call of {tool.name} before it paused, and whether this is"
                " another one could not be recognised. Nothing was sent. Before the run is"
                " resumed: await sync_approvals(state, run_config=...)."
            )
        return AgentCall(
            tool=tool.name,
            arguments=arguments,
            scope=self._scope(context),
            tenant=None if self._tenant is None else self._tenant(context),
            asked_by="" if self._asked_by is None else self._asked_by(context),
            shown=tuple(delivered(context.turn_input if sent is None else sent)),
            schema=tool.params_json_schema,
        )


async def _by_server(run: Awaitable[Any]) -> Any:
    before = _once_only.set(True)
    try:
        return await run
    except UserError as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1].name
        not_open = str(error).startswith("Server not initialized")
        if not_open or innermost == "_validate_required_parameters":
            raise _Unfit(str(error)) from error.__cause__
        raise error from error.__cause__
    finally:
        _once_only.reset(before)


def _converted(tool: FunctionTool, context: ToolContext[Any], call: AgentCall) -> Converted:
    """The arguments with which the SDK runs the function."""
    function: Any = getattr(tool, "__wrapped__")  # noqa: B009
    schema = function_schema(function, use_docstring_info=False, strict_json_schema=False)
    try:
        args, kwargs = schema.to_call_args(schema.params_pydantic_model(**call.arguments))
    except ValidationError as error:
        raise ContractViolation(f"the arguments do not fit: {error}") from None
    return ((context, *args) if schema.takes_context else tuple(args)), kwargs


class _Unfit(ModelBehaviorError):
    """The SDK refused the arguments, and the tool was not run."""


def _unfit(tool: FunctionTool, context: ToolContext[Any], error: ModelBehaviorError) -> bool:
    """The same error, of a model that the tool asked, leaves it unknown what the tool had done."""
    code = getattr(inspect.unwrap(getattr(tool, "__wrapped__", None) or _result), "__code__", None)
    ran = any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))
    return not ran and str(error).startswith(f"Invalid JSON input for tool {context.tool_name}")


async def _formatted(
    tool: FunctionTool, context: ToolContext[Any], error: Exception, shown: Mapping[str, Any]
) -> Any:
    """In the words of the tool's formatter; the SDK's default, "please try again", is not used."""
    # it is given to function_tool(), and kept nowhere else
    formatter = tool._failure_error_function  # noqa: SLF001
    if tool._use_default_failure_error_function or formatter is default_tool_error_function:  # noqa: SLF001
        return json.dumps(shown)
    if formatter is None:
        raise error
    text = formatter(context, error)
    return text if isinstance(text, str) else await text


def _result(result: Any) -> Any:
    """A layer of ours further in, of another guard, tells its error as a text."""
    if is_error_text(result):
        raise ReportedError(result, "another guard has no result", ran=True)
    return result


def _group(context: ToolContext[Any]) -> str:
    group = None if context.run_config is None else context.run_config.group_id
    if group is None:
        raise ContractViolation(
            "the run has no group_id, so a retry could not be recognised. Nothing was sent. Run"
            " with RunConfig(group_id=...), or say what the conversation is: protect(agent, guard,"
            " scope=...)."
        )
    return group


# ---------------------------------------------------------------- what the model was shown


class _Listening(AgentHooks[Any]):
    """Hears what the model is sent. All else is heard by the agent's own hooks."""

    def __init__(self, own: AgentHooks[Any] | None, shown: Shown) -> None:
        self._own, self._shown = AgentHooks[Any]() if own is None else own, shown
        for hook in ("llm_end", "start", "end", "handoff", "tool_start", "tool_end"):
            setattr(self, f"on_{hook}", getattr(self._own, f"on_{hook}"))

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        self._shown.note(context.usage, input_items)
        await self._own.on_llm_start(context, agent, system_prompt, input_items)


def delivered(items: Iterable[Any]) -> Iterator[Delivered]:
    """Successful results in what was sent. Ids may recur: each is looked up in the items before."""
    asked: dict[str, tuple[str, str]] = {}
    for item in items:
        if not isinstance(item, Mapping):
            continue
        kind, call = item.get("type"), item.get("call_id", "")
        if kind == "function_call":
            asked[call] = (item["name"], item["arguments"])
        elif kind == "function_call_output" and call in asked and not is_error_text(item["output"]):
            tool, arguments = asked[call]
            try:
                known = json.loads(arguments or "{}")
            except ValueError:  # what came of it was no result, in whatever words the model got
                continue
            if isinstance(known, dict):
                yield Delivered(tool, known)
