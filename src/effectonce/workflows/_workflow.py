"""A workflow: a user's function that asks a `Run` for steps, made a tool whose calls are runs."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from math import inf
from types import TracebackType
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import msgspec

from effectonce._core.codec import encode
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending
from effectonce._core.guarantees import Capability, Kind
from effectonce._core.ops import Flow, Invoke, Op
from effectonce._core.record import Record
from effectonce._core.tagged_json import NotReadable, NotStorable
from effectonce._core.type_hints import hints_of
from effectonce._core.workflow import WorkflowCall
from effectonce._drivers import drive
from effectonce._runtime.performers import (
    AsyncPerformer,
    AsyncPerforming,
    Performer,
    Prepared,
    Setup,
    adrive_call,
)
from effectonce._runtime.signature import is_async, signature_of
from effectonce._tools.context import PLAIN, GuardContext, Hosting
from effectonce._tools.tool import GuardedTool
from effectonce.effect import current_effect
from effectonce.errors import CodeChanged, ContractViolation, GaveUp, Rejected, StepFailed
from effectonce.outcome import Outcome
from effectonce.policy import Contract, Downstream
from effectonce.workflows._run import Run
from effectonce.workflows._step import OfStep, Steps

by_hand: ContextVar[bool] = ContextVar("effectonce_resumed_by_hand", default=False)
PLAIN_MAX = 1024  # plain functions whose signature is remembered, by their code
# what else a signature is made of: `lambda n=n: ...`, decorators
_SHAPE = ("__defaults__", "__kwdefaults__", "__wrapped__")


class Workflow:
    """Everything that is known when a workflow is decorated."""

    def __init__(
        self,
        house: GuardContext,
        contract: Contract,
        function: Callable[..., Any],
        *,
        identity: Sequence[Any] | None,
        keep_s: float,
        runs: int,
        ends_on: tuple[type[Exception], ...],
        permissions: frozenset[str],
        not_sent: tuple[type[Exception], ...] = (),
        through: bool = False,
    ) -> None:
        signature = signature_of(function, contract.name)
        if not signature.parameters:
            raise ContractViolation(
                f"{contract.name} takes no run: the first parameter of a workflow is the Run that"
                " it asks for steps"
            )
        self._function, self._runs = function, runs
        self._ends_on: tuple[type[Exception], ...] = (StepFailed, Rejected, *ends_on)
        self._may_end: tuple[type[Exception], ...] = (*self._ends_on, ExceptionGroup)
        self.keep_s, self.permissions = keep_s, permissions
        self._not_sent, self._through = not_sent, through  # of functions that are no tools
        body = self._abody if is_async(function) else self._body
        hosting = Hosting(
            calling=WorkflowCall,
            performing=self._performing,
            aperforming=self._aperforming,
            steps=True,
        )
        self.tool = GuardedTool(
            house,
            contract,
            _called_like(body, function, signature, skip=1),
            identity,
            hosting=hosting,
        )
        self._steps = Steps(self.tool, permissions, self.plain, self.of_step)
        self._plain: dict[Any, tuple[tuple[Any, ...], GuardedTool]] = {}
        self._of_step: WeakKeyDictionary[GuardedTool, OfStep] = WeakKeyDictionary()

    # ------------------------------------------------------------ one run

    def _performing(self, setup: Setup, prepared: Prepared) -> Callable[[Op[Any]], Any]:
        run = Run(self._steps, prepared)
        perform = Performer(setup, msgspec.structs.replace(prepared, leading=(run,)))

        def performing(op: Op[Any]) -> Any:
            if type(op) is not Invoke:
                return perform(op)
            run.begin(op)
            return run.judged(perform(op))

        return performing

    def _aperforming(self, setup: Setup, prepared: Prepared) -> AsyncPerforming:
        run = Run(self._steps, prepared)
        return _AsyncRun(
            run, AsyncPerformer(setup, msgspec.structs.replace(prepared, leading=(run,)))
        )

    def _body(self, run: Run, *args: Any, **kwargs: Any) -> Any:
        self._refuse_endless(run)
        store, error, value = self.tool.house.store, None, None
        try:
            value = self._function(run, *args, **kwargs)
        except self._may_end as raised:
            error = self._end(raised)
        if error is None:
            cancelled, left = run.leaves(store.apply(run.last()))
            if cancelled:
                run.seen(store.apply(run.look()))
            error = run.cancelled()
            if error is None:
                run.refuse_leftovers(left)
                return value
        run.close()
        failures, behind = _Failures(run), run.behind()
        run.refuse_leftovers(() if behind is None else store.apply(behind), error)
        for step in run.undoing():
            with failures:
                run.do(step)
        run.ended = True
        failures.tell(error)
        raise error

    async def _abody(self, run: Run, *args: Any, **kwargs: Any) -> Any:
        self._refuse_endless(run)
        store, error, value = self.tool.house.store, None, None
        try:
            value = await self._function(run, *args, **kwargs)
        except self._may_end as raised:
            error = self._end(raised)
        await run.all_ended()
        if error is None:
            cancelled, left = run.leaves(await store.aapply(run.last()))
            if cancelled:
                run.seen(await store.aapply(run.look()))
            error = run.cancelled()
            if error is None:
                run.refuse_leftovers(left)
                return value
        run.close()
        failures, behind = _Failures(run), run.behind()
        run.refuse_leftovers(() if behind is None else await store.aapply(behind), error)
        for step in run.undoing():
            with failures:
                done = run.do(step)
                if step.tool.is_async:
                    await done
        run.ended = True
        failures.tell(error)
        raise error

    def _end(self, raised: Exception) -> Exception:
        """The error that ends the run: of a group (`TaskGroup`), the first, if each is an end."""
        if isinstance(raised, self._ends_on):
            return raised
        ends, others = cast("ExceptionGroup[Exception]", raised).split(self._ends_on)
        if ends is None or others is not None:
            raise raised
        first: Exception = ends
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        return first

    def _refuse_endless(self, run: Run) -> None:
        """A run that kills its process each time must not do so without end."""
        begun = current_effect().epoch
        if begun > self._runs and not by_hand.get():
            raise GaveUp(
                f"{run.effect} was begun {begun - 1} times and never ended. Nothing was sent by"
                " this call.",
                effect=run.effect,
                retriable=False,
                corrective_action=(
                    "Find out why, then resume it by hand: guard.workflows.resume(key)."
                ),
            )

    # ------------------------------------------------------------ resuming

    def resume(self, record: Record) -> Any:
        """By hand: however often it was begun."""
        return self._aresume(record) if self.tool.is_async else self._resume(record)

    def _resume(self, record: Record) -> Any:
        token = by_hand.set(True)
        try:
            return self.go_on(record).unwrap()
        finally:
            by_hand.reset(token)

    async def _aresume(self, record: Record) -> Any:
        token = by_hand.set(True)
        try:
            return (await self.ago_on(record)).unwrap()
        finally:
            by_hand.reset(token)

    def go_on(self, record: Record) -> Outcome[Any]:
        """Without waiting for a worker that has it."""
        prepared = self._recalled(record)
        ending = drive(self._impatient(prepared), self._performing(self.tool.setup, prepared))
        return self.tool.concluded(ending, prepared)

    async def ago_on(self, record: Record) -> Outcome[Any]:
        prepared = self._recalled(record)
        ending = await adrive_call(
            self._impatient(prepared), self._aperforming(self.tool.setup, prepared)
        )
        return self.tool.concluded(ending, prepared)

    def _recalled(self, record: Record) -> Prepared:
        """The call that began the run, from the store's record: all of it, or it is not resumed."""
        signature, ref = self.tool.signature, EffectRef(self.tool.contract.name, record.request.key)
        try:
            gone = set(signature.decode(record.request.arguments)) - set(signature.names)
        except NotReadable as error:
            why = (
                f"{ref} cannot be resumed from the store: {error}. Nothing was sent. Call"
                f" {ref.tool} again with its arguments."
            )
            raise ContractViolation(why, effect=ref) from None
        if gone:
            what = (
                f"it was begun with {', '.join(sorted(gone))}, which {ref.tool} does not take any"
                " more"
            )
            raise CodeChanged(f"{ref} cannot go on: {what}. Nothing was sent.", effect=ref)
        return self.tool.recalled(record)

    def _impatient(self, prepared: Prepared) -> Flow[Ending]:
        plan = msgspec.structs.replace(self.tool.plan, wait_s=0.0)
        return self.tool.recorded(
            WorkflowCall(prepared.request, plan, self.tool.house.env).flow(), prepared
        )

    # ------------------------------------------------------------ its steps

    def of_step(self, tool: GuardedTool) -> OfStep:
        """What a tool is as a step."""
        known = self._of_step.get(tool)
        if known is None:
            terms, in_transaction = tool.terms, tool.terms.downstream is Capability.TRANSACTION
            pinned = msgspec.structs.replace(
                terms, window_s=max(terms.window_s, self.keep_s), tombstone_s=inf, rerun=False
            )
            at_once = not (tool.plan.separate_dispatch or in_transaction or terms.steps)
            known = self._of_step[tool] = OfStep(pinned, at_once and terms.resend_s == inf)
        return known

    def plain(self, name: str, function: Callable[..., Any], *, asks: bool) -> GuardedTool:
        """The tool of a function that is none. One per code: closures are made anew each run."""
        code = (name, asks, getattr(function, "__code__", None))
        shape = tuple(getattr(function, each, None) for each in _SHAPE)
        known = self._plain.get(code)
        if known is not None and all(its is now for its, now in zip(known[0], shape, strict=True)):
            return known[1]
        tool = self._new(name, function, asks=asks)
        if code[-1] is not None and (known is not None or len(self._plain) < PLAIN_MAX):
            self._plain[code] = (shape, tool)
        return tool

    def _new(self, name: str, function: Callable[..., Any], *, asks: bool) -> GuardedTool:
        if not callable(function):
            raise ContractViolation(
                f"step {name!r} of {self.tool.contract.name} is not a function: {function!r}."
                " Nothing was sent."
            )
        contract = Contract(
            name=f"{self.tool.contract.name}.{name}",
            kind=Kind.READ if asks else Kind.WRITE,
            downstream=Downstream.none(),
            window_s=self.keep_s,
            lease_s=self.tool.contract.lease_s,
            not_sent=self._not_sent,
            rejected=(Rejected,),
            through=self._through,
            accept_store_loss=True,
        )
        signature = signature_of(function, f"step {name!r} of {self.tool.contract.name}")
        call = _called_like(_acall if is_async(function) else _call, function, signature)
        hosting = Hosting(encoder=_as_written) if asks else PLAIN
        return GuardedTool(self.tool.house, contract, call, (), hosting=hosting)


class _AsyncRun:
    """Performs the ops of a run."""

    def __init__(self, run: Run, perform: AsyncPerformer) -> None:
        self._run, self._perform = run, perform

    @property
    def cancelled(self) -> asyncio.CancelledError | None:
        return self._perform.cancelled

    def __call__(self, op: Op[Any], /) -> Awaitable[Any]:
        return self._invoke(op) if type(op) is Invoke else self._perform(op)

    async def _invoke(self, op: Invoke) -> Any:
        self._run.begin(op)
        return self._run.judged(await self._perform(op))


class _Failures:
    """Compensations that failed for good: the others are still done."""

    def __init__(self, run: Run) -> None:
        run.refuse_when_stopped()  # a run that has to wait compensates nothing
        self._found: list[StepFailed] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, StepFailed):
            self._found.append(error)
        return isinstance(error, StepFailed)

    def tell(self, error: Exception) -> None:
        if self._found:
            failed = "; ".join(str(each) for each in self._found)
            raise StepFailed(
                f"{error} It could not be compensated: {failed}", effect=self._found[0].effect
            ) from error


def _written(answer: Any, hint: Any) -> bytes:
    """An answer that cannot be written is not acted on: a worker that resumes would have none."""
    try:
        return encode(answer, hint)
    except NotStorable as error:
        raise ContractViolation(
            f"this answer cannot be written down, so nothing is done with it: {error}"
        ) from None


def _as_written(_name: str, hint: Any) -> Callable[[Any], bytes]:
    return functools.partial(_written, hint=hint)


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


async def _acall(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await function(*args, **kwargs)


def _called_like(
    call: Callable[..., Any],
    function: Callable[..., Any],
    signature: inspect.Signature,
    *,
    skip: int = 0,
) -> Callable[..., Any]:
    """*call* as its signature shows it: like *function*, without its first parameters."""
    like: Any = functools.partial(call)
    kept = list(signature.parameters.values())[skip:]
    like.__signature__ = signature.replace(parameters=kept)
    like.__wrapped__ = function
    hints = hints_of(function)
    like.__annotations__ = {
        name: hint
        for name, hint in hints.items()
        if name == "return" or name in {p.name for p in kept}
    }
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(like, name, getattr(function, name, ""))
    return like  # type: ignore[no-any-return]
