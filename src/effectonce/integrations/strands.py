"""Strands Agents: `Agent(..., plugins=[EffectOnce(guard)])`, and the tools of the agent land once.

The conversation is the session of the agent's session manager, or what *scope* says: the id that
an agent without one makes up for itself is another in the next process. What the model was shown
are the messages of the agent.

Strands tells the model every error of a tool as a text. Here an error is judged first: what may
have happened is reported as such. A hook that asks for another try gets the answer that is
known. Interrupts pass through, and so does what a tool streams on its way.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

try:
    from strands import Agent
    from strands.interrupt import InterruptException
    from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent, TypedEvent
    from strands.plugins import Plugin
    from strands.types.tools import AgentTool, ToolUse
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.strands needs Strands: pip install 'effectonce[strands]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered, flagged
from effectonce._tools.tool import GuardedTool
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import AgentCall, AgentTools, ReportedError, ToolRun
from effectonce.integrations._contracts import ToolOptions
from effectonce.integrations._single_run import Guarded, SingleRun

Of = Callable[[ExecuteToolContext], str | Stable]
Next = Callable[[ExecuteToolContext], AsyncGenerator[TypedEvent, None]]
Tell = Callable[[TypedEvent], None]

# types of tools that are no effects: agents have tools of their own
STEERING = frozenset(("agent", "structured_output"))
INTERRUPT = "tool_interrupt_event"


class EffectOnce(Plugin):
    """Every call of a tool lands once: for `Agent(..., plugins=[...])`.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already need none. *scope* and *tenant* are
    functions of the context of the call: by default the session, and the guard's own.
    """

    name = "effectonce"

    def __init__(
        self,
        guard: Guard,
        *,
        contracts: Mapping[str, ToolOptions] | None = None,
        default: ToolOptions | None = None,
        scope: Of | None = None,
        tenant: Of | None = None,
    ) -> None:
        super().__init__()
        self._box = AgentTools(guard, contracts, default)
        self._scope, self._tenant = _session if scope is None else scope, tenant

    def init_agent(self, agent: Agent) -> None:
        agent.add_middleware(ExecuteToolStage, self._around)

    async def _around(
        self, context: ExecuteToolContext, proceed: Next
    ) -> AsyncGenerator[TypedEvent, None]:
        tool, guarded = context.tool, self._box.mine(context.tool)
        passes = tool is None or tool.tool_type in STEERING
        if passes or (guarded is None and self._box.passes(context.tool_use["name"])):
            events = proceed(context)
        else:
            events = _events_of(functools.partial(self._answer, context, proceed, guarded))
        async for event in events:
            yield event

    async def _answer(
        self, context: ExecuteToolContext, proceed: Next, guarded: GuardedTool | None, tell: Tell
    ) -> Any:
        ended, one = _Ended(), SingleRun() if guarded is None else Guarded()
        once = context if context.tool is None else context.replace(tool=_once(context.tool, one))
        run = functools.partial(ended.run, once, proceed, tell)
        try:
            call = self._call(context)
            if guarded is not None:
                with await self._box.awithin(guarded, call), one:
                    return await run()
            leg = ToolRun(run, _plain, (InterruptException, _Interrupted), one)
            answer = await self._box.arun(call, leg)
            return answer.own if answer.fresh else _result(context, **_again(answer.recorded))
        except _Interrupted as error:
            return error.event
        except ReportedError as error:
            return error.result
        except EffectOnceError as error:
            return _result(
                context, status="error", content=[{"json": error.as_model_error()}], exception=error
            )
        except Exception as error:  # the tool's own, and definite: in the words of the framework
            if ended.event is None or ended.event.exception is not error:
                raise
            return ended.event

    def _call(self, context: ExecuteToolContext) -> AgentCall:
        schema, shown = _schema(context), delivered(context.agent.messages)
        return AgentCall(
            tool=context.tool_use["name"],
            arguments=_arguments(schema, context.tool_use["input"]),
            scope=self._scope(context),
            tenant=None if self._tenant is None else self._tenant(context),
            shown=tuple(Delivered(d.tool, _arguments(schema, d.arguments)) for d in shown),
            schema=schema,
        )


class _Interrupted(Exception):
    """The tool asks a person first, and is run again with the answer."""

    def __init__(self, event: TypedEvent) -> None:
        super().__init__("interrupted")
        self.event = event


class _Ended:
    """One run of the tool. An error that the framework made a result is raised, to be judged."""

    event: ToolResultEvent | None = None

    async def run(self, context: ExecuteToolContext, proceed: Next, tell: Tell) -> ToolResultEvent:
        interrupt = None
        async for event in proceed(context):
            if isinstance(event, ToolResultEvent):
                self.event = event
            elif INTERRUPT in event:
                interrupt = event
            else:
                tell(event)
        if interrupt is not None:
            raise _Interrupted(interrupt)
        if self.event is None:
            raise ContractViolation(f"{context.tool_use['name']} ended without a result.")
        error, result = self.event.exception, self.event.tool_result
        if error is not None and not _ran(error):
            raise ReportedError(self.event, str(error), ran=False)
        if error is not None:
            raise error
        if result["status"] == "error":
            why = f"the tool reports an error: {str(result['content'])[:200]}"
            raise ReportedError(self.event, why, ran=True)
        return self.event


def _ran(error: BaseException) -> bool:
    """Did the tool raise it? What it was not run for may be called better."""
    words = "Validation failed for input parameters"
    return not (isinstance(error, ValueError) and str(error).startswith(words))


def _once(tool: AgentTool, one: SingleRun) -> AgentTool:
    """The same tool, which is run once: a layer further in that asks again gets its last event."""

    async def stream(
        tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        async def run(tell: Tell) -> Any:
            last = None
            async for last in tool.stream(tool_use, invocation_state, **kwargs):
                if isinstance(last, ToolResultEvent):
                    break
                tell(last)
            return last

        heard = None
        runs = _events_of(lambda tell: one.arun(functools.partial(run, tell), ran=_ran))
        async for event in runs:
            if isinstance(event, ToolResultEvent) and event.exception is not None:
                one.anew() if not _ran(event.exception) else one.failed(event.exception)
            # a tool that is not of Strands has no other result than the last that it says
            if event is not heard:
                yield event
            heard = event

    once = copy.copy(tool)
    vars(once)["stream"] = stream
    return once


async def _events_of(work: Callable[[Tell], Awaitable[Any]]) -> AsyncGenerator[TypedEvent, None]:
    """The events that *work* reports while it runs, and last what it returns."""
    events: asyncio.Queue[TypedEvent | None] = asyncio.Queue()
    listener, task = asyncio.current_task(), asyncio.ensure_future(work(events.put_nowait))
    assert listener is not None

    def cancel(_: Any) -> None:
        task.cancel()

    # An agent that is cancelled ends its tasks, and leaves this generator where it is.
    listener.add_done_callback(cancel)
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield task.result()
    finally:
        listener.remove_done_callback(cancel)
        task.cancel()
        await asyncio.wait([task])  # what it runs is closed next, and must not be running then


def _plain(event: ToolResultEvent) -> Any:
    """A result as it is recorded: without the id of the call that it was made for."""
    return {name: value for name, value in event.tool_result.items() if name != "toolUseId"}


def _again(recorded: Any) -> Mapping[str, Any]:
    """The same result. What a person settled is returned as that person gave it."""
    if isinstance(recorded, Mapping) and {"status", "content"} <= recorded.keys():
        return recorded
    content = {"text": recorded} if isinstance(recorded, str) else {"json": recorded}
    return {"status": "success", "content": [content]}


def _result(
    context: ExecuteToolContext, *, exception: Exception | None = None, **result: Any
) -> ToolResultEvent:
    bound: Any = {**result, "toolUseId": context.tool_use["toolUseId"]}
    return ToolResultEvent(bound, exception=exception)


def _schema(context: ExecuteToolContext) -> Mapping[str, Any]:
    schema = {} if context.tool is None else context.tool.tool_spec["inputSchema"]
    return dict(schema.get("json", schema))


def _arguments(schema: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Those that the tool knows. Others, by hand even the agent itself, do not reach it."""
    known = schema.get("properties")
    arguments = given if isinstance(given, Mapping) else {}
    return {name: value for name, value in arguments.items() if not known or name in known}


def _session(context: ExecuteToolContext) -> Stable:
    session = getattr(getattr(context.agent, "_session_manager", None), "session_id", None)
    if session is None:
        raise ContractViolation(
            "the agent has no session, so a retry could not be recognised. Nothing was sent. Give"
            " it one with Agent(session_manager=...), or say what the conversation is:"
            " EffectOnce(guard, scope=...)."
        )
    return Stable(flagged(str(session), "the session id"))


def delivered(messages: Iterable[Mapping[str, Any]]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the message before."""
    asked: dict[str, tuple[str, Any]] = {}
    for block in (block for message in messages for block in message["content"]):
        use, result = block.get("toolUse"), block.get("toolResult")
        if use is not None:
            asked[use["toolUseId"]] = (use["name"], use["input"])
        elif result is not None and result["status"] == "success" and result["toolUseId"] in asked:
            yield Delivered(*asked[result["toolUseId"]])
