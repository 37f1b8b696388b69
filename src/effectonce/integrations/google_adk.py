"""Google's Agent Development Kit: `App(..., plugins=[EffectOnce(guard)])`, and the tools of its
agents land once.

The conversation is the session, and what the model was shown are the events of the session that
its agent can see. Ids of calls and of invocations are not looked at: the kit makes them up where
the model gives none, and a model may give the same one twice.

The kit has callbacks before and after a tool, and none around it. So the plugin waits for the
first call of a tool, and from then on stands around its `run_async`: below all callbacks and
confirmations, which are run as before. In a runner without the plugin, the tool is what it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MethodType
from typing import Any
from urllib.parse import quote

try:
    from google.adk.events.event import Event
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.google_adk needs the kit: pip install 'effectonce[google-adk]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered
from effectonce.errors import EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    AgentCall,
    AgentTools,
    ReportedError,
    ToolAnswer,
    ToolRun,
    is_error,
)
from effectonce.integrations._contracts import ToolOptions

Of = Callable[[ToolContext], str | Stable]
Run = Callable[..., Any]

# Tools of the kit that steer it and have no effect outside; an agent that is a tool has tools of
# its own, which are protected.
_TOOLS = """
    _node _request_input agent exit_loop get_user_choice google_search_agent load_artifacts
    load_memory preload_memory set_model_response transfer_to_agent
"""
STEERING = frozenset(
    {
        "google.adk.agents.llm.task._finish_task_tool",
        *(f"google.adk.tools.{name}_tool" for name in _TOOLS.split()),
    }
)
# what a tool does to its agent, besides the state
KEPT = ("artifact_delta", "escalate", "skip_summarization", "transfer_to_agent")
PART = "effectonce.part"
_outer: ContextVar[str | Stable | None] = ContextVar("effectonce_google_adk_outer", default=None)


class EffectOnce(BasePlugin):
    """Every call of a tool lands once: for `App(..., plugins=[...])`.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already need none. *scope* and *tenant* are
    functions of the tool's context: by default the session, and the guard's own.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        contracts: Mapping[str, ToolOptions] | None = None,
        default: ToolOptions | None = None,
        scope: Of | None = None,
        tenant: Of | None = None,
        name: str = "effectonce",
    ) -> None:
        super().__init__(name=name)
        self._box = AgentTools(guard, contracts, default)
        self._scope, self._tenant = _session if scope is None else scope, tenant

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Wrap the tool for good. Each call asks who has the plugin; others have it unchanged."""
        around = getattr(tool.run_async, "__effectonce__", None)
        if around is tool:
            return
        # it is a copy of one that ran
        bare = tool.run_async if around is None else MethodType(type(tool).run_async, tool)

        async def run_async(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
            run = functools.partial(bare, args=args, tool_context=tool_context)
            plugins = tool_context.get_invocation_context().plugin_manager.plugins
            once = next((plugin for plugin in plugins if isinstance(plugin, EffectOnce)), None)
            return await (run() if once is None else once._around(tool, args, tool_context, run))  # noqa: SLF001

        run_async.__effectonce__ = tool  # type: ignore[attr-defined]
        vars(tool)["run_async"] = run_async

    async def _around(
        self, tool: BaseTool, args: Mapping[str, Any], context: ToolContext, run: Run
    ) -> Any:
        if _home(tool) in STEERING:
            return await self._steering(context, run)
        guarded = self._box.mine(getattr(tool, "func", None))
        if guarded is None and self._box.passes(tool.name):
            return await run()
        try:
            call = self._call(tool, args, context)
            if guarded is not None:
                async with await self._box.awithin(guarded, call):
                    return await run()
            plain = functools.partial(_plain, tool, context, dict(context.actions.state_delta))
            answer = await self._box.arun(call, ToolRun(run, plain))
            return answer.own if answer.fresh else _again(answer, context)
        except ReportedError as error:
            return error.result
        except EffectOnceError as error:
            # the tool is a node of a workflow: there is no model to read it
            if context.node is not None:
                raise
            return error.as_model_error()

    async def _steering(self, context: ToolContext, run: Run) -> Any:
        """A tool that is an agent has a throwaway session: its effects belong to its caller."""
        outer = _outer.set(self._where(context))
        try:
            return await run()
        finally:
            _outer.reset(outer)

    def _where(self, context: ToolContext) -> str | Stable:
        return _outer.get() or self._scope(context)

    def _call(self, tool: BaseTool, args: Mapping[str, Any], context: ToolContext) -> AgentCall:
        return AgentCall(
            tool=tool.name,
            arguments=to_jsonable_python(dict(args)),
            scope=self._where(context),
            tenant=None if self._tenant is None else self._tenant(context),
            shown=tuple(delivered(_seen(context))),
            schema=_schema(tool),
        )


def _home(tool: BaseTool) -> str:
    function = getattr(tool, "func", None)
    return str(getattr(type(tool) if function is None else function, "__module__", ""))


def _session(context: ToolContext) -> Stable:
    """The session service keeps the session under these."""
    parts = (context.session.app_name, context.session.user_id, context.session.id)
    return Stable("/".join(quote(part, safe="") for part in parts))


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    declared = tool._get_declaration()  # noqa: SLF001  # nothing public says what the model sees
    if declared is None:
        return {}
    if declared.parameters_json_schema is not None:
        return dict(declared.parameters_json_schema)
    if declared.parameters is None:
        return {}
    return dict(declared.parameters.model_dump(mode="json", exclude_unset=True))


# ---------------------------------------------------------------- what the model was shown


def _seen(context: ToolContext) -> Iterator[Event]:
    """The events that the agent can see: of its branch and those above, without rewound ones."""
    invocation = context.get_invocation_context()
    kept: list[Event] = []
    for event in invocation.session.events:
        to = event.actions.rewind_before_invocation_id
        if to is not None:
            ids = [each.invocation_id for each in kept]
            del kept[ids.index(to) if to in ids else len(kept) :]
        kept.append(event)
    here, isolated = invocation.branch, getattr(invocation, "isolation_scope", None)
    for event in kept:
        above = not here or not event.branch or f"{here}.".startswith(f"{event.branch}.")
        if above and getattr(event, "isolation_scope", None) == isolated:
            yield event


def delivered(events: Iterable[Event]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the events before."""
    asked: dict[str | None, types.FunctionCall] = {}
    for event in events:
        asked |= {call.id: call for call in event.get_function_calls()}
        actions = event.actions
        waiting = {*actions.requested_auth_configs, *actions.requested_tool_confirmations}
        for result in event.get_function_responses():
            call = asked.get(result.id)
            if call is not None and result.id not in waiting and not _failed(result.response):
                yield Delivered(str(call.name), to_jsonable_python(call.args or {}))


def _failed(response: Any) -> bool:
    return isinstance(response, Mapping) and bool(
        response.get("error") or response.get("isError") or is_error(response)
    )


# ---------------------------------------------------------------- results, in both directions


def _plain(tool: BaseTool, context: ToolContext, before: Mapping[str, Any], result: Any) -> Any:
    """A result to record, with what it did to its agent. A reported error is raised, and judged."""
    actions = context.actions
    if actions.requested_auth_configs or actions.requested_tool_confirmations:
        raise ReportedError(result, "the tool asks a person first", ran=False)
    if _failed(result):
        error = str(result.get("error"))
        unfit = error.startswith(f"Invoking `{tool.name}()` failed")
        refused = unfit or error == "This tool call is rejected."
        raise ReportedError(result, f"the tool reports an error: {error[:200]}", ran=not refused)
    state = {
        name: value
        for name, value in actions.state_delta.items()
        if name not in before or before[name] != value
    }
    state = to_jsonable_python(state, fallback=str)
    kept = {name: getattr(actions, name) for name in KEPT if getattr(actions, name)}
    return {"result": _written(result), "state": state, "actions": kept}


def _written(value: Any) -> Any:
    """Media in a result are parts, which the kit looks for two levels deep."""
    if isinstance(value, types.Part):
        return {PART: value.model_dump(mode="json", exclude_none=True)}
    if isinstance(value, Mapping):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    return to_jsonable_python(value, fallback=str)


def _read(value: Any) -> Any:
    if isinstance(value, Mapping) and PART in value:
        return types.Part.model_validate(value[PART])
    if isinstance(value, Mapping):
        return {name: _read(each) for name, each in value.items()}
    return [_read(each) for each in value] if isinstance(value, list) else value


def _again(answer: ToolAnswer, context: ToolContext) -> Any:
    """The same result, and the same done to the agent. What a person settled is as given."""
    recorded = answer.recorded
    if not isinstance(recorded, Mapping) or recorded.keys() != {"result", "state", "actions"}:
        return recorded
    context.state.update(recorded["state"])
    for name, value in recorded["actions"].items():
        added = isinstance(value, Mapping)
        setattr(context.actions, name, getattr(context.actions, name) | value if added else value)
    return _read(recorded["result"])
