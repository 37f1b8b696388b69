"""What the flow of a call asks for, performed: for sync callers and for async ones. The loops
themselves are in `_drivers.py`.

Cancellation is a crash, with one exception: what is known is written down first. A cancelled
caller finishes the store write it is in (repeating it is harmless), does not start the tool if
it has not started, and is cancelled afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from math import inf
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from effectonce._core.codec import plain
from effectonce._core.effect_ref import EffectRef
from effectonce._core.key_shapes import SentKey
from effectonce._core.ops import (
    Answer,
    Applied,
    Ask,
    CannotTell,
    Cell,
    Complete,
    Fail,
    Find,
    Flow,
    Interrupted,
    Invoke,
    Keep,
    NotFound,
    NotStarted,
    Ok,
    Op,
    Raised,
    ReadCell,
    Refused,
    Sleep,
    Transact,
    Unavailable,
    Unconfirmed,
)
from effectonce._core.preconditions import CheckPrecondition
from effectonce._core.record import Record, Request, State
from effectonce._core.safe_access import attempt, get
from effectonce._drivers import adrive
from effectonce._runtime.heartbeat import Heartbeat
from effectonce._runtime.isolation import done
from effectonce._runtime.nested_tools import akept_from, kept_from
from effectonce._runtime.precondition_checks import achecked, checked
from effectonce._runtime.step import StepContext, here, inside
from effectonce.effect import THIS_CLOCK, Effect, running
from effectonce.errors import ContractViolation, NotSent, PartialSuccess, StoreUnavailable
from effectonce.stores.base import (
    AsyncTransaction,
    RolledBack,
    Store,
    Transaction,
    TransactionalStore,
)

T = TypeVar("T")
Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
Copied: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Arguments]
CLOCK = "clock"  # a cell that is never written: reading it returns the store's time
# everything else is the store's
_OURS = frozenset({Invoke, Ask, Transact, CheckPrecondition, Sleep, Keep})


class Setup(Struct, frozen=True):
    """How one tool is run: its store, its function and its probe, what all its calls share."""

    store: Store
    heart: Heartbeat
    secret: bytes
    lease_s: float
    function: Callable[..., Any]
    probe: Callable[..., Any] | None
    encode: Callable[[Any], bytes]
    keep: Callable[[Complete | Fail], None]
    check: Callable[[Effect, Answer], Answer]  # does an attempt use what its tool declares?
    one_request: bool = False
    sent_key: SentKey | None = None
    precondition: Callable[..., Any] | None = None  # of the arguments, as a tuple and a mapping

    def called(self, op: Invoke | Transact | Ask) -> Callable[..., Any]:
        if not isinstance(op, Ask):
            return self.function
        assert self.probe is not None
        return self.probe

    def asked(self, op: Ask, call: Prepared, record: object, cell: object) -> Effect:
        """What a probe may know; of time, what the store says."""
        effect = Effect(call.ref, 0, op.epoch, inf, self.secret, sent_key=self.sent_key)
        if not isinstance(record, Record) or not isinstance(cell, Cell):
            return effect
        since_s = max(0.0, cell.now - record.decided_at)
        in_doubt_s = since_s if record.state is State.IN_DOUBT else 0.0
        unsent = record.state is State.CLAIMED and record.sends == 0
        return structs.replace(
            effect, sent_at=record.first_dispatch_at, in_doubt_s=in_doubt_s, unsent=unsent
        )

    def proven(self, call: Prepared, record: object, answer: Answer) -> Answer:
        """What a probe answered. It looks where the tool sends today, and by the key of today:
        what was sent elsewhere, or under another key, is not found there.
        """
        if not (isinstance(record, Record) and isinstance(answer, Ok)):
            return answer
        sent, now = record.request.terms, call.request.terms
        same = (sent.provider, sent.key_shape) == (now.provider, now.key_shape)
        if same or not isinstance(answer.value, NotFound):
            return answer
        return Ok(CannotTell("it was sent when the tool named another provider, or none"))

    def effect(self, op: Invoke | Transact, call: Prepared, connection: Any = None) -> Effect:
        terms, once, before = (
            call.request.terms,
            self.one_request,
            type(op) is Invoke and op.sent_before,
        )
        return Effect(
            call.ref,
            op.attempt,
            op.epoch,
            op.give_up_at,
            self.secret,
            connection,
            terms,
            once,
            before,
            call.sent,
            self.sent_key,
        )

    def holds(self, call: Prepared) -> Any:
        """Does what this call rests on hold? Of an async tool, an awaitable."""
        assert self.precondition is not None
        return self.precondition(call.args, call.kwargs)

    def completion(self, op: Transact, answer: Ok) -> Complete:
        return Complete(op.key, op.token, op.epoch, answer.stored or self.encode(answer.value))


class Prepared(Struct, frozen=True):
    """One call, ready to be claimed."""

    request: Request
    ref: EffectRef
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    again: bool = False  # this process has asked for it before, so its outcome may be known
    # how each attempt gets arguments of its own; None: they cannot change
    copied: Copied | None = None
    leading: tuple[Any, ...] = ()  # what the function is given before them
    # what its attempts sent over HTTP: `Effect.sent`
    sent: dict[tuple[str, str], dict[int, set[str]]] = {}

    @property
    def arguments(self) -> Arguments:
        """What one attempt is given. No other attempt and no caller sees what it changes there."""
        args, kwargs = (
            (self.args, self.kwargs) if self.copied is None else self.copied(self.args, self.kwargs)
        )
        return (*self.leading, *args) if self.leading else args, kwargs


# ---------------------------------------------------------------- sync


class Performer(Struct, eq=False):
    """Performs ops for one sync call."""

    setup: Setup
    call: Prepared

    def __call__(self, op: Op[Any]) -> Any:
        if type(op) not in _OURS:
            try:
                return self.setup.store.apply(op)
            except StoreUnavailable as error:
                return Unavailable(error)
        match op:
            case Invoke() | Ask():
                return self._run(op)
            case Sleep(seconds):
                return time.sleep(seconds)
            case Transact():
                return self._transact(op)
            case CheckPrecondition():
                setup = self.setup
                return checked(op, setup.heart, setup.lease_s, partial(setup.holds, self.call))
            case Keep(write):
                return self.setup.keep(write)
            case _:
                raise TypeError(f"no performer for {op}")

    def _run(self, op: Invoke | Ask | Transact, lent: Transaction | None = None) -> Answer:
        setup, call = self.setup, self.call
        record = self(Find(op.key)) if type(op) is Ask else None
        if type(op) is Ask:
            effect = setup.asked(op, call, record, self(ReadCell(CLOCK)))
        else:
            effect = setup.effect(op, call, None if lent is None else lent.connection)
        if not op.key:  # a read: nothing to keep alive
            return _capture(setup.called(op), call, effect)
        if lent is not None and lent.exclusive:  # nor here: no other caller can claim it meanwhile
            return setup.check(effect, _capture(setup.function, call, effect))
        heart = setup.heart
        beat = heart.beat(op, setup.lease_s)
        try:
            heart.beats.add(beat)
            try:
                heart.wake(beat)
            except RuntimeError as error:  # no room for a thread, or the interpreter ends
                return Raised(NotSent(f"nothing could keep the lease of this call alive: {error}"))
            if type(op) is Ask:
                return setup.proven(call, record, _capture(setup.called(op), call, effect))
            return setup.check(effect, _capture(setup.function, call, effect))
        finally:
            heart.beats.discard(beat)

    def _transact(self, op: Transact) -> Answer | Refused | Unavailable | Unconfirmed:
        assert isinstance(self.setup.store, TransactionalStore)
        try:
            with self.setup.store.transaction() as transaction:
                answer = self._run(op, transaction)
                if not isinstance(answer, Ok):
                    return (
                        _gone(answer)
                        if transaction.broken and _is_failure(answer)
                        else _rolled_back(answer)
                    )
                try:
                    reply = transaction.complete(self.setup.completion(op, answer))
                except ContractViolation as error:
                    # what the tool did with its transaction cannot be recorded: it is rolled back
                    return Raised(error)
                if not isinstance(reply, Applied):
                    return Refused(None)
                try:
                    transaction.commit()
                except RolledBack as error:
                    return Unavailable(error)
                except StoreUnavailable as error:
                    return Unconfirmed(answer.value, error)
                return answer
        except StoreUnavailable as error:
            return Unavailable(error)


def _is_failure(answer: Answer) -> bool:
    """Not Ctrl-C: whatever became of the connection, that is for the caller."""
    return isinstance(answer, Raised) and isinstance(answer.error, Exception)


def _rolled_back(answer: Answer) -> Answer:
    """A rollback leaves nothing: `PartialSuccess` would have an operator repair what never was."""
    if not (isinstance(answer, Raised) and isinstance(answer.error, PartialSuccess)):
        return answer
    wrong = ContractViolation(
        f"a tool raised PartialSuccess ({answer.error}) inside a transaction, which an error rolls"
        " back: nothing of it stays. Return what is done, or do the rest in another tool."
    )
    wrong.__cause__ = answer.error
    return Raised(wrong)


def _gone(answer: Answer) -> Unavailable:
    """The store's connection was lost while the tool ran: the store's failure, not the tool's."""
    error = answer.error if isinstance(answer, Raised) else None
    lost = StoreUnavailable(
        f"its connection was lost while the tool ran ({error}). Nothing of its transaction stays."
    )
    lost.__cause__ = error
    return Unavailable(lost)


def _place_inside(call: Prepared, outer: StepContext | None) -> StepContext | None:
    """Where the tool's own guarded calls happen. A tool that may repeat after its window is no
    place: its next run is another one.
    """
    return inside(call.ref, outer) if call.ref.key and not call.request.terms.rerun else outer


def _capture(function: Callable[..., Any], call: Prepared, effect: Effect) -> Answer:
    # Not by tokens: a signal may strike between setting a variable and noting its token, and the
    # thread would stay inside this effect.
    before, outside, started = running.get(), here.get(), time.monotonic()
    if before is not None and (kept := kept_from(before, effect)) is not None:
        return kept
    try:
        try:
            running.set(effect)
            here.set(_place_inside(call, outside))
            args, kwargs = call.arguments
            return _ok(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001
            # whatever the tool raises is its answer, KeyboardInterrupt included
            return _raised(error, started)
        finally:
            here.set(outside)
    finally:
        running.set(before)


def _ok(value: Any) -> Ok:
    """Plain data has happened; of anything else it is looked at."""
    stored = plain(value)
    return Ok(value, stored) if stored else Ok(done(value))


def _raised(error: BaseException, started: float) -> Raised:
    """An error that ended another effect before this began (a constant, a mock's) is ours now."""
    match get(error, "effectonce_at"):
        case (float() as ended, clock) if clock is THIS_CLOCK and ended < started:
            attempt(delattr, error, "effectonce_of")
    return Raised(error)


# ---------------------------------------------------------------- async


class AsyncPerforming(Protocol):
    """Performs ops, and remembers that the caller was cancelled meanwhile."""

    @property
    def cancelled(self) -> asyncio.CancelledError | None: ...

    def __call__(self, op: Op[Any], /) -> Awaitable[Any]: ...


async def adrive_call(flow: Flow[T], perform: AsyncPerforming) -> T:
    """Run *flow* to its end; raise the caller's cancellation when all that is known is written."""
    ended = await adrive(flow, perform)
    if perform.cancelled is not None:
        raise perform.cancelled from None
    return ended


class AsyncPerformer(Struct, eq=False):
    """Performs ops for one async call."""

    setup: Setup
    call: Prepared
    cancelled: asyncio.CancelledError | None = None

    def __call__(self, op: Op[Any]) -> Coroutine[Any, Any, Any]:
        return self._perform(op) if type(op) in _OURS else self._undisturbed(op)

    async def _perform(self, op: Op[Any]) -> Any:
        match op:
            case Invoke() | Ask() | Transact() | CheckPrecondition() if self.cancelled is not None:
                return NotStarted(self.cancelled)
            case Invoke() | Ask():
                return await self._run(op)
            case Sleep(seconds):
                return await self._sleep(seconds)
            case Transact():
                return await self._transact(op)
            case CheckPrecondition():
                setup = self.setup
                holds = partial(setup.holds, self.call)
                answer = await achecked(op, setup.heart, setup.lease_s, holds)
                error = answer.error if isinstance(answer, Raised) else None
                self.cancelled = error if isinstance(error, asyncio.CancelledError) else None
                return answer
            case Keep(write):
                return await self._until_done(asyncio.to_thread(self.setup.keep, write))
            case _:
                raise TypeError(f"no performer for {op}")

    async def _undisturbed(self, op: Op[Any]) -> Any:
        """A cancelled write lost its answer: repeat it until known; remember the cancellation."""
        try:
            return await self.setup.store.aapply(op)
        except StoreUnavailable as error:
            return Unavailable(error)
        except asyncio.CancelledError as cancelled:
            self.cancelled = cancelled
        try:
            return await self._until_done(self.setup.store.aapply(op))
        except StoreUnavailable as error:
            return Unavailable(error)

    async def _until_done(self, work: Awaitable[T]) -> T:
        """Cancel the caller as often as you like: this ends when the work does."""
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as cancelled:
                if task.cancelled():
                    raise
                self.cancelled = cancelled
        return task.result()

    async def _sleep(self, seconds: float) -> Interrupted | None:
        if self.cancelled is None:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError as cancelled:
                self.cancelled = cancelled
        return None if self.cancelled is None else Interrupted(self.cancelled)

    async def _run(
        self, op: Invoke | Ask | Transact, lent: AsyncTransaction | None = None
    ) -> Answer:
        setup, call = self.setup, self.call
        record = await self(Find(op.key)) if type(op) is Ask else None
        if type(op) is Ask:
            effect = setup.asked(op, call, record, await self(ReadCell(CLOCK)))
        else:
            effect = setup.effect(op, call, None if lent is None else lent.connection)
        if not op.key:
            return await self._capture(setup.called(op), effect)
        if lent is not None and lent.exclusive:
            return setup.check(effect, await self._capture(setup.function, effect))
        pulse = setup.heart.pulse()
        beat = pulse.start(op, setup.lease_s)
        try:
            if type(op) is Ask:
                return setup.proven(call, record, await self._capture(setup.called(op), effect))
            return setup.check(effect, await self._capture(setup.function, effect))
        finally:
            pulse.stop(beat)

    async def _capture(self, function: Callable[..., Any], effect: Effect) -> Answer:
        call, before = self.call, running.get()
        if before is not None and (kept := await akept_from(before, effect)) is not None:
            if isinstance(kept.error, asyncio.CancelledError):
                self.cancelled = kept.error
            return kept
        token, outside, started = (
            running.set(effect),
            here.set(_place_inside(call, here.get())),
            time.monotonic(),
        )
        try:
            args, kwargs = call.arguments
            return _ok(await function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001
            # whatever the tool raises is its answer, cancellation included
            if isinstance(error, asyncio.CancelledError):
                self.cancelled = error
            return _raised(error, started)
        finally:
            here.reset(outside)
            running.reset(token)

    async def _transact(self, op: Transact) -> Answer | Refused | Unavailable | Unconfirmed:
        assert isinstance(self.setup.store, TransactionalStore)
        committed: Answer | None = None
        try:
            async with self.setup.store.atransaction() as transaction:
                answer = await self._run(op, transaction)
                if not isinstance(answer, Ok):
                    return (
                        _gone(answer)
                        if transaction.broken and _is_failure(answer)
                        else _rolled_back(answer)
                    )
                try:
                    reply = await transaction.complete(self.setup.completion(op, answer))
                except ContractViolation as error:
                    return Raised(error)
                if not isinstance(reply, Applied):
                    return Refused(None)
                try:
                    await self._until_done(transaction.commit())
                except RolledBack as error:
                    return Unavailable(error)
                except StoreUnavailable as error:
                    return Unconfirmed(answer.value, error)
                committed = answer
            return answer
        except StoreUnavailable as error:
            return Unavailable(error)
        except asyncio.CancelledError as cancelled:
            self.cancelled = cancelled
            return NotStarted(cancelled) if committed is None else committed
