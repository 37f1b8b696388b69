"""Runs of workflows: what the function gets, and how its steps are performed, sync and async."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import structs

from effectonce._core.call import GuardedCall
from effectonce._core.codec import encode_error, printable
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending, Fenced, Fresh
from effectonce._core.keys import run_key
from effectonce._core.ops import (
    Applied,
    Attest,
    Find,
    Flow,
    Invoke,
    Mismatch,
    Raised,
    ReadCell,
    Refute,
    Renew,
    Together,
)
from effectonce._core.record import Record, State
from effectonce._core.workflow import CANCEL, Cancellation, LateCall, Parked, cancellation, label
from effectonce._drivers import adrive, drive
from effectonce._runtime.performers import Prepared, adrive_call
from effectonce._tools.registry import tool_of
from effectonce.effect import running
from effectonce.errors import ApprovalNeeded, Cancelled, ContractViolation, InFlight, StepFailed
from effectonce.workflows._errors import (
    code_changed,
    first_error_or_all,
    interrupted,
    kept_back,
    left_over,
    lost,
    not_awaitable,
    run_cancelled,
    unwritten,
)
from effectonce.workflows._fence import AsyncFence, Fence, to_read
from effectonce.workflows._step import Planned, Steps

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
LOOKS_PER_LEASE = 3
# so soon it hears of its cancellation, also between steps that are not claimed before they are done
LOOKS_AFTER_S_MAX = 1.0
THREADS_MAX = 32
UNDO = "undo "
WAITED = "waited for a person, begun as number "
# records that are looked for at once, and how far behind the last step that was asked for
STEPS_AT_ONCE = 16


def last_wait(record: Record | None) -> int:
    """The last time that it stopped for a person, counted as it was begun; 0: it never did."""
    notes = () if record is None else (each.note for each in record.evidence)
    return max((int(n.removeprefix(WAITED)) for n in notes if n.startswith(WAITED)), default=0)


class Run:
    """One run of a workflow. Ask it for steps: those that were done before are not done again."""

    def __init__(self, steps: Steps, prepared: Prepared) -> None:
        self._of, self._ref = steps, prepared.ref
        self._store, self._env = steps.tool.house.store, steps.tool.house.env
        self._scope = f"{prepared.ref.tool} {prepared.ref.reference}"
        self._lock = threading.Lock()
        self._count, self._undo = 0, list[Planned]()
        self._reached = set[str]()  # the positions of steps that the function knows the end of
        self._epoch = 0
        self.ended = False  # for good, and compensated: only then is an error its end
        self._closed = False  # nothing more is asked for but compensations
        self._stopped: BaseException | None = None
        self._asked_for = set[str]()  # steps that are not awaited yet
        self._under_way = 0
        self._all_ended: asyncio.Future[None] | None = None
        self._cancelled: Cancellation | None = None
        self._renewal: Renew | None = None
        self._look_at = -inf
        self._looks_after_s = min(steps.tool.contract.lease_s / LOOKS_PER_LEASE, LOOKS_AFTER_S_MAX)
        self._cell = to_read(prepared.ref.key)

    @property
    def id(self) -> str:
        """The name of this run: the same after every crash, in every step, event and message."""
        return self._ref.reference

    @property
    def effect(self) -> EffectRef:
        """The run as an effect."""
        return self._ref

    # ------------------------------------------------------------ what a workflow asks for

    def step(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do this once. A guarded tool keeps its contract; any other function is done at most
        once, and in doubt if its outcome is unknown.

        Returns its result, or an awaitable of it if the function is async. Raises `StepFailed`
        if it failed for good. Everything else stops the run until it is resumed.
        """
        return self.do(self._plan(self._next(), name, function, args, kwargs))  # type: ignore[no-any-return]

    def ask(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Ask a model or read: the answer is recorded before its use, and never asked for again."""
        return self.do(self._plan(self._next(), name, function, args, kwargs, asks=True))  # type: ignore[no-any-return]

    def compensate(
        self, name: str, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """If a later step fails for good, do this once, as a step of its own, last one first."""
        step = self._plan(f"{UNDO}{len(self._undo) + 1}", name, function, args, kwargs)
        if step.tool.is_async and not self._of.tool.is_async:
            raise not_awaitable(self._of.tool, step)
        self._undo.append(step)

    def parallel(self, *steps: Sequence[Any]) -> Any:
        """Do these at the same time: `(name, function, *arguments)` each. Their results in this
        order; awaitable in an async workflow.
        """
        planned = [
            self._plan(self._next(), step[0], step[1], tuple(step[2:]), {}) for step in steps
        ]
        for step in planned:
            if step.tool.is_async is not self._of.tool.is_async:
                raise not_awaitable(self._of.tool, step)
        if self._of.tool.is_async:
            return self._aall(planned)
        at_once = min(THREADS_MAX, max(1, len(planned)))
        with ThreadPoolExecutor(at_once, "effectonce-steps") as threads:
            here = contextvars.copy_context
            doing = [threads.submit(here().run, self.do, step) for step in planned]
        ended = [done.exception() or done for done in doing]
        return first_error_or_all(ended, lambda done: done.result())

    async def _aall(self, planned: Sequence[Planned]) -> list[Any]:
        done = await asyncio.gather(*(self.do(step) for step in planned), return_exceptions=True)
        return first_error_or_all(done, lambda value: value)

    # ------------------------------------------------------------ one step

    def _next(self) -> str:
        with self._lock:
            self._count += 1
            return str(self._count)

    def _plan(
        self,
        position: str,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        asks: bool = False,
    ) -> Planned:
        # callers without a type checker
        if not isinstance(name, str) or name == "":  # type: ignore[redundant-expr]
            why = f"step {position} of {self._ref} has no name. Nothing was sent."
            raise ContractViolation(why)
        if not name.isascii() and printable(name) != name:
            raise ContractViolation(
                f"step {position} of {self._ref}: {name[:40]!r} is no Unicode text, or too long."
                " Nothing was sent."
            )
        self._refuse_inside(name)
        guarded = tool_of(function)
        tool = guarded or self._of.plain(name, function, asks=asks)
        plain = None if guarded else function
        return Planned(position, name, tool, self._of.of_step(tool), args, kwargs, plain)

    def _refuse_inside(self, name: str) -> None:
        """A replayed step asks for nothing: what it asked for would leave its place to the next."""
        effect = running.get()
        if effect is not None and effect.ref.key != self._ref.key:
            raise ContractViolation(
                f"{name!r} of {self._ref} was asked for inside {effect.ref}, which asks for nothing"
                " when it is replayed. Nothing was sent. Ask for it in the workflow itself."
            )

    def do(self, step: Planned) -> Any:
        """One step, sync or async as its function is."""
        if not step.tool.is_async:
            return self._done(step)
        self._asked_for.add(label(step.position, step.name))
        return self._ado(step)

    def _done(self, step: Planned) -> Any:
        self._refuse_when_over(step)
        tool, prepared = step.tool, self._prepare(step)
        calling, perform = self._calling(step), tool.performing(tool.setup, prepared)
        try:
            if self._env.now() >= self._look_at:
                self.seen(self._store.apply(self.look()))
            ending = found = None
            if not self._ends_at(step):
                ending = drive(tool.flow(prepared, calling), self._fenced(step, Fence, perform))
            if ending is None or kept_back(ending):
                if ending is not None:
                    self.seen(self._store.apply(self.look()))
                drive(self._end_here(prepared), tool.setup.store.apply)
                ending = drive(tool.flow(prepared, calling), perform)
            if isinstance(ending, Mismatch):
                found = tool.setup.store.apply(Find(prepared.request.key))
            return self._value(step, prepared, ending, found)
        except BaseException as error:  # noqa: BLE001
            # whatever it is, this run is over unless it is a step's own end
            raise self._stop(error, step)  # noqa: B904  # the very same error

    async def _ado(self, step: Planned) -> Any:
        with self._lock:
            self._asked_for.discard(label(step.position, step.name))
            self._under_way += 1
        try:
            self._refuse_when_over(step)
            return await self._adone(step, self._prepare(step))
        finally:
            self._ends()

    async def _adone(self, step: Planned, prepared: Prepared) -> Any:
        tool = step.tool
        calling, perform = self._calling(step), tool.aperforming(tool.setup, prepared)
        try:
            if self._env.now() >= self._look_at:
                self.seen(await self._store.aapply(self.look()))
            ending = found = None
            if not self._ends_at(step):
                fenced = self._fenced(step, AsyncFence, perform)
                ending = await adrive_call(tool.flow(prepared, calling), fenced)
            if ending is None or kept_back(ending):
                if ending is not None:
                    self.seen(await self._store.aapply(self.look()))
                await adrive(self._end_here(prepared), tool.setup.store.aapply)
                ending = await adrive_call(tool.flow(prepared, calling), perform)
            if isinstance(ending, Mismatch):
                found = await tool.setup.store.aapply(Find(prepared.request.key))
            return self._value(step, prepared, ending, found)
        except BaseException as error:  # noqa: BLE001
            # as above; a step that was cancelled may have happened
            raise self._stop(error, step)  # noqa: B904

    def _ends(self) -> None:
        with self._lock:
            self._under_way -= 1
        if self._under_way == 0 and self._all_ended is not None and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _calling(self, step: Planned) -> type[GuardedCall] | None:
        return LateCall if self._epoch == 1 and step.as_step.may_be_late else None

    def _prepare(self, step: Planned) -> Prepared:
        """The step as an effect: keyed by its position, kept for as long as the run is."""
        tool, ref = step.tool, self._ref
        permission = tool.contract.permission
        if permission is not None and permission not in self._of.permissions:
            raise ContractViolation(
                f"{tool.contract.name} needs the permission {permission!r}, which {ref} does not"
                f" have. Nothing was sent. Give it: @guard.workflow(permissions=[{permission!r}])."
            )
        key = run_key(ref.key, step.position, tool.house.secret)
        at = label(step.position, step.name)
        place = EffectRef(tool.contract.name, key, ref.tenant, self._scope, at)
        prepared = tool.prepare_step(place, step.as_step.terms, step.args, step.kwargs)
        if step.function is None:
            return prepared
        return structs.replace(prepared, leading=(step.function,))

    def _value(
        self, step: Planned, prepared: Prepared, ending: Ending, found: Record | None
    ) -> Any:
        self._reached.add(step.position)
        if step.tool.counters is not None:
            step.tool.counters.ended(prepared.request.tenant, ending)
        if isinstance(ending, Fresh):
            if not ending.recorded and step.tool.terms.resend_s == inf:
                raise unwritten(self._ref, step)
            return ending.value
        if found is not None:
            raise code_changed(self._ref, step, prepared, found)
        if isinstance(ending, Fenced) and self._calling(step) is LateCall:
            raise lost(self._ref)
        outcome = step.tool.concluded(ending, prepared)
        if outcome.status != "failed":
            return outcome.unwrap()
        error, at = outcome.error, label(step.position, step.name)
        kind = getattr(error, "error_type", "") or type(error).__name__
        says = getattr(error, "error_message", "") or str(error)
        raise StepFailed(
            f"step {at} of {self._ref} failed for good with {kind}: {says}",
            step=step.name,
            error_type=kind,
            error_message=says,
            effect=prepared.ref,
        ) from error

    # ------------------------------------------------------------ stopping

    def refuse_when_stopped(self) -> None:
        """A waiting run does nothing more, even if the workflow catches the error that says so."""
        if self._stopped is not None:
            raise self._stopped

    def close(self) -> None:
        """The function has ended. What it left behind, such as a task, does nothing more."""
        self._closed = True

    def _refuse_when_over(self, step: Planned) -> None:
        self.refuse_when_stopped()
        if self._closed and not step.position.startswith(UNDO):
            raise ContractViolation(
                f"{self._ref} has ended without awaiting {label(step.position, step.name)}. Nothing"
                " was sent."
            )

    def _stop(self, error: BaseException, step: Planned) -> BaseException:
        if isinstance(error, StepFailed):
            self._reached.add(step.position)
        elif self._stopped is None and isinstance(error, Exception):
            self._stopped = error
        elif self._stopped is None:
            self._stopped = interrupted(self._ref, error, step)
        return error

    def _fenced(self, step: Planned, fence: Callable[..., T], perform: Any) -> T:
        """What performs the step, if the run was not cancelled before. Compensations are exempt."""
        if step.position.startswith(UNDO) or self._calling(step) is LateCall:
            return cast("T", perform)
        elsewhere = None if step.tool.setup.store is self._store else self._store
        return fence(perform, self._cell, elsewhere)

    def _ends_at(self, step: Planned) -> bool:
        return self._cancelled is not None and not step.position.startswith(UNDO)

    def _end_here(self, prepared: Prepared) -> Flow[None]:
        """A cancelled run replays what was done, to know what to compensate, and then stops."""
        key, cancelled = prepared.request.key, self._cancelled
        if cancelled is None:
            return  # who asked for it was gone before that was written down
        by, reason = cancelled.by, cancelled.reason
        found = yield from Find(key)
        if found is not None and found.state is State.CLAIMED and found.request.terms.steps:
            # a run, which has done some steps: it ends in the same way, and compensates those
            if cancellation(found) is None:
                yield from Attest(key, CANCEL, cancelled.written())
            return
        ended = run_cancelled(self._ref, cancelled)
        if found is not None and found.state is State.CLAIMED and found.sends == 0:
            # Left open, it could be sent by who redrives it, or by an owner that wakes up: after
            # it was counted as not done.
            reply = yield from Refute(key, encode_error(ended), by, reason)
            if not isinstance(reply, Applied):
                raise InFlight(
                    f"{prepared.ref} is about to be sent by another caller. The run waits.",
                    effect=prepared.ref,
                )
            raise ended
        if found is None:
            raise ended
        if found.state is State.FAILED and (found.settled_by, found.reason) == (by, reason):
            raise ended

    def cancelled(self) -> Cancelled | None:
        """The end of a run cancelled in its last step, or whose function caught cancellation."""
        return None if self._cancelled is None else run_cancelled(self._ref, self._cancelled)

    # ------------------------------------------------------------ owning it

    def begin(self, op: Invoke) -> None:
        """The run is ours: we ask now and then if it still is; at once if another worker had it."""
        lease_s = self._of.tool.contract.lease_s
        self._epoch, self._renewal = op.epoch, Renew(op.key, op.token, op.epoch, lease_s)
        self._look_at = self._env.now() + (self._looks_after_s if op.epoch == 1 else 0.0)

    def judged(self, answer: Any) -> Any:
        """What became of the function: an error is an end only if all is done that an end takes."""
        self.close()
        return Parked(answer.error) if isinstance(answer, Raised) and not self.ended else answer

    def waits(self, answer: Any) -> Attest | None:
        """What is noted of a run that stopped for a person: it did not crash."""
        if isinstance(answer, Parked) and isinstance(answer.error, ApprovalNeeded):
            return Attest(self._ref.key, f"{WAITED}{self._epoch}", b"")
        return None

    def look(self) -> Together:
        assert self._renewal is not None
        return Together((self._renewal, Find(self._ref.key)))

    def seen(self, replies: tuple[Any, ...]) -> None:
        renewed, record = replies
        if not isinstance(renewed, Applied):
            raise lost(self._ref)
        self._cancelled = cancellation(record)
        self._look_at = self._env.now() + self._looks_after_s

    # ------------------------------------------------------------ the end

    def last(self) -> Together | ReadCell:
        """The function returned: was the run cancelled, and where to look for what it left out."""
        self.refuse_when_stopped()
        if self._asked_for:
            raise ContractViolation(
                f"{self._ref} ends without awaiting {', '.join(sorted(self._asked_for))}: it was"
                " not done. The run waits for a correction."
            )
        numbers = range(1, len(self._undo) + STEPS_AT_ONCE + 1)
        behind = self.behind([f"{UNDO}{number}" for number in numbers])
        return self._cell if behind is None else Together((self._cell, *behind.ops))

    def leaves(self, replies: Any) -> tuple[bool, Sequence[Record | None]]:
        """What looking at the end found: was it cancelled, and what did the function leave out."""
        cell, *left = replies if isinstance(replies, tuple) else (replies,)
        return cell.revision > 0, left

    def behind(self, also: Sequence[str] = ()) -> Together | None:
        """A resumed run may have done more than today's code: where to look. None: not resumed."""
        if self._epoch == 1:
            return None
        steps = (str(number) for number in range(1, self._count + STEPS_AT_ONCE + 1))
        positions = [*(position for position in steps if position not in self._reached), *also]
        keys = [run_key(self._ref.key, at, self._of.tool.house.secret) for at in positions]
        return Together(tuple([Find(key) for key in keys]))

    def refuse_leftovers(
        self, found: Sequence[Record | None], failed: Exception | None = None
    ) -> None:
        """Steps whose end the function does not know would be forgotten, and not compensated."""
        left = next((record.request.step for record in found if record is not None), None)
        if left is not None:
            raise left_over(self._ref, left, failed) from failed

    async def all_ended(self) -> None:
        """Wait for steps under way, such as beside a failed one: later ends are not compensated."""
        while self._under_way:
            self._all_ended = asyncio.get_running_loop().create_future()
            await self._all_ended

    def undoing(self) -> Iterator[Planned]:
        """What has to be compensated, the last one first."""
        while self._undo:
            yield self._undo.pop()
