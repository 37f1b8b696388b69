"""Pydantic AI: `Agent(model, capabilities=[EffectOnce(guard)])`, and the function tools of the
agent land once.

    await agent.run("refund pay_7", conversation_id="chat-42")

The conversation is the `conversation_id` of the run. One that the framework made up for this run
is no conversation, because after a crash it makes up another: nothing is sent then. What the
model was shown are the messages of the run, those that it began with included.

`ModelRetry` asks the model to call again. Where it stands for another error, a time-out above
all, what was done is unknown, and the model is shown that instead.

A call that needs an approval is a deferred one, of an agent with `DeferredToolRequests` among its
output types. The metadata of the request is the question; handed back with the approval or the
denial, it says which question that answers.
"""

from __future__ import annotations

import asyncio
import functools
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

try:
    from pydantic import TypeAdapter
    from pydantic_ai import RunContext, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import (
        ApprovalRequired,
        CallDeferred,
        ModelRetry,
        SkipToolExecution,
        ToolFailed,
        ToolFailedError,
        ToolRetryError,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ToolCallPart,
        ToolReturnPart,
        tool_return_content_ta,
    )
    from pydantic_ai.tools import ToolDefinition, ToolDenied
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.pydantic_ai needs Pydantic AI: pip install"
        " 'effectonce[pydantic-ai]'"
    ) from missing

from effectonce._core.keys import Stable
from effectonce._runtime.step import Delivered
from effectonce._tools.context import Tool
from effectonce._tools.tool import GuardedTool
from effectonce.approvals._questions import QUESTION, Approver, Approving
from effectonce.errors import (
    ApprovalNeeded,
    ContractViolation,
    EffectOnceError,
    NotSent,
    Rejected,
)
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
from effectonce.integrations._single_run import Guarded, SingleRun, under_way

MADE_UP = 7  # the version of the UUIDs that Pydantic AI makes
Of = Callable[[RunContext[Any]], str | Stable]
STEERING = (ApprovalRequired, CallDeferred, SkipToolExecution)
_tool_return: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)


class EffectOnce(AbstractCapability[Any]):
    """Every call of a function tool lands once: for `Agent(..., capabilities=[...])`.

    *contracts* says by name what the tools are, in the words of `Guard.tool`; *default* is for
    all others. *guarded* are tools that this guard protects already: their calls are only put in
    their place. *scope* and *tenant* are functions of the run's context, and so is *asked_by*,
    which says for whom a call is made. *approver* is who answers where one needs an approval: a
    name, or a function of the context. Without it, the metadata of the answer says it: `by`.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        contracts: Mapping[str, ToolOptions] | None = None,
        default: ToolOptions | None = None,
        guarded: Sequence[Tool[..., Any]] = (),
        scope: Of | None = None,
        tenant: Of | None = None,
        asked_by: Callable[[RunContext[Any]], str] | None = None,
        approver: Approver | None = None,
    ) -> None:
        self._box = AgentTools(guard, contracts, default, _plain)
        # a stranger's tool is refused there
        known = [guard._tool(tool) for tool in guarded]  # noqa: SLF001
        self._guarded = {tool.contract.name: tool for tool in known}
        self._scope, self._tenant = _conversation if scope is None else scope, tenant
        self._asked_by, self._approving = (
            asked_by,
            Approving(guard.approvals, guard.store, approver, "Pydantic AI"),
        )

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Any],
    ) -> Any:
        guarded = self._guarded.get(call.tool_name)
        if guarded is None and self._box.passes(call.tool_name):
            return await handler(args)
        once = functools.partial(self._once, guarded, ctx, call, tool_def, args, handler)
        try:
            return await self._paused(once, ctx)
        except EffectOnceError as error:
            raise ToolFailed(error_text(error)) from error

    async def _paused(self, once: Callable[[], Awaitable[Any]], ctx: RunContext[Any]) -> Any:
        """The call, when it was approved, if that is needed; without that, it is deferred."""
        answer, refused = _answer(ctx), ""
        while True:
            try:
                return await once()
            except ApprovalNeeded as error:
                needed = error
            question = await asyncio.to_thread(self._approving.question, needed, refused)
            if question is None:
                continue
            if answer.get(QUESTION) != question.id:
                raise ApprovalRequired(metadata=question.shown())
            decided = {**answer, "approved": True}
            refused = await asyncio.to_thread(self._approving.decide, question, decided, ctx)
            answer = {}

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """What was denied is not executed any more, so it is rejected here."""
        for call_id, result in (getattr(node, "tool_call_results", None) or {}).items():
            given = (node.tool_call_metadata or {}).get(call_id)
            if not isinstance(result, ToolDenied) or not isinstance(given, Mapping):
                continue
            question = await asyncio.to_thread(self._approving.asked, given)
            if question is not None:
                decided = {"reason": result.message, **given, "approved": False}
                await asyncio.to_thread(self._approving.decide, question, decided, ctx)
        return node

    async def _once(
        self,
        guarded: GuardedTool | None,
        ctx: RunContext[Any],
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Any],
    ) -> Any:
        try:
            asked, this = self._call(ctx, call, tool_def), (call.tool_name, call.tool_call_id)
            if guarded is not None:
                with await self._box.awithin(guarded, asked), Guarded(this):
                    return await handler(args)
            run = functools.partial(_proceed, handler, args)
            answer = await self._box.arun(asked, ToolRun(run, _plain, STEERING, SingleRun(this)))
            return answer.own if answer.fresh else _again(answer.recorded)
        except ReportedError as error:
            raise error.result from None

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _Inmost(toolset)

    def _call(
        self, ctx: RunContext[Any], call: ToolCallPart, tool_def: ToolDefinition
    ) -> AgentCall:
        return AgentCall(
            tool=call.tool_name,
            arguments=call.args_as_dict(),
            scope=self._scope(ctx),
            tenant=None if self._tenant is None else self._tenant(ctx),
            asked_by="" if self._asked_by is None else self._asked_by(ctx),
            shown=tuple(delivered(ctx.messages)),
            schema=tool_def.parameters_json_schema,
        )


def _answer(ctx: RunContext[Any]) -> Mapping[str, Any]:
    """What came with the approval of this call; nothing, if there is none."""
    given = ctx.tool_call_metadata if ctx.tool_call_approved else None
    return given if isinstance(given, Mapping) else {}


@dataclass
class _Inmost(WrapperToolset[Any]):
    """Below every hook: a hook that asks for the tool again gets the result of its one run."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call = functools.partial(self.wrapped.call_tool, name, tool_args, ctx, tool)
        run = under_way((name, ctx.tool_call_id))
        if run is None:
            return await call()
        try:
            return await run.arun(call)
        except (ModelRetry, ToolFailed) as wish:
            if _hidden(wish) is None:
                reported = ReportedError(None, str(wish), ran=False)
                wish.effectonce_verdict = reported.effectonce_verdict  # type: ignore[union-attr]
            raise


async def _proceed(handler: Callable[[dict[str, Any]], Any], args: dict[str, Any]) -> Any:
    try:
        return await handler(args)
    except (ToolRetryError, ToolFailedError, ToolFailed) as error:
        wish = error if isinstance(error, ToolFailed) else error.__cause__
        under = None if wish is None else _hidden(wish)
        why = str(error) if under is None else f"{type(under).__name__}: {wish}"
        raise ReportedError(error, why, ran=under is not None) from error


def _hidden(wish: BaseException) -> BaseException | None:
    """The hidden reason of a retry wish or failure; without one, the tool's word is believed."""
    under = wish.__cause__ or wish.__context__ or (wish if _of_a_server(wish) else None)
    return None if isinstance(under, Rejected | NotSent) else under


def _of_a_server(wish: BaseException) -> bool:
    """Is it made of an MCP server's error? That says nothing about what the server did before."""
    frames = [frame for frame, _ in traceback.walk_tb(wish.__traceback__)]
    return len(frames) > 0 and frames[-1].f_globals.get("__name__") == "pydantic_ai.mcp"


def _plain(result: Any) -> Any:
    """A result as it is recorded: as the model sees it."""
    if isinstance(result, ToolReturn):
        return {"tool_return": _tool_return.dump_json(result)}
    return {"value": to_jsonable_python(result)}


def _again(recorded: Any) -> Any:
    """The same to the model, with pictures and files. What a person settled is as given."""
    match recorded:
        case {"tool_return": bytes() as data, **more} if not more:
            return _tool_return.validate_json(data)
        case {"value": value, **more} if not more:
            return tool_return_content_ta.validate_python(value)
        case _:
            return recorded


def delivered(messages: Iterable[ModelMessage]) -> Iterator[Delivered]:
    """Successful results in a history. Ids may recur: each is looked up in the message before."""
    asked: dict[str, ToolCallPart] = {}
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolCallPart):
            asked[part.tool_call_id] = part
        elif isinstance(part, ToolReturnPart) and part.tool_call_id in asked:
            call, failed = asked[part.tool_call_id], is_error_text(part.content)
            if part.outcome == "success" and not failed:
                yield Delivered(call.tool_name, call.args_as_dict())


def _conversation(ctx: RunContext[Any]) -> str:
    conversation = ctx.conversation_id
    if conversation is None or (_made_up(conversation) and not _began_before(ctx, conversation)):
        raise ContractViolation(
            "the run has no conversation_id of yours, so a retry could not be recognised. Nothing"
            " was sent. Run with agent.run(..., conversation_id=...), or say what the conversation"
            " is: EffectOnce(guard, scope=...)."
        )
    return conversation


def _made_up(conversation: str) -> bool:
    try:
        return str(made := uuid.UUID(conversation)) == conversation and made.version == MADE_UP
    except ValueError:
        return False


def _began_before(ctx: RunContext[Any], conversation: str) -> bool:
    """Does the history that this run began with belong to it?"""
    return any(
        message.conversation_id == conversation and message.run_id not in (None, ctx.run_id)
        for message in ctx.messages
    )
