"""Microsoft Agent Framework: `Agent(client, tools=[...], middleware=EffectOnce(guard))`, and the
function tools of the agent land once.

    await agent.run("refund pay_7", session=agent.create_session(session_id="chat-42"))

The conversation is the session that the run is given. One that the framework makes up for a run
is no conversation, because after a crash it makes up another: nothing is sent then. What the
model was shown is what the framework sends to it, history included.

The framework tells the model "Error: Function failed." after any error of a tool. Here an error
is judged first: what may have happened is reported as such. Approvals, terminations and requests
for input pass through.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

try:
    from agent_framework import (
        AgentContext,
        AgentMiddleware,
        AgentSession,
        ChatContext,
        ChatMiddleware,
        Content,
        FunctionInvocationContext,
        FunctionMiddleware,
        FunctionTool,
        Message,
        MiddlewareFailure,
        MiddlewareTermination,
    )
    from agent_framework.exceptions import ToolException, UserInputRequiredException
    from pydantic import ValidationError
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.agent_framework needs the framework: pip install"
        " 'effectonce[agent-framework]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered, flagged
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    AgentCall,
    AgentTools,
    ReportedError,
    ToolRun,
    error_text,
    is_error_text,
)
from effectonce.integrations._contracts import ToolOptions
from effectonce.integrations._single_run import Guarded, SingleRun, stand_around

Of = Callable[[FunctionInvocationContext], str | Stable]
Next = Callable[[], Awaitable[None]]
STEERING = (MiddlewareFailure, MiddlewareTermination, UserInputRequiredException)


def EffectOnce(
    guard: Guard,
    *,
    contracts: Mapping[str, ToolOptions] | None = None,
    default: ToolOptions | None = None,
    scope: Of | None = None,
    tenant: Of | None = None,
) -> list[AgentMiddleware | ChatMiddleware | FunctionMiddleware]:
    """Every call of a function tool lands once: for `Agent(..., middleware=EffectOnce(guard))`,
    or `middleware=[*EffectOnce(guard), yours]`.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already need none. *scope* and *tenant* are
    functions of the context of the call: by default the session, and the guard's own.
    """
    runs = _AgentRuns()
    where = runs.session if scope is None else scope
    return [
        _Given(runs),
        _ListeningAgent(runs),
        _FunctionCalls(AgentTools(guard, contracts, default), runs, where, tenant),
    ]


class _FunctionCalls(FunctionMiddleware):
    def __init__(self, box: AgentTools, runs: _AgentRuns, scope: Of, tenant: Of | None) -> None:
        self._box, self._runs, self._scope, self._tenant = box, runs, scope, tenant

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        tool = context.function
        guarded = self._box.mine(tool.func)
        passes = _is_agent(tool) or _is_used_up(tool)
        if passes or (guarded is None and self._box.passes(tool.name)):
            return await call_next()
        try:
            call = self._call(context)
            stand_around(tool, "invoke", ran=_ran)
            if guarded is not None:
                with await self._box.awithin(guarded, call), Guarded(tool):
                    return await call_next()
            run = functools.partial(_proceed, context, call_next)
            leg = ToolRun(run, _plain, (*STEERING, _Theirs), SingleRun(tool))
            answer = await self._box.arun(call, leg)
            context.result = answer.own if answer.fresh else _again(answer.recorded)
        except ReportedError as error:
            context.result = error.result
        except _Theirs as error:
            raise error.error from None
        except EffectOnceError as error:
            context.result = [Content.from_text(error_text(error))]
        return None

    def _call(self, context: FunctionInvocationContext) -> AgentCall:
        tool = context.function
        shown = (d for d in delivered(self._runs.shown(context.session)) if d.tool == tool.name)
        return AgentCall(
            tool=tool.name,
            arguments=_arguments(tool, context.arguments),
            scope=self._scope(context),
            tenant=None if self._tenant is None else self._tenant(context),
            shown=tuple(Delivered(d.tool, _arguments(tool, d.arguments)) for d in shown),
            schema=tool.parameters(),
        )


def _is_agent(tool: FunctionTool) -> bool:
    """An agent that is used as a tool is no effect: it has tools of its own."""
    return getattr(tool.func, "__module__", "") == "agent_framework._agents"


def _is_used_up(tool: FunctionTool) -> bool:
    """The framework will not run it any more, and says so."""
    calls, errors = tool.max_invocations, tool.max_invocation_exceptions
    return (calls is not None and tool.invocation_count >= calls) or (
        errors is not None and tool.invocation_exception_count >= errors
    )


class _Theirs(Exception):
    """The framework's own error; the tool was not run: arguments unfit, or not those approved."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _ran(error: BaseException) -> bool:
    """Did the tool raise it? A framework error says that it did not run, but for tools' own one."""
    theirs = type(error).__module__.startswith("agent_framework.")
    return not theirs or isinstance(error, (ToolException, *STEERING))


async def _proceed(context: FunctionInvocationContext, call_next: Next) -> Any:
    try:
        await call_next()
    except Exception as error:  # of a layer behind us, or of the tool
        if _ran(error):
            raise
        raise _Theirs(error) from error
    result = context.result
    if isinstance(result, Content) and result.type == "function_approval_request":
        raise ReportedError(result, "a person is asked first", ran=False)
    return result


def _arguments(tool: FunctionTool, given: Any) -> dict[str, Any]:
    """As the tool reads them, from the model or from the framework, which has read them already."""
    if tool.input_model is not None:
        try:
            given = tool.input_model.model_validate(given)
        except ValidationError:
            pass
        else:
            given = given.model_dump(exclude_unset=True)
    return dict(to_jsonable_python(given))


def _plain(result: Any) -> Any:
    """A result as it is recorded: as the model sees it."""
    if isinstance(result, list) and all(isinstance(item, Content) for item in result):
        return {"contents": [item.to_dict() for item in result]}
    return {"value": to_jsonable_python(result, fallback=str)}


def _again(recorded: Any) -> Any:
    """The same to the model. What a person settled is returned as that person gave it."""
    match recorded:
        case {"value": value, **more} if not more:
            return value
        case {"contents": list() as contents, **more} if not more:
            return [Content.from_dict(item) for item in contents]
        case _:
            return recorded


# ---------------------------------------------------------------- what the model was shown


class _AgentRuns:
    """The sessions given to runs and what each last sent the model. Without one: by context."""

    def __init__(self) -> None:
        self.given: weakref.WeakSet[AgentSession] = weakref.WeakSet()
        self._sent = weakref.WeakKeyDictionary[AgentSession, Sequence[Message]]()
        self._here = ContextVar[Sequence[Message]]("effectonce_agent_framework_sent", default=())

    def sent(self, session: AgentSession | None, messages: Sequence[Message]) -> None:
        if session is None:
            self._here.set(list(messages))
        else:
            self._sent[session] = list(messages)

    def shown(self, session: AgentSession | None) -> Sequence[Message]:
        return self._here.get() if session is None else self._sent.get(session, ())

    def session(self, context: FunctionInvocationContext) -> Stable:
        session = context.session
        if session is None or session not in self.given:
            raise ContractViolation(
                "the run was given no session, so a retry could not be recognised. Nothing was"
                " sent. Run with agent.run(..., session=...), or say what the conversation is:"
                " EffectOnce(guard, scope=...)."
            )
        return Stable(flagged(str(session.session_id), "the session id"))


class _Given(AgentMiddleware):
    def __init__(self, runs: _AgentRuns) -> None:
        self._runs = runs

    async def process(self, context: AgentContext, call_next: Next) -> None:
        if context.session is not None:
            self._runs.given.add(context.session)
        await call_next()


class _ListeningAgent(ChatMiddleware):
    def __init__(self, runs: _AgentRuns) -> None:
        self._runs = runs

    async def process(self, context: ChatContext, call_next: Next) -> None:
        await call_next()
        self._runs.sent(context.session, context.messages)  # as those after us left it


def delivered(messages: Iterable[Message]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the contents before."""
    asked: dict[str | None, Content] = {}
    for content in (content for message in messages for content in message.contents):
        if content.type == "function_call":
            asked[content.call_id] = content
        elif content.type == "function_result" and content.call_id in asked:
            call, failed = asked[content.call_id], is_error_text(content.result)
            if content.exception is None and not failed:
                yield Delivered(str(call.name), call.parse_arguments() or {})
