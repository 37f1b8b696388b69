"""A workflow: a user's function that asks a `Run` for steps, made a tool whose calls are runs."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from math import inf
from typing import Any, Self, TypedDict, cast
from weakref import WeakKeyDictionary

import msgspec

from effectonce._core.codec import encode
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending
from effectonce._core.guarantees import DAY_S, Capability, Kind
from effectonce._core.keys import Stable
from effectonce._core.ops import Find, Flow, Invoke, Op
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
from effectonce._runtime.unprotected_sends import only_through
from effectonce._tools.context import PLAIN, GuardContext, Hosting
from effectonce._tools.tool import GuardedTool
from effectonce._validate import errors, fields, seconds, several, whole
from effectonce.effect import current_effect
from effectonce.errors import CodeChanged, ContractViolation, GaveUp, Rejected, StepFailed
from effectonce.outcome import Outcome
from effectonce.policy import Contract, Downstream, Retry
from effectonce.workflows._run import Run, last_wait
from effectonce.workflows._step import OfStep, Steps

by_hand: ContextVar[bool] = ContextVar("effectonce_resumed_by_hand", default=False)
KEEP_S, RUNS_MAX = 30 * DAY_S, 20
PLAIN_MAX = 1024  # plain functions whose signature is remembered, by their code
# what else a signature is made of: `lambda n=n: ...`, decorators
_SHAPE = ("__defaults__", "__kwdefaults__", "__wrapped__")


class WorkflowOptions(TypedDict, total=False):
    """What `@guard.workflow(...)` may say."""

    # the arguments that name a run; default: all that are not volatile
    identity: Sequence[str | Stable]
    volatile: Sequence[str]  # arguments that may differ from call to call
    # arguments that are not stored; such a run cannot be resumed from the store alone
    redact: Sequence[str]
    added: Mapping[str, Any]  # parameters that came later, and what calls meant without them
    name: str
    version: str
    keep: float | timedelta  # how long an ended run and its steps are remembered; default: 30 days
    lease_s: float  # how long after a crash another worker may go on
    wait_s: float  # how long a caller waits for who is running it
    runs: int  # how often it may be begun before a person has to look
    # errors that end the run for good, besides StepFailed and Rejected: then it compensates
    ends_on: Sequence[type[Exception]]
    permissions: Iterable[str]  # what its steps may need
    # errors of its plain functions that prove that nothing was sent: such a step may run again
    not_sent: Sequence[type[Exception]]
    through: Any  # its plain functions send only through these protected clients, or "protected"


class Workflow:
    """Everything that is known when a workflow is decorated."""

    def __init__(
        self, house: GuardContext, function: Callable[..., Any], options: WorkflowOptions
    ) -> None:
        self._function, self._runs = function, options.get("runs", RUNS_MAX)
        self.keep_s = seconds(options.get("keep", KEEP_S), "keep")
        ends_on = errors("ends_on", options.get("ends_on", ()))
        self._ends_on: tuple[type[Exception], ...] = (StepFailed, Rejected, *ends_on)
        self._may_end: tuple[type[Exception], ...] = (*self._ends_on, ExceptionGroup)
        whole(runs=self._runs)
        identity, contract = options.get("identity"), self._contract(options)
        permissions = frozenset(several("permissions", options.get("permissions", ())))
        # of functions that are no tools
        self._not_sent = errors("not_sent", options.get("not_sent", ()))
        self._through = only_through(options.get("through", ()))
        signature = signature_of(function, contract.name)
        if not signature.parameters:
            raise ContractViolation(
                f"{contract.name} takes no run: the first parameter of a workflow is the Run that"
                " it asks for steps"
            )
        body = self._abody if is_async(function) else self._body
        hosting = Hosting(
            calling=WorkflowCall,
            performing=self._performing,
            aperforming=self._aperforming,
            steps=True,
        )
        call = _called_like(body, function, signature, skip=1)
        self.tool = GuardedTool(house, contract, call, identity, hosting=hosting)
        self._steps = Steps(self.tool, permissions, self.plain, self.of_step)
        self._plain: dict[Any, tuple[tuple[Any, ...], GuardedTool]] = {}
        self._of_step: WeakKeyDictionary[GuardedTool, OfStep] = WeakKeyDictionary()

    def _contract(self, options: WorkflowOptions) -> Contract:
        return Contract(
            inferred=False,
            name=options.get("name") or str(getattr(self._function, "__name__", "")),
            kind=Kind.WRITE,
            downstream=Downstream.none(),
            version=options.get("version", "1"),
            identity=fields(options.get("identity")),
            volatile=several("volatile", options.get("volatile", ())),
            redact=several("redact", options.get("redact", ())),
            added=options.get("added") or {},
            window_s=self.keep_s,
            # as long as that of its steps: a run that never ended may still come back for them
            tombstone_s=inf,
            lease_s=options.get("lease_s", 30.0),
            wait_s=options.get("wait_s", 30.0),
            retry=Retry(attempts=1, deadline_s=inf),
            separate_dispatch=True,
            rejected=self._ends_on,
        )

    # ------------------------------------------------------------ one run

    def _performing(self, setup: Setup, prepared: Prepared) -> Callable[[Op[Any]], Any]:
        run = Run(self._steps, prepared)
        perform = Performer(setup, msgspec.structs.replace(prepared, leading=(run,)))

        def performing(op: Op[Any]) -> Any:
            if type(op) is not Invoke:
                return perform(op)
            run.begin(op)
            answer = run.judged(perform(op))
            if (note := run.waits(answer)) is not None:
                perform(note)
            return answer

        return performing

    def _aperforming(self, setup: Setup, prepared: Prepared) -> AsyncPerforming:
        run = Run(self._steps, prepared)
        prepared = msgspec.structs.replace(prepared, leading=(run,))
        return _AsyncRun(run, AsyncPerformer(setup, prepared))

    def _body(self, run: Run, *args: Any, **kwargs: Any) -> Any:
        store, error, value = self.tool.house.store, None, None
        if self._may_be_endless():
            self._refuse_endless(run, store.apply(Find(run.effect.key)))
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
        store, error, value = self.tool.house.store, None, None
        if self._may_be_endless():
            self._refuse_endless(run, await store.aapply(Find(run.effect.key)))
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

    def _may_be_endless(self) -> bool:
        return current_effect().epoch > self._runs and not by_hand.get()

    def _refuse_endless(self, run: Run, record: Record | None) -> None:
        """A run that kills its process each time must not do so without end. One that waits for a
        person may be looked at as often as a caller likes.
        """
        begun = current_effect().epoch
        if begun - last_wait(record) > self._runs:
            raise GaveUp(
                f"{run.effect} was begun {begun - 1} times and never ended. Nothing was sent by"
                " this call.",
                effect=run.effect,
                retriable=False,
                corrective_action="Find out why, then resume it by hand:"
                " guard.workflows.resume(key).",
            )

    # ------------------------------------------------------------ resuming

    def resume(self, record: Record) -> Any:
        """By hand: however often it was begun."""
        return self._aresume(record) if self.tool.is_async else self._resume(record)

    def _resume(self, record: Record) -> Any:
        with _by_hand():
            return self.go_on(record).unwrap()

    async def _aresume(self, record: Record) -> Any:
        with _by_hand():
            return (await self.ago_on(record)).unwrap()

    def go_on(self, record: Record) -> Outcome[Any]:
        """Without waiting for a worker that has it."""
        prepared = self._recalled(record)
        ending = drive(self._impatient(prepared), self._performing(self.tool.setup, prepared))
        return self.tool.concluded(ending, prepared)

    async def ago_on(self, record: Record) -> Outcome[Any]:
        prepared = self._recalled(record)
        perform = self._aperforming(self.tool.setup, prepared)
        ending = await adrive_call(self._impatient(prepared), perform)
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
            what = f"{', '.join(sorted(gone))}, which {ref.tool} does not take any more"
            why = f"{ref} cannot go on: it was begun with {what}. Nothing was sent."
            raise CodeChanged(why, effect=ref)
        return self.tool.recalled(record)

    def _impatient(self, prepared: Prepared) -> Flow[Ending]:
        plan = msgspec.structs.replace(self.tool.plan, wait_s=0.0)
        flow = WorkflowCall(prepared.request, plan, self.tool.house.env).flow()
        return self.tool.recorded(flow, prepared)

    # ------------------------------------------------------------ its steps

    def of_step(self, tool: GuardedTool) -> OfStep:
        known = self._of_step.get(tool)
        if known is None:
            terms, in_transaction = tool.terms, tool.terms.downstream is Capability.TRANSACTION
            pinned = msgspec.structs.replace(
                terms, window_s=max(terms.window_s, self.keep_s), tombstone_s=inf, rerun=False
            )
            contract = tool.contract
            asked_first = (
                terms.steps
                or terms.approval
                or contract.allowances
                or contract.downstream.before_sending
            )
            at_once = not (tool.plan.separate_dispatch or in_transaction or asked_first)
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
        hosting = PLAIN
        if asks:
            hosting = Hosting(encoder=lambda _, hint: functools.partial(_written, hint=hint))
        return GuardedTool(self.tool.house, contract, call, (), hosting=hosting)


@contextmanager
def _by_hand() -> Iterator[None]:
    token = by_hand.set(True)
    try:
        yield
    finally:
        by_hand.reset(token)


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
        answer = self._run.judged(await self._perform(op))
        if (note := self._run.waits(answer)) is not None:
            await self._perform(note)
        return answer


class _Failures:
    """Compensations that failed for good: the others are still done."""

    def __init__(self, run: Run) -> None:
        run.refuse_when_stopped()  # a run that has to wait compensates nothing
        self._found: list[StepFailed] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, StepFailed):
            self._found.append(error)
        return isinstance(error, StepFailed)

    def tell(self, error: Exception) -> None:
        if self._found:
            failed = "; ".join(str(each) for each in self._found)
            why = f"{error} It could not be compensated: {failed}"
            raise StepFailed(why, effect=self._found[0].effect) from error


def _written(answer: Any, hint: Any) -> bytes:
    """An answer that cannot be written is not acted on: a worker that resumes would have none."""
    try:
        return encode(answer, hint)
    except NotStorable as error:
        why = f"this answer cannot be written down, so nothing is done with it: {error}"
        raise ContractViolation(why) from None


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
    names = {"return", *(parameter.name for parameter in kept)}
    hints = hints_of(function)
    like.__annotations__ = {name: hint for name, hint in hints.items() if name in names}
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(like, name, getattr(function, name, ""))
    return like  # type: ignore[no-any-return]
