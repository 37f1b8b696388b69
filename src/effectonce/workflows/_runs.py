"""The workflows of a guard: defining them, looking at their runs, going on with them, and not."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias, Unpack, cast

from msgspec import Struct
from msgspec.structs import astuple

from effectonce._core.attempt_log import FailedAttempt
from effectonce._core.codec import decode, describe_error
from effectonce._core.effect_ref import EffectRef
from effectonce._core.failed_attempts import attempts_of
from effectonce._core.guards import leased
from effectonce._core.keys import run_key
from effectonce._core.ops import Attest, Browse, Find, ReadCell, Together
from effectonce._core.record import TERMINAL, Record, State
from effectonce._core.tagged_json import AS_DATA, NotReadable
from effectonce._core.workflow import CANCEL, Cancellation, cancellation
from effectonce._tools.context import GuardContext, Tool
from effectonce._tools.observers import notify_of
from effectonce._tools.tool import GuardedTool
from effectonce._tools.wrapper import wrap
from effectonce._validate import who
from effectonce.errors import ContractViolation, InFlight, LeaseLost
from effectonce.outcome import Outcome
from effectonce.stores.base import Store
from effectonce.workflows._fence import to_write
from effectonce.workflows._run import STEPS_AT_ONCE, UNDO
from effectonce.workflows._workflow import Workflow, WorkflowOptions

PAGE, PAGE_MAX = 200, 10_000
RunState: TypeAlias = Literal["open", "completed", "failed"]
_STATES = {"open": State.CLAIMED, "completed": State.COMPLETED, "failed": State.FAILED}


class StepSummary(Struct, frozen=True):
    """One step of a run, as its record tells."""

    position: str
    name: str
    tool: str
    state: str
    sends: int  # how often it may have left
    began_at: float
    ended_at: float | None
    key: str
    error: str = ""
    attempts: tuple[FailedAttempt, ...] = ()  # those that failed, oldest first


class RunTotals(Struct, frozen=True):
    """The steps and compensations of a run, counted."""

    steps: int
    completed: int
    in_doubt: int
    sends: int  # how often any of them may have left
    failed_attempts: int
    elapsed_s: float  # since the run began, until it ended


class RunSummary(Struct, frozen=True):
    """What a run has done so far."""

    key: str
    workflow: str
    state: str  # running, waiting, completed, failed
    runs: int  # how often it was begun
    began_at: float
    ended_at: float | None
    arguments: Any
    steps: tuple[StepSummary, ...]
    compensations: tuple[StepSummary, ...]
    totals: RunTotals
    cancelled: Cancellation | None = None
    error: str = ""  # of a run that waits: what stopped it
    attempts: tuple[FailedAttempt, ...] = ()  # of the run itself, those that failed, oldest first


class Resumed(Struct, frozen=True):
    """What a round of resuming came to."""

    completed: int = 0
    failed: int = 0  # for good, and compensated
    waiting: int = 0  # stopped again: in doubt, out of attempts, or by an error
    running: int = 0  # another worker has it
    unknown: int = 0  # no workflow of that name, sync or async as needed, is registered here

    def __add__(self, other: Resumed) -> Resumed:
        return Resumed(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class Workflows:
    """The workflows of a guard, and their runs."""

    def __init__(
        self, store: Store, house: GuardContext, register: Callable[[GuardedTool], GuardedTool]
    ) -> None:
        self._store, self._house, self._register = store, house, register
        self._known: dict[str, Workflow] = {}

    def define(
        self, function: Callable[..., Any], **options: Unpack[WorkflowOptions]
    ) -> Tool[..., Any]:
        """What `guard.workflow` does."""
        _refuse_unknown(options)
        workflow = Workflow(self._house, function, options)
        tool = self._register(workflow.tool)
        self._known[tool.contract.name] = workflow
        return wrap(tool)

    # ------------------------------------------------------------ looking

    def runs(
        self, state: RunState = "open", *, workflow: str | None = None, tenant: str | None = None
    ) -> Iterator[Record]:
        """Their records, oldest first."""
        after, size = (0.0, ""), PAGE
        while True:
            page = self._store.apply(Browse(_STATES[state], tenant, after, size))
            for record in page:
                if record.request.terms.steps and workflow in (None, record.request.terms.tool):
                    yield record
            if len(page) < size:
                return
            after = (page[-1].created_at, page[-1].request.key)
            # for most states a store looks at all that it has for each page
            size = min(2 * size, PAGE_MAX)

    def summary(self, key: str) -> RunSummary:
        """What this run has done so far."""
        record, now = self._run(key), self._store.apply(ReadCell("clock")).now
        state, ended_at, request = str(record.state), record.decided_at, record.request
        open_ = record.state is State.CLAIMED
        if open_:
            state, ended_at = "running" if leased(record, now) else "waiting", now
        steps, compensations = self._steps(key, ""), self._steps(key, UNDO)
        return RunSummary(
            key=key,
            workflow=request.terms.tool,
            state=state,
            runs=record.epoch,
            began_at=record.created_at,
            ended_at=None if open_ else ended_at,
            arguments=_content(request.arguments),
            steps=steps,
            compensations=compensations,
            totals=_totals((*steps, *compensations), ended_at - record.created_at),
            cancelled=cancellation(record),
            error=_error(record),
            attempts=tuple(attempts_of(record)),
        )

    def _steps(self, run: str, prefix: str) -> tuple[StepSummary, ...]:
        return tuple(_step(position, record) for position, record in self._records(run, prefix))

    def _records(self, run: str, prefix: str) -> Iterator[tuple[str, Record]]:
        """The steps of a run, in their order. Those side by side may have left gaps."""
        begin, found = 1, cast("tuple[Record | None, ...]", ())
        while begin == 1 or any(record is not None for record in found):
            positions = [f"{prefix}{number}" for number in range(begin, begin + STEPS_AT_ONCE)]
            keys = [run_key(run, position, self._house.secret) for position in positions]
            found = self._store.apply(Together(tuple([Find(key) for key in keys])))
            both = zip(positions, found, strict=True)
            yield from [(at, record) for at, record in both if record is not None]
            begin += STEPS_AT_ONCE

    def _run(self, key: str) -> Record:
        record = self._store.apply(Find(key))
        if record is None or not record.request.terms.steps:
            raise ContractViolation(f"{key} is not a run of a workflow in this store.")
        return record

    # ------------------------------------------------------------ going on, and not

    def resume(self, key: str) -> Any:
        """Resume a run, whatever stopped it, however often; its result. If async, await it."""
        record = self._run(key)
        workflow = self._known.get(record.request.terms.tool)
        if workflow is None:
            raise ContractViolation(
                f"no workflow {record.request.terms.tool!r} is registered here, only"
                f" {', '.join(self._known) or 'none'}. Import the module that has it."
            )
        return workflow.resume(record)

    def resume_all(self, *, at_once: int = 8, workflow: str | None = None) -> Resumed:
        """Resume all open runs of sync workflows that no worker has: on restart or now and then."""
        with ThreadPoolExecutor(at_once, "effectonce-resume") as threads:
            return sum(threads.map(self._resume_one, list(self.runs(workflow=workflow))), Resumed())

    async def aresume_all(self, *, at_once: int = 64, workflow: str | None = None) -> Resumed:
        """Go on with every open run of async workflows that no worker has."""
        gate = asyncio.Semaphore(at_once)
        records = await asyncio.to_thread(lambda: list(self.runs(workflow=workflow)))

        async def one(record: Record) -> Resumed:
            async with gate:
                return await self._aresume_one(record)

        return sum(await asyncio.gather(*(one(record) for record in records)), Resumed())

    def _resume_one(self, record: Record) -> Resumed:
        workflow = self._known.get(record.request.terms.tool)
        if workflow is None or workflow.tool.is_async:
            return Resumed(unknown=1)
        try:
            return _ended(workflow.go_on(record))
        except Exception as error:  # noqa: BLE001  # it stops this run, and no other
            return _stopped(error)

    async def _aresume_one(self, record: Record) -> Resumed:
        workflow = self._known.get(record.request.terms.tool)
        if workflow is None or not workflow.tool.is_async:
            return Resumed(unknown=1)
        try:
            return _ended(await workflow.ago_on(record))
        except Exception as error:  # noqa: BLE001  # as above
            return _stopped(error)

    def cancel(self, key: str, *, by: str, reason: str) -> None:
        """Let this run end: the process that has it, or resumes it, begins no new step and
        compensates what was done. Again changes nothing.

        A step that may be repeated (`run.ask`, `kind="idempotent_write"`) may still begin within
        a second.
        """
        by, reason = who(by, reason)
        record = self._run(key)
        # the first one counts, and a record does not grow by the others
        known = cancellation(record)
        if record.state is State.CLAIMED:
            record = self._tell(record, Cancellation(by, reason) if known is None else known)
        if record.state is not State.CLAIMED:
            raise ContractViolation(
                f"{record.request.terms.tool} {EffectRef('', key).reference} has ended already:"
                " there is nothing to cancel."
            )
        if known is None:
            notify_of(self._house.watch, "cancelled", record, by=by, reason=reason)

    def _tell(self, record: Record, how: Cancellation) -> Record:
        """First the run, then the runs that are steps of it: none of those can begin any more."""
        key = record.request.key
        if cancellation(record) is None:
            both = Together((Attest(key, CANCEL, how.written()), to_write(key)))
            attested, _ = self._store.apply(both)
            record = attested if isinstance(attested, Record) else record
        else:
            # who asked before may have been gone before that was written
            self._store.apply(to_write(key))
        for _, step in self._records(key, ""):
            if step.request.terms.steps and step.state is State.CLAIMED:
                self._tell(step, how)
        return record


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    """As Python does where it can: a misspelt `identity` would silently name the wrong runs."""
    known = WorkflowOptions.__annotations__
    for name in options.keys() - known.keys():
        near = difflib.get_close_matches(name, known, 1)
        hint = f". Did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known)}"
        raise TypeError(f"Guard.workflow() got an unexpected keyword argument {name!r}{hint}")


def _ended(outcome: Outcome[Any]) -> Resumed:
    return Resumed(completed=1) if outcome.status == "succeeded" else Resumed(failed=1)


def _stopped(error: Exception) -> Resumed:
    return Resumed(running=1) if isinstance(error, InFlight | LeaseLost) else Resumed(waiting=1)


def _step(position: str, record: Record) -> StepSummary:
    return StepSummary(
        position=position,
        name=record.request.step.removeprefix(f"{position} "),
        tool=record.request.terms.tool,
        state=str(record.state),
        sends=record.sends,
        began_at=record.created_at,
        ended_at=record.decided_at if record.state in TERMINAL else None,
        key=record.request.key,
        error=_error(record),
        attempts=tuple(attempts_of(record)),
    )


def _totals(steps: Sequence[StepSummary], elapsed_s: float) -> RunTotals:
    states = [step.state for step in steps]
    return RunTotals(
        steps=len(steps),
        completed=states.count(State.COMPLETED),
        in_doubt=states.count(State.IN_DOUBT),
        sends=sum(step.sends for step in steps),
        failed_attempts=sum(len(step.attempts) for step in steps),
        elapsed_s=max(0.0, elapsed_s),
    )


def _error(record: Record) -> str:
    if record.state is State.COMPLETED:
        return ""
    if record.state is State.FAILED:
        content = _content(record.outcome)
        if isinstance(content, dict) and "message" in content:
            return describe_error(content["type"], content["message"])
        return str(content)
    attempts = attempts_of(record)
    return describe_error(attempts[-1].error, attempts[-1].message) if attempts else record.reason


def _content(stored: bytes) -> Any:
    """What stored bytes say, without the types that only their tool knows."""
    try:
        return decode(stored, AS_DATA).content
    except NotReadable as error:
        return {"why": str(error)}
