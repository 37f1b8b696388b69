"""A call that needs an approval, as an interruption of the OpenAI Agents SDK.

Theory of operation. The SDK asks whether to pause before a call has its context, and never looks
at a tool again before a person has answered. So nothing of ours runs while it pauses, nor when it
goes on without an answer. `sync_approvals` stands in between: it is given the state of the run,
where all is known that the call will be made of.

 1. What waits in the state waits in the store: the wish is that of the call which the run makes
    when it goes on.
 2. What was decided in the store needs no answer any more. The state lets the call go on, and the
    call ends as the store says: it is sent, or the model gets that it was not approved.
 3. What was rejected in the state is rejected in the store. What was approved there is approved in
    the store by the call itself, when the run goes on.
 4. An answer is of a person, and about what that person was shown. The state notes for each call
    which question it was last: an answer of the store's, or one to another question (arguments
    that changed, an approval that has expired), is taken back, and the call waits again. A pause
    of the tool's own is answered by no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agents import ItemHelpers, RunConfig, RunContextWrapper, RunState, ToolApprovalItem
from agents.tool_context import ToolContext

from effectonce.approvals._questions import Approver, Approving, Question
from effectonce.errors import ApprovalNeeded, ContractViolation
from effectonce.guard import Guard
from effectonce.integrations._agent_tools import Shown

NOTES = "effectonce: asked about"  # where a name of a tool stands in the SDK's approvals
BY_STORE = "decided in the store"


class RunPause:
    """What the SDK was answered, as a decision in the store."""

    def __init__(self, guard: Guard, approver: Approver | None) -> None:
        self._approving = Approving(guard.approvals, guard.store, approver, "OpenAI Agents")
        self.knows_who = approver is not None  # the SDK's answer does not say it

    async def around(self, act: Callable[[], Awaitable[Any]], context: ToolContext[Any]) -> Any:
        try:
            return await act()
        except ApprovalNeeded as error:
            if not _was_approved(context):
                raise
            question = await self.question(error)
            if question is not None:
                if not _is_about(_notes(context).get(context.tool_call_id), question):
                    raise
                answer = {"approved": True}
                why = await asyncio.to_thread(self._approving.decide, question, answer, context)
                if why:
                    raise error.because(why) from None
        return await act()

    async def question(self, error: ApprovalNeeded) -> Question | None:
        return await asyncio.to_thread(self._approving.question, error)

    async def reject(self, question: Question, message: str | None, context: Any) -> None:
        answer = {"approved": False, "reason": message}
        why = await asyncio.to_thread(self._approving.decide, question, answer, context)
        if why:
            raise ContractViolation(f"it was not rejected: {why}")


class PausedTool:
    """A protected tool, while a run waits for an answer to its call."""

    def __init__(
        self,
        ask: Callable[[ToolContext[Any], str], Awaitable[bool]],
        pause: RunPause,
        shown: Shown,
    ) -> None:
        self._ask, self._pause, self._shown = ask, pause, shown

    async def sync(
        self, state: RunState[Any], item: ToolApprovalItem, run_config: RunConfig | None
    ) -> None:
        run = state._context  # noqa: SLF001  # nothing public has it
        assert run is not None
        name, call_id, given = str(item.name), str(item.call_id), str(item.arguments)
        self._shown.note(run.usage, _sent_to_model(state))
        context = ToolContext.from_agent_context(
            run,
            call_id,
            agent=item.agent,
            tool_name=name,
            tool_arguments=given,
            run_config=run_config,
        )
        if _notes(run).get(call_id) == BY_STORE:
            _take_back(run, call_id)
        try:
            decided = await self._ask(context, given)
        except ApprovalNeeded as error:
            question = await self._pause.question(error)
            if question is not None:
                await self._answered(run, item, question, context)
            return
        if decided and _unanswered(run, item):
            state.approve(item)
            _notes(run)[call_id] = BY_STORE

    async def _answered(
        self, run: RunContextWrapper[Any], item: ToolApprovalItem, question: Question, context: Any
    ) -> None:
        """It waits in the store. What the state has of an answer is to this question, or to none
        that stands.
        """
        name, call_id = str(item.name), str(item.call_id)
        if run.get_approval_status(name, call_id, existing_pending=item) is False:
            message = run.get_rejection_message(name, call_id, existing_pending=item)
            await self._pause.reject(question, message, context)
            return
        if not _is_about(_notes(run).get(call_id), question):
            _take_back(run, call_id)
        _notes(run)[call_id] = question.id


async def sync_approvals(
    state: RunState[Any], *, run_config: RunConfig | None = None, context: Any = None
) -> list[ToolApprovalItem]:
    """Let the paused run and the store agree. Call it when a run has paused, and again before the
    run is resumed: what waits for a person can then be decided in either of them.

    Returns the calls that still wait for a person. If there are none, resume the run at once.

    *run_config* and *context* are those of the run, as for `Runner.run`. A call of an agent that
    is used as a tool of another is left to the SDK.
    """
    run, agent = state._context, state._current_agent  # noqa: SLF001  # nothing public has them
    if run is None or agent is None:
        return []
    if context is not None:
        run.context = context
    waiting = [item for item in state.get_interruptions() if item.agent is agent]
    tools = {tool.name: tool for tool in await agent.get_all_tools(run)} if waiting else {}
    for item in waiting:
        invoke = getattr(tools.get(str(item.name)), "on_invoke_tool", None)
        paused = getattr(invoke, "__effectonce_paused__", None)
        if isinstance(paused, PausedTool):
            await paused.sync(state, item, run_config)
    return [item for item in state.get_interruptions() if _waits(state, item)]


def _waits(state: RunState[Any], item: ToolApprovalItem) -> bool:
    """Has it no answer, in its own state? An agent that is used as a tool has a state within."""
    nested = state._find_nested_approval_state(item)  # noqa: SLF001  # nothing public has it
    within, inner = (state, item) if nested is None else nested
    run = within._context  # noqa: SLF001  # as above
    return run is None or _unanswered(run, inner)


def _unanswered(run: RunContextWrapper[Any], item: ToolApprovalItem) -> bool:
    name, call_id = str(item.name), str(item.call_id)
    return run.get_approval_status(name, call_id, existing_pending=item) is None


def _was_approved(context: ToolContext[Any]) -> bool:
    """This very call, whose arguments were shown: not all calls of the tool."""
    return bool(_approving(context, context.tool_call_id))


def _approving(run: RunContextWrapper[Any], call_id: str) -> list[list[str]]:
    """The lists of calls that were approved in which this one is."""
    records = run._approvals.values()  # noqa: SLF001  # the public answer counts all as well
    named = (each.approved for each in records if isinstance(each.approved, list))
    return [approved for approved in named if call_id in approved]


def _take_back(run: RunContextWrapper[Any], call_id: str) -> None:
    """Its answer counts no more: it waits again."""
    _notes(run).pop(call_id, None)
    for approved in _approving(run, call_id):
        approved.remove(call_id)


def _notes(run: RunContextWrapper[Any]) -> dict[str, str]:
    """By call, which question was asked last. It is kept with the state: the SDK stores a record
    of approvals for each name of a tool, and this is one, with texts by call.
    """
    records = run._approvals  # noqa: SLF001  # nothing public is kept with a state
    if NOTES not in records:
        records[NOTES] = run._restore_approval_record({})  # noqa: SLF001  # an empty one
    return records[NOTES].rejection_messages


def _is_about(asked: str | None, question: Question) -> bool:
    """Is an answer one to this question? Without a note, the state was never synced: then it is
    about the arguments that the model wrote, and the person was shown these.
    """
    return asked == question.id if asked is not None else not question.wish.expired


def had_the_same_call(context: ToolContext[Any]) -> bool:
    """Was it made, and answered, in this run before? A state has no more of that for a tool."""
    calls = context._tool_invocations  # noqa: SLF001  # nothing public has them
    this = calls.get(context.tool_call_id)
    others = (each for each in calls.values() if each is not this and each.completed)
    return this is not None and any(each.fingerprint == this.fingerprint for each in others)


def _sent_to_model(state: RunState[Any]) -> list[Any]:
    """What the model had been sent when it asked for the calls that wait."""
    given, made = state._original_input, state._generated_items  # noqa: SLF001  # as above
    items: list[Any] = ItemHelpers.input_to_new_input_list(given)
    items += [item.to_input_item() for item in made if not isinstance(item, ToolApprovalItem)]
    response = state._model_responses[-1].output  # noqa: SLF001  # as above
    asked = [part.call_id for part in response if part.type == "function_call"]
    for at in range(len(items) - 1, -1, -1):
        if items[at].get("type") == "function_call" and items[at]["call_id"] == asked[0]:
            return items[:at]
    return items
