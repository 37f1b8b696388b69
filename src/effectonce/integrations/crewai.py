"""CrewAI: `Agent(..., tools=protect([refund], guard, scope="ticket-17"))`, and the tools of a
crew land once.

CrewAI has no conversation. Each execution of a task begins with an empty history, also when a
guardrail, the agent's retry limit or a new process executes it again; so *scope* names what is
asked for once: a ticket, an order, a turn of a chat. Within an execution, what the model was
shown are the messages that its last request went out with. Hooks of CrewAI tell them, and who
calls.

Left alone, CrewAI runs a tool that raises up to six times, asks the model to try again, and may
answer an equal call from a cache. Here a tool raises nothing: errors are a `ToolFailure` with
what is known as data, and what is known is asked of the store alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

try:
    from crewai.agents.parser import AgentAction, OutputParserError, parse
    from crewai.hooks import (
        LLMCallHookContext,
        ToolCallHookContext,
        get_after_tool_call_hooks,
        get_before_llm_call_hooks,
        get_before_tool_call_hooks,
        register_after_tool_call_hook,
        register_before_llm_call_hook,
        register_before_tool_call_hook,
    )
    from crewai.tools import BaseTool, ToolFailure
    from crewai.tools.base_tool import Tool
    from crewai.tools.mcp_native_tool import MCPNativeTool
    from crewai.tools.mcp_tool_wrapper import MCPToolWrapper
    from crewai.utilities.i18n import I18N_DEFAULT
    from crewai.utilities.string_utils import sanitize_tool_name
    from pydantic import ValidationError
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.crewai needs CrewAI: pip install 'effectonce[crewai]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered
from effectonce._tools.tool import GuardedTool
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    FAILED,
    AgentCall,
    AgentTools,
    CallAgain,
    ReportedError,
    Shown,
    ToolRun,
    error_text,
    is_error,
    text_of,
)
from effectonce.integrations._contracts import ToolOptions

Of = Callable[[ToolCallHookContext], str | Stable]
_calling = ContextVar[ToolCallHookContext | None]("effectonce_crewai_calling", default=None)
_shown = Shown()


def protect(
    tools: Sequence[BaseTool],
    guard: Guard,
    *,
    scope: str | Stable | Of,
    tenant: str | Of | None = None,
    contracts: Mapping[str, ToolOptions] | None = None,
    default: ToolOptions | None = None,
) -> list[BaseTool]:
    """The same tools to the model, which land once: for agents and for tasks.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already (`@tool` above `@guard.tool`) need none.
    *scope* and *tenant* may be functions of the call, which knows its agent, task and crew.
    """
    for hook, known, register in (
        (_asks, get_before_llm_call_hooks, register_before_llm_call_hook),
        (_begins, get_before_tool_call_hooks, register_before_tool_call_hook),
        (_ends, get_after_tool_call_hooks, register_after_tool_call_hook),
    ):
        if hook not in known():
            register(hook)
    once = _CrewTools(AgentTools(guard, contracts, default), scope, tenant)
    return [once.around(tool) for tool in tools]


class _CrewTools:
    def __init__(
        self, box: AgentTools, scope: str | Stable | Of, tenant: str | Stable | Of | None
    ) -> None:
        self._box, self._scope, self._tenant = box, scope, tenant

    def around(self, tool: BaseTool) -> BaseTool:
        guarded = self._box.mine(getattr(tool, "func", None))
        if guarded is None and self._box.passes(tool.name):
            return tool
        tool = _sending_once(tool)

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return self._run(tool, guarded, _named(tool, args, kwargs))
            except Exception as error:  # noqa: BLE001
                # if the tool's own, it is definite: raised, CrewAI would run the tool again
                return _failure(error)

        async def arun(*args: Any, **kwargs: Any) -> Any:
            try:
                return await self._arun(tool, guarded, _named(tool, args, kwargs))
            except Exception as error:  # noqa: BLE001  # as above
                return _failure(error)

        def as_text(result: Any) -> str:
            again = isinstance(result, CallAgain)
            return str(result if again else tool.format_output_for_agent(result))

        protected = tool.model_copy(update={"cache_function": _never})
        vars(protected).update(_run=run, _arun=arun, format_output_for_agent=as_text)
        if isinstance(tool, Tool):
            vars(protected).update(func=run)
        return protected

    def _run(
        self, tool: BaseTool, guarded: GuardedTool | None, arguments: Mapping[str, Any]
    ) -> Any:
        def proceed() -> Any:
            # that is where a tool of CrewAI is written
            result = tool._run(**arguments)  # noqa: SLF001
            return asyncio.run(result) if asyncio.iscoroutine(result) else result  # as CrewAI does

        call = self._call(tool, arguments)
        if guarded is not None:
            with self._box.within(guarded, call):
                return proceed()
        answer = self._box.run(call, ToolRun(proceed, lambda result: _plain(tool, result)))
        return answer.own if answer.fresh else CallAgain(text_of(answer.recorded))

    async def _arun(
        self, tool: BaseTool, guarded: GuardedTool | None, arguments: Mapping[str, Any]
    ) -> Any:
        call = self._call(tool, arguments)
        if guarded is not None:
            async with await self._box.awithin(guarded, call):
                return await tool._arun(**arguments)  # noqa: SLF001
        leg = ToolRun(lambda: tool._arun(**arguments), lambda result: _plain(tool, result))  # noqa: SLF001
        answer = await self._box.arun(call, leg)
        return answer.own if answer.fresh else CallAgain(text_of(answer.recorded))

    def _call(self, tool: BaseTool, arguments: Mapping[str, Any]) -> AgentCall:
        calling, name = _calling.get(), sanitize_tool_name(tool.name)
        known = [each.arguments for each in delivered(_messages(calling)) if each.tool == name]
        return AgentCall(
            tool=tool.name,
            arguments=_fitted(tool, arguments),
            scope=_of(self._scope, calling),
            tenant=None if self._tenant is None else _of(self._tenant, calling),
            shown=tuple(Delivered(tool.name, _fitted(tool, each)) for each in known),
        )


def _sending_once(tool: BaseTool) -> BaseTool:
    """CrewAI sends MCP calls up to 3 times, their errors may be text: here, once, and judged."""
    if isinstance(tool, MCPNativeTool):
        connect = tool._client_factory  # noqa: SLF001  # nothing public says how often

        def client() -> Any:
            made = connect()
            made.max_retries = 1
            return made

        tool = tool.model_copy()
        tool._client_factory = client  # noqa: SLF001
    elif isinstance(tool, MCPToolWrapper):
        send = tool._execute_tool_with_timeout  # noqa: SLF001
        tool = tool.model_copy()
        vars(tool)["_run"] = lambda **arguments: asyncio.run(send(**arguments))
    return tool


def _of(what: str | Stable | Of, calling: ToolCallHookContext | None) -> str | Stable:
    if isinstance(what, str | Stable):
        return what
    if calling is None:
        raise ContractViolation(
            "no agent calls this tool, so it is not known what for. Nothing was sent. Run it in an"
            " agent, or with a text for its scope."
        )
    return what(calling)


def _named(tool: BaseTool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(tool.args_schema.model_fields, args, strict=False)) | dict(kwargs)


def _fitted(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As the tool's schema reads them, with defaults: "100" and 100 of a model may be one."""
    if not tool.args_schema.model_fields:
        return dict(arguments)
    try:
        return dict(tool.args_schema.model_validate(arguments).model_dump(mode="json"))
    except ValidationError:
        return dict(arguments)


def _plain(tool: BaseTool, result: Any) -> str:
    """A result as the model sees it, to record. A reported failure does not say what was done."""
    if isinstance(result, ToolFailure):
        raise ReportedError(result, f"the tool reports a failure: {result.message[:200]}", ran=True)
    return str(tool.format_output_for_agent(result))


def _failure(error: Exception) -> ToolFailure:
    if isinstance(error, EffectOnceError):
        text, again = error_text(error), error.retriable
    else:
        text, again = json.dumps({**FAILED, "message": str(error)}), False
    return ToolFailure(message=text, retryable=again, details=json.loads(text))


def _never(_args: Any = None, _result: Any = None) -> bool:
    """Nothing of it goes to the cache, which knows no wish for the same again."""
    return False


# ---------------------------------------------------------------- what the model was shown


def _asks(context: LLMCallHookContext) -> None:
    """The model is asked now. Who runs its tools afterwards is known by the tools."""
    for tool in getattr(context.executor, "tools", None) or ():
        _shown.note(tool, context.messages)


def _begins(context: ToolCallHookContext) -> None:
    _calling.set(context)


def _ends(context: ToolCallHookContext) -> None:
    _calling.set(None)


def _messages(calling: ToolCallHookContext | None) -> Sequence[Any]:
    """Each step of a plan has its own history, which is not passed on: then nothing was shown."""
    if calling is None or getattr(calling.agent, "planning_enabled", False):
        return ()
    return _shown.to(calling.tool) or ()


def delivered(messages: Iterable[Any]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the message before."""
    asked: dict[str, Mapping[str, Any]] = {}
    for message in messages:
        content = message.get("content")
        for call in message.get("tool_calls") or ():
            asked[call["id"]] = call["function"]
        role, known = message.get("role"), asked.get(message.get("tool_call_id"))
        if role == "tool" and known is not None and _succeeded(content):
            yield from _delivered(known["name"], known["arguments"])
        elif role == "assistant" and isinstance(content, str):
            yield from _observed(content)


def _observed(text: str) -> Iterator[Delivered]:
    """A model without tool calls writes what it wants to do, and its result stands below."""
    wish, observed, result = text.partition("\nObservation:")
    if not observed or not _succeeded(result):
        return
    try:
        action = parse(wish)
    except OutputParserError:
        return
    if isinstance(action, AgentAction):
        yield from _delivered(sanitize_tool_name(action.tool), action.tool_input)


def _delivered(tool: str, arguments: Any) -> Iterator[Delivered]:
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except ValueError:
        return
    if isinstance(given, Mapping):
        yield Delivered(tool, given)


def _succeeded(result: Any) -> bool:
    """CrewAI's failures are text. What may be one counts: the same call again is the safe side."""
    text = str(result).strip()
    if text.startswith(NOT_DONE) or (text.startswith("Tool '") and "usage limit" in text):
        return False
    try:
        shown, _ = json.JSONDecoder().raw_decode(text)  # reminders of CrewAI's may stand below
    except ValueError:
        return True
    return not is_error(shown)


_TEXTS = ("task_repeated_usage", "tool_usage_error", "tool_arguments_error", "tool_usage_exception")
NOT_DONE = (
    "Error executing tool",
    "Error: ",
    "Tool execution blocked by hook",
    "Tool not found",
    *(I18N_DEFAULT.errors(name).partition("{")[0].strip() for name in _TEXTS),
)
