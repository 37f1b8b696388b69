"""LangChain and LangGraph: the tools of an agent land once.

    agent = create_agent(model, tools, middleware=[EffectOnce(guard)], checkpointer=...)
    graph.add_node("tools", tool_node(tools, guard))
    graph.add_node("pay", once_node(guard, pay), retry_policy=retry_policy())

The conversation is the thread, and what the model was shown are the messages of the state. Ids
of calls, tasks, checkpoints and runs are not looked at: after a crash, with the default
durability, each of them may be new for the same call. A result that is known already goes out
under the id of the call that asks now. Interrupts and the other ways in which a graph steers
itself pass through untouched.

A call that needs an approval is an interrupt, where there is a checkpointer: see
`_langgraph_pause.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp
    from langgraph.prebuilt import ToolNode
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.pregel import Pregel
    from langgraph.types import Command, RetryPolicy
    from pydantic import BaseModel, ValidationError
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.langchain needs LangChain: pip install 'effectonce[langchain]'"
    ) from missing

from effectonce._core.classification.classify import Rules
from effectonce._core.decisions import GOES_ON
from effectonce._core.guarantees import Kind
from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered, Step, flagged
from effectonce._tools.tool import GuardedTool
from effectonce.approvals._questions import Approver
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import (
    AgentCall,
    AgentTools,
    ReportedError,
    ToolAnswer,
    ToolRun,
    error_text,
    is_error_text,
    text_of,
)
from effectonce.integrations._contracts import ToolOptions
from effectonce.integrations._langgraph_pause import GraphPause
from effectonce.integrations._occurrence import run_within
from effectonce.integrations._single_run import Guarded, SingleRun
from effectonce.policy import Retry
from effectonce.retries.retry import advise

Of = Callable[[ToolCallRequest], str | Stable]
G = TypeVar("G", bound=Pregel[Any, Any, Any, Any])
_serde = JsonPlusSerializer()


class EffectOnce(AgentMiddleware[Any, Any, Any]):
    """Every call of a tool lands once: for `create_agent(..., middleware=[...])`, and for
    `ToolNode`.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. Tools that this guard protects already need none. *scope* and *tenant* are
    functions of a request: by default the thread, and the guard's own. *asked_by* says of a
    request for whom it is made, and *approver* who answers where a call needs an approval: a
    name, or a function of the graph's config. Without it, the answer has to say who.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        contracts: Mapping[str, ToolOptions] | None = None,
        default: ToolOptions | None = None,
        scope: Of | None = None,
        tenant: Of | None = None,
        asked_by: Callable[[ToolCallRequest], str] | None = None,
        approver: Approver | None = None,
    ) -> None:
        super().__init__()
        self._box = AgentTools(guard, contracts, default, _content)
        self._scope, self._tenant = _thread if scope is None else scope, tenant
        self._asked_by, self._pause = asked_by, GraphPause(guard, approver)
        self._messages_key = "messages"

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        guarded = self._guarded(request)
        if guarded is None and self._box.passes(request.tool_call["name"]):
            return handler(request)
        try:
            return self._pause.around(lambda: self._once(guarded, request, handler))
        except (EffectOnceError, ReportedError) as error:
            return _as_tool_message(error, request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        guarded = self._guarded(request)
        if guarded is None and self._box.passes(request.tool_call["name"]):
            return await handler(request)
        try:
            return await self._pause.aaround(lambda: self._aonce(guarded, request, handler))
        except (EffectOnceError, ReportedError) as error:
            return _as_tool_message(error, request)

    def _once(
        self,
        guarded: GuardedTool | None,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Any],
    ) -> Any:
        call = self._call(request)
        if guarded is None:
            return _shown(self._box.run(call, _leg(request, handler)), request)
        with self._box.within(guarded, call), Guarded() as judged:
            return handler(_followed(request, judged))

    async def _aonce(
        self,
        guarded: GuardedTool | None,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Any],
    ) -> Any:
        call = self._call(request)
        if guarded is None:
            return _shown(await self._box.arun(call, _leg(request, handler)), request)
        with await self._box.awithin(guarded, call), Guarded() as judged:
            return await handler(_followed(request, judged))

    def _guarded(self, request: ToolCallRequest) -> GuardedTool | None:
        tool = request.tool
        functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
        return next((mine for mine in map(self._box.mine, functions) if mine is not None), None)

    def _call(self, request: ToolCallRequest) -> AgentCall:
        return AgentCall(
            tool=request.tool_call["name"],
            arguments=request.tool_call["args"],
            scope=self._scope(request),
            tenant=None if self._tenant is None else self._tenant(request),
            asked_by="" if self._asked_by is None else self._asked_by(request),
            shown=tuple(delivered(_messages(request.state, self._messages_key))),
            schema=_schema(request.tool),
        )


def _leg(request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> ToolRun:
    one = SingleRun()
    followed = _followed(request, one)
    plain = functools.partial(_plain, followed)
    return ToolRun(lambda: handler(followed), plain, (GraphBubbleUp,), one)


def tool_node(
    tools: Sequence[BaseTool | Callable[..., Any]],
    guard: Guard,
    *,
    contracts: Mapping[str, ToolOptions] | None = None,
    default: ToolOptions | None = None,
    scope: Of | None = None,
    tenant: Of | None = None,
    asked_by: Callable[[ToolCallRequest], str] | None = None,
    approver: Approver | None = None,
    **options: Any,
) -> ToolNode:
    """A `ToolNode` whose tools land once, for graphs built by hand. *options* are its own."""
    once = EffectOnce(
        guard,
        contracts=contracts,
        default=default,
        scope=scope,
        tenant=tenant,
        asked_by=asked_by,
        approver=approver,
    )
    # only a graph that is built by hand has another
    once._messages_key = options.get("messages_key", "messages")  # noqa: SLF001
    return ToolNode(
        tools, wrap_tool_call=once.wrap_tool_call, awrap_tool_call=once.awrap_tool_call, **options
    )


def once_node(
    guard: Guard,
    function: Callable[..., Any],
    *,
    step: str | Callable[[Any], str] | None = None,
    asked_by: str | Callable[[Any], str] = "",
    approver: Approver | None = None,
) -> Callable[..., Any]:
    """A node in which guarded tools can be called: the thread is their scope, and the node with
    its place in the graph is their step.

    Run again by a retry, or resumed after a crash, it is the same step. The next visit of the
    node in the same thread is another one, and so is each of several `Send`. *step* names the
    step instead, for every visit or, if it is a function, by the state that the node is given:
    then each of its calls is done once in a thread under this name, also if the graph is run
    again from an older checkpoint.

    *asked_by* is for whom its calls are made, a name or a function of the state, and *approver*
    who answers where one needs an approval, as in `EffectOnce`. The node then pauses, and is
    run from its start when it goes on.
    """

    def place(state: Any, *_args: Any, **_kwargs: Any) -> Step:
        config = get_config()
        asks = asked_by(state) if callable(asked_by) else asked_by
        if callable(step):
            name: str | Stable = step(state)
        else:
            name = step or Stable(_visit(config.get("metadata", {})))
        return guard.step(_thread_of(config), name, asked_by=asks)

    return GraphPause(guard, approver).node(run_within(function, place))


def _visit(metadata: Mapping[str, Any]) -> str:
    """This visit of a node. Not known in a subgraph: LangGraph counts anew on each entry."""
    node = metadata["langgraph_node"]
    if "|" in metadata["langgraph_checkpoint_ns"]:
        raise ContractViolation(
            f"{node} is a node of a subgraph, where LangGraph counts from 1 on every visit: a new"
            " request would look like a retry. Nothing was sent. Name the step: once_node(guard,"
            f" {node}, step=lambda state: ...)."
        )
    how, *index = metadata["langgraph_path"]
    sent = "".join(f"/{part}" for part in index) if how == PUSH else ""
    return f"{node}/{metadata['langgraph_step']}{sent}"


def retry_policy(
    retry: Retry | None = None,
    *,
    kind: str | Kind = "write",
    rules: Rules = (),
    one_request: bool = False,
) -> RetryPolicy:
    """LangGraph's `RetryPolicy` with our judgement: what is tried again is what is safe to try
    again.

    The default is for a node whose effects are guarded: our own errors say themselves whether to
    repeat a call. The delays are LangGraph's: the interval and up to one second more, which is
    less spread than full jitter; where many agents call one service, let the tool retry.
    """
    retry = Retry() if retry is None else retry

    def safe(error: Exception) -> bool:
        if isinstance(error, GraphBubbleUp):
            return False
        if isinstance(error, EffectOnceError):
            return error.retriable
        return advise(error, kind=kind, rules=rules, one_request=one_request).action in GOES_ON

    return RetryPolicy(
        initial_interval=retry.base_s,
        backoff_factor=retry.multiplier,
        max_interval=retry.cap_s,
        max_attempts=retry.attempts,
        jitter=True,
        retry_on=safe,
    )


def durable(graph: G) -> G:
    """The same graph, which saves each step before the next one begins: resumed after a crash,
    it goes on exactly where it stopped.

    An invocation that names its `durability` has the last word.
    """
    return graph.with_config({"configurable": {DURABILITY: "sync"}})


def check_durability(durability: str | None) -> str:
    """Warn about a durability mode in which a crash costs more than it has to, and hand it on:
    `durability=check_durability("sync")`.

    Effects land once in all of them. Unless each step is saved before the next one begins, a
    model may be asked again after a crash.
    """
    mode = "async" if durability is None else durability
    if mode != "sync":
        kept = "nothing" if mode == "exit" else "not always the last step"
        warnings.warn(
            f"durability={mode!r} keeps {kept} of a run that crashed: its model is asked again, and"
            " may decide otherwise. Effects still land once for the same wish. Use"
            " durability='sync', or durable(graph), to resume exactly where it stopped.",
            stacklevel=2,
        )
    return mode


# ---------------------------------------------------------------- what the model was shown


def delivered(messages: Iterable[AnyMessage]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the message before."""
    asked: dict[str | None, tuple[str, Mapping[str, Any]]] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            asked |= {call["id"]: (call["name"], call["args"]) for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and message.tool_call_id in asked:
            # other middleware may have made a result of our error
            failed = message.status == "error" or is_error_text(message.text)
            if not failed:
                yield Delivered(*asked[message.tool_call_id])


def _messages(state: Any, key: str) -> Sequence[AnyMessage]:
    if isinstance(state, Mapping):
        return state.get(key) or ()
    return state if isinstance(state, list) else getattr(state, key, ())


DURABILITY = "__pregel_durability"  # what LangGraph hands on to the graphs inside a graph
PUSH = "__pregel_push"  # how LangGraph names a task that was sent


def _thread(request: ToolCallRequest) -> Stable:
    return _thread_of(request.runtime.config)


def _thread_of(config: RunnableConfig) -> Stable:
    """A checkpointer saves by thread: a process that goes on with a conversation has its id."""
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None:
        raise ContractViolation(
            "there is no thread, so a retry could not be recognised. Nothing was sent. Invoke with"
            " a checkpointer and config={'configurable': {'thread_id': ...}}, or say what the"
            " conversation is: EffectOnce(guard, scope=...)."
        )
    return Stable(flagged(str(thread), "the thread id"))


def _schema(tool: BaseTool | None) -> Mapping[str, Any]:
    if tool is None:
        return {}
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    return schema.model_json_schema() if issubclass(schema, BaseModel) else {}


class _Followed(ToolCallRequest):
    """A request that notes if an inner layer changed it: its arguments then do not say what ran."""

    changed = False

    def override(self, **overrides: Any) -> ToolCallRequest:
        object.__setattr__(self, "changed", True)  # the framework warns of any other way
        return super().override(**overrides)


def _followed(request: ToolCallRequest, one: SingleRun) -> _Followed:
    """The same request, whose tool is run once: every layer further in asks for that run."""
    tool = request.tool
    if tool is None:
        return _Followed(request.tool_call, None, request.state, request.runtime)

    def invoke(given: Any, *args: Any, **kwargs: Any) -> Any:
        ran = functools.partial(_ran, tool, given)
        return one.run(lambda: tool.invoke(given, *args, **kwargs), ran=ran)

    async def ainvoke(given: Any, *args: Any, **kwargs: Any) -> Any:
        ran = functools.partial(_ran, tool, given)
        return await one.arun(lambda: tool.ainvoke(given, *args, **kwargs), ran=ran)

    once = copy.copy(tool)
    object.__setattr__(once, "invoke", invoke)  # it is a model, and those are no fields
    object.__setattr__(once, "ainvoke", ainvoke)
    return _Followed(request.tool_call, once, request.state, request.runtime)


def _ran(tool: BaseTool, given: Any, error: BaseException) -> bool:
    """Did the tool raise it? What it was not run for may be called better."""
    return not isinstance(error, ValidationError) or _takes(tool, given["args"])


def _takes(tool: BaseTool, arguments: Any) -> bool:
    schema = tool.tool_call_schema
    if isinstance(schema, dict) or not issubclass(schema, BaseModel):
        return True
    try:
        schema.model_validate(arguments)
    except ValidationError:
        return False
    return True


# ---------------------------------------------------------------- results, in both directions


def _plain(request: _Followed, result: Any) -> Any:
    """A result as recorded. An error that the framework made a message is raised, to be judged."""
    if isinstance(result, ToolMessage):
        if result.status == "error":
            tool, args = request.tool, request.tool_call["args"]
            ran = request.changed or (tool is not None and _takes(tool, args))
            raise ReportedError(result, f"the tool reports an error: {result.text[:200]}", ran=ran)
        return {"content": result.content, "artifact": result.artifact}
    kind, data = _serde.dumps_typed(result)
    return {"serialised": kind, "data": data}


def _content(result: Any) -> dict[str, Any]:
    """The same for a result that came without the framework, which shows the model text."""
    return {"content": text_of(result), "artifact": None}


def _shown(answer: ToolAnswer, request: ToolCallRequest) -> Any:
    if answer.fresh or answer.outcome is None:
        return answer.own
    recorded, call = answer.recorded, request.tool_call
    forms = ({"content", "artifact"}, {"serialised", "data"})
    if not isinstance(recorded, dict) or recorded.keys() not in forms:
        recorded = _content(recorded)  # a person settled it, in other words
    if "serialised" in recorded:
        return _rebound(_serde.loads_typed((recorded["serialised"], recorded["data"])), call["id"])
    about = {"replayed": True, "operation": answer.outcome.effect.reference}
    return ToolMessage(
        **recorded,
        name=call["name"],
        tool_call_id=call["id"],
        additional_kwargs={"effectonce": about},
    )


def _rebound(result: Any, call_id: str | None) -> Any:
    """Under the id of the call that asks now: the original may be nowhere in the history."""
    if isinstance(result, list):
        return [_rebound(each, call_id) for each in result]
    if isinstance(result, ToolMessage):
        return result.model_copy(update={"tool_call_id": call_id})
    update = result.update if isinstance(result, Command) else None
    if isinstance(update, Mapping) and "messages" in update:
        messages = [
            _rebound(each, call_id) if isinstance(each, ToolMessage) else each
            for each in update["messages"]
        ]
        return dataclasses.replace(result, update={**update, "messages": messages})
    return result


def _as_tool_message(error: EffectOnceError | ReportedError, request: ToolCallRequest) -> Any:
    """An error as the model gets it. One that the tool reported has its own message."""
    if isinstance(error, ReportedError):
        return error.result
    call = request.tool_call
    return ToolMessage(
        content=error_text(error), name=call["name"], tool_call_id=call["id"], status="error"
    )
