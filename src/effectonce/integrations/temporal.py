"""Temporal: whatever is retried, reset or started again, an activity's guarded tools have one
effect.

    client = await Client.connect("localhost:7233", plugins=[EffectOnce(guard)])

Theory of operation. An activity is a step, and its place must be the same however often it is
run. Run ids and activity ids are not: a workflow that is retried or reset has new ones. So the
place travels in headers, which the server keeps with the history.

 1. The client says whose workflow it is and which: the tenant and the workflow id.
 2. The workflow counts its places by what is asked for, see `_occurrence.py`, and says to each
    activity where it is. An activity id that was given by hand is a place by itself. A child
    workflow's scope is its place in its parent.
 3. What continues as new is another generation: the same request there is another effect.
 4. The worker enters `guard.step(scope, place)` around the activity, and tells Temporal what our
    errors mean.
 5. A call that needs an approval fails its activity with a question, see `_temporal_questions.py`.

A workflow that was started without the client's header, by a schedule or on the command line,
has its workflow id for a scope.
"""

# ruff: noqa: A002  # the names of the parameters are theirs

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from effectonce import EffectOnceError, Guard, InDoubt, Stable
from effectonce._runtime.step import here
from effectonce.approvals._questions import Approver, Approving
from effectonce.errors import ApprovalNeeded
from effectonce.integrations._occurrence import Occurrences, is_known
from effectonce.integrations._occurrence import retriable as is_retriable

try:
    import temporalio.client as tc
    import temporalio.worker as tw
    from temporalio import workflow
    from temporalio.api.common.v1 import Payload
    from temporalio.exceptions import ActivityError, ApplicationError, FailureError
    from temporalio.plugin import SimplePlugin
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.temporal needs temporalio: pip install 'effectonce[temporal]'"
    ) from missing

from effectonce.integrations._temporal_questions import (
    answer_here,
    approval_needed,
    until_approved,
)

__all__ = [
    "EffectOnce",
    "EffectOnceInterceptor",
    "application_error",
    "approval_needed",
    "in_doubt",
    "until_approved",
    "until_settled",
]

T = TypeVar("T")
HEADER = "effectonce"
ANSWER_HEADER = "effectonce-answer"
QUERY, SIGNAL = "effectonce_in_doubt", "effectonce_settled"


class Origin(Struct, frozen=True):
    """Whose workflow, which one, and how often it has continued as new."""

    scope: str
    tenant: str | None = None
    generation: int = 0


class At(Struct, frozen=True):
    """Where an activity is. *by_hand*: its id was given to it, and nothing else has it."""

    scope: str
    step: str
    tenant: str | None
    by_hand: bool


# ---------------------------------------------------------------- the plugin


class EffectOnce(SimplePlugin):
    """Give it to the client, and to workers that have another client:
    `plugins=[EffectOnce(guard)]`.

    The same workflow id is the same workflow, also if it is started again. With
    *each_start_anew* every start is another one. *approver* is who answers where a call needs an
    approval (`until_approved`): a name, or a function of the answer. Without it, the answer's
    `by`.
    """

    def __init__(
        self, guard: Guard, *, each_start_anew: bool = False, approver: Approver | None = None
    ) -> None:
        interceptor = EffectOnceInterceptor(
            guard, each_start_anew=each_start_anew, approver=approver
        )
        super().__init__(
            "effectonce", interceptors=[interceptor], workflow_runner=_passing_effectonce_through
        )


def _passing_effectonce_through(runner: tw.WorkflowRunner | None) -> tw.WorkflowRunner:
    """A workflow may import effectonce: none of it runs there, so one import serves all."""
    if isinstance(runner, SandboxedWorkflowRunner):
        passing = runner.restrictions.with_passthrough_modules("effectonce", "msgspec")
        return dataclasses.replace(runner, restrictions=passing)
    assert runner is not None
    return runner


class EffectOnceInterceptor(tc.Interceptor, tw.Interceptor):
    """The same without the plugin: `interceptors=[EffectOnceInterceptor(guard)]`."""

    def __init__(
        self, guard: Guard, *, each_start_anew: bool = False, approver: Approver | None = None
    ) -> None:
        self.guard, self.each_start_anew = guard, each_start_anew
        self._approving = Approving(guard.approvals, guard.store, approver, "Temporal")

    def intercept_client(self, next: tc.OutboundInterceptor) -> tc.OutboundInterceptor:
        """Every start says whose it is."""
        return _Client(next, each_start_anew=self.each_start_anew)

    def workflow_interceptor_class(
        self, input: tw.WorkflowInterceptorClassInput
    ) -> type[tw.WorkflowInboundInterceptor]:
        """Every workflow counts its places."""
        return _AnewWorkflow if self.each_start_anew else _Workflow

    def intercept_activity(
        self, next: tw.ActivityInboundInterceptor
    ) -> tw.ActivityInboundInterceptor:
        """Every activity is a step."""
        return _Activity(next, self.guard, self._approving)


# ---------------------------------------------------------------- the client


class _Client(tc.OutboundInterceptor):
    def __init__(self, next: tc.OutboundInterceptor, *, each_start_anew: bool) -> None:
        super().__init__(next)
        self._anew = each_start_anew

    async def start_workflow(self, input: tc.StartWorkflowInput) -> tc.WorkflowHandle[Any, Any]:
        input.headers = self._from(input.id, input.headers)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self, input: tc.StartWorkflowUpdateWithStartInput
    ) -> tc.WorkflowUpdateHandle[Any]:
        start = input.start_workflow_input
        start.headers = self._from(start.id, start.headers)
        return await super().start_update_with_start_workflow(input)

    def _from(self, workflow_id: str, headers: Mapping[str, Payload]) -> dict[str, Payload]:
        boundary = here.get()
        scope = f"{workflow_id}/{uuid.uuid4().hex}" if self._anew else workflow_id
        origin = Origin(scope, None if boundary is None else boundary.tenant)
        return {HEADER: _payload(origin), **headers}


# ---------------------------------------------------------------- the workflow


class _Workflow(tw.WorkflowInboundInterceptor):
    each_start_anew = False

    def init(self, outbound: tw.WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, each_start_anew=self.each_start_anew))


class _AnewWorkflow(_Workflow):
    each_start_anew = True


class _Outbound(tw.WorkflowOutboundInterceptor):
    def __init__(self, next: tw.WorkflowOutboundInterceptor, *, each_start_anew: bool) -> None:
        super().__init__(next)
        self._places, self._anew = Occurrences(), each_start_anew

    def start_activity(self, input: tw.StartActivityInput) -> workflow.ActivityHandle[Any]:
        return self._started(input, super().start_activity)

    def start_local_activity(
        self, input: tw.StartLocalActivityInput
    ) -> workflow.ActivityHandle[Any]:
        return self._started(input, super().start_local_activity)

    async def start_child_workflow(
        self, input: tw.StartChildWorkflowInput
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        origin, asked = self._origin(), _asked(input.args)
        place = self._places.take(input.workflow, asked)
        child = Origin(f"{_scope(origin)}/{input.workflow}#{place}", origin.tenant)
        input.headers = {**input.headers, HEADER: _payload(child)}
        try:
            handle = await super().start_child_workflow(input)
        except FailureError:
            self._places.give_back(input.workflow, asked, place)
            raise
        self._given_back_if_it_fails(handle, input.workflow, asked, place)
        return handle

    def continue_as_new(self, input: tw.ContinueAsNewInput) -> Any:
        origin = self._origin()
        following = Origin(origin.scope, origin.tenant, origin.generation + 1)
        input.headers = {**input.headers, HEADER: _payload(following)}
        return super().continue_as_new(input)

    def _started(
        self, input: Any, start: Callable[[Any], workflow.ActivityHandle[Any]]
    ) -> workflow.ActivityHandle[Any]:
        origin = self._origin()
        if input.activity_id is not None:
            at = At(_scope(origin), input.activity_id, origin.tenant, by_hand=True)
            input.headers = {**input.headers, HEADER: _payload(at), **_answered()}
            return start(input)
        asked = _asked(input.args)
        place = self._places.take(input.activity, asked)
        # Requests that differ share a step, so that they are recognised also where only the
        # words of a volatile argument differ. They may run side by side: no latch.
        at = At(_scope(origin), f"{input.activity}#{place}", origin.tenant, by_hand=False)
        input.headers = {**input.headers, HEADER: _payload(at), **_answered()}
        handle = start(input)
        self._given_back_if_it_fails(handle, input.activity, asked, place)
        return handle

    def _given_back_if_it_fails(
        self, handle: asyncio.Task[Any], name: str, asked: bytes, place: int
    ) -> None:
        def ended(done: asyncio.Task[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._places.give_back(name, asked, place)

        handle.add_done_callback(ended)

    def _origin(self) -> Origin:
        info = workflow.info()
        given = info.headers.get(HEADER)
        unnamed = info.workflow_id
        if self._anew:
            unnamed += f"/{info.first_execution_run_id}"
        origin = Origin(unnamed) if given is None else msgspec.json.decode(given.data, type=Origin)
        if not info.cron_schedule:
            return origin
        if info.retry_policy is not None and info.retry_policy.maximum_attempts != 1:
            raise ApplicationError(
                "A cron workflow with a retry policy has no place for an effect: nothing tells its"
                " next run from a retry of this one. Use a schedule, or retry activities instead of"
                " the workflow.",
                type="CONTRACT_VIOLATION",
                non_retryable=True,
            )
        scope = f"{origin.scope}/{info.original_execution_run_id}"
        return Origin(scope, origin.tenant, origin.generation)


def _scope(origin: Origin) -> str:
    return f"{origin.scope}/{origin.generation}" if origin.generation else origin.scope


def _asked(args: Any) -> bytes:
    return b"\0".join(
        payload.SerializeToString(deterministic=True)
        for payload in workflow.payload_converter().to_payloads(args)
    )


def _answered() -> dict[str, Payload]:
    answer = answer_here.get()
    return {} if answer is None else {ANSWER_HEADER: _payload(answer)}


def _payload(value: Origin | At | Mapping[str, Any]) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=msgspec.json.encode(value))


# ---------------------------------------------------------------- the activity


class _Activity(tw.ActivityInboundInterceptor):
    def __init__(
        self, next: tw.ActivityInboundInterceptor, guard: Guard, approving: Approving
    ) -> None:
        super().__init__(next)
        self._guard, self._approving = guard, approving

    async def execute_activity(self, input: tw.ExecuteActivityInput) -> Any:
        answer = input.headers.get(ANSWER_HEADER)
        refused = "" if answer is None else await asyncio.to_thread(self._decided, answer)
        try:
            return await self._executed(input)
        except ApprovalNeeded as error:
            question = await asyncio.to_thread(self._approving.question, error, refused)
            if question is None:  # it was decided in the meantime: the next attempt knows how
                raise application_error(error, retriable=True) from error
            raise ApplicationError(
                str(error), question.shown(), type=error.code, non_retryable=True
            ) from error

    def _decided(self, given: Payload) -> str:
        answer = msgspec.json.decode(given.data, type=dict[str, Any])
        question = self._approving.asked(answer)
        return "" if question is None else self._approving.decide(question, answer, answer)

    async def _executed(self, input: tw.ExecuteActivityInput) -> Any:
        given = input.headers.get(HEADER)
        # a workflow without the interceptor: a guarded tool says that it has no step
        if given is None:
            with _as_temporal_errors():
                return await super().execute_activity(input)
        at = msgspec.json.decode(given.data, type=At)
        # an id that was given by hand may be one that changes: it is looked at
        step = at.step if at.by_hand else Stable(at.step)
        whose = None if at.tenant is None else Stable(at.tenant)
        with (
            _as_temporal_errors(),
            self._guard.step(Stable(at.scope), step, tenant=whose, latch=at.by_hand),
        ):
            return await super().execute_activity(input)


class _as_temporal_errors:  # noqa: N801  # used like a function
    """Our errors leave as Temporal's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ApprovalNeeded):
            return  # a question is made of it
        if isinstance(error, Exception) and (isinstance(error, EffectOnceError) or is_known(error)):
            raise application_error(error) from error


def application_error(error: Exception, *, retriable: bool | None = None) -> FailureError:
    """What Temporal should make of an error of a guarded tool: retry it, retry it later, or not.

    The type is the code of an error of ours, `OUTCOME_UNKNOWN` if it is in doubt, and what a
    model may see of it is the detail; or the name of the tool's own error.
    """
    if isinstance(error, FailureError):  # Temporal's own
        return error
    again = is_retriable(error) if retriable is None else retriable
    if not isinstance(error, EffectOnceError):
        return ApplicationError(str(error), type=type(error).__name__, non_retryable=not again)
    delay = None
    if error.retriable and error.retry_after_s is not None:
        delay = timedelta(seconds=error.retry_after_s)
    return ApplicationError(
        str(error),
        error.as_model_error(),
        type=error.code,
        non_retryable=not again,
        next_retry_delay=delay,
    )


# ---------------------------------------------------------------- what is in doubt


class _Doubts:
    """What a workflow waits for. Bound to its query and its signal."""

    def __init__(self) -> None:
        # one for each that waits: two may wait for the same effect
        self.open: list[dict[str, Any]] = []
        self.settled: set[str] = set()

    def query(self) -> list[dict[str, Any]]:
        return list({doubt["operation"]: doubt for doubt in self.open}.values())

    async def signal(self, operation: str) -> None:
        self.settled.add(operation)


async def until_settled(
    start: Callable[[], Awaitable[T]], *, ask_every: timedelta = timedelta(hours=1)
) -> T:
    """In a workflow: run an activity, and if its effect is in doubt, wait until it is settled,
    then take the outcome.

        ask = partial(workflow.execute_activity, refund, "pay_7", start_to_close_timeout=MINUTE)
        receipt = await until_settled(ask)

    The query `effectonce_in_doubt` says what the workflow waits for. Settle it (`effectonce
    indoubt`), then send the signal `effectonce_settled` with its reference; without the signal
    it is looked for *ask_every* so often. Nothing is sent again.
    """
    doubts = _doubts()
    while True:
        try:
            return await start()
        except ActivityError as error:
            doubt = in_doubt(error)
            if doubt is None:
                raise
        operation = doubt["operation"]
        doubts.open.append(doubt)
        try:
            # awaited here
            await workflow.wait_condition(lambda: operation in doubts.settled, timeout=ask_every)  # noqa: B023
        except TimeoutError:
            continue
        finally:
            doubts.open.remove(doubt)
            doubts.settled.discard(operation)


def in_doubt(error: BaseException) -> dict[str, Any] | None:
    """The doubt that ended an activity; its reference is `operation`. None: it ended otherwise."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if not isinstance(cause, ApplicationError) or cause.type != InDoubt.code:
        return None
    return dict(cause.details[0])


def _doubts() -> _Doubts:
    """Those of this workflow, found by its query: its tasks share nothing else."""
    known = getattr(workflow.get_query_handler(QUERY), "__self__", None)
    if isinstance(known, _Doubts):
        return known
    doubts = _Doubts()
    workflow.set_query_handler(QUERY, doubts.query)
    workflow.set_signal_handler(SIGNAL, doubts.signal)
    return doubts
