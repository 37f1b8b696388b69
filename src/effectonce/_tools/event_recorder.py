"""What the driver performs, reported as events: an op and its reply go in, events come out, for
one call at a time.

A watched tool drives the same flow by the same performer; `heard` stands between them, passes
everything on, and is the same for sync and async. What an op means for the effect is reported
when its reply is there, never before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from effectonce._core.classification.classify import UNKNOWN, Certainty, Classifier, Verdict
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending
from effectonce._core.observed_sends import of_another, of_attempt
from effectonce._core.ops import (
    Applied,
    Ask,
    Attest,
    Busy,
    CannotTell,
    Claim,
    Complete,
    Dispatch,
    Doubt,
    Doubtful,
    Fail,
    Flow,
    Found,
    Held,
    Invoke,
    Keep,
    Latched,
    ListCells,
    NotFound,
    NotStarted,
    Ok,
    Op,
    Raised,
    ReadCell,
    Refused,
    Refute,
    Rerun,
    Sleep,
    Together,
    Transact,
    Unavailable,
    Unconfirmed,
    Unsend,
    WriteCell,
)
from effectonce._core.preconditions import CheckPrecondition
from effectonce._core.retry_flow import Over
from effectonce._tools.observers import Observers
from effectonce.observe.events import Event, ended, given_up, suppressed

T = TypeVar("T")
# these say nothing about how the call goes on
_ASIDE = frozenset({ReadCell, WriteCell, ListCells, Attest})
_WAITS = (Unavailable, Busy, Latched)  # after one of these, a pause is not for another attempt


class CallFacts(Struct, frozen=True, kw_only=True):
    """What all calls of one tool have in common."""

    watch: Observers
    tool: str
    kind: str
    classify: Classifier
    resend_s: float = 0.0  # for so long may its request be sent again
    digests: Callable[[Any], Mapping[str, str]]  # of the arguments of a prepared call
    system: str = ""  # which kind of store it is
    now: Callable[[], float] = time.perf_counter
    clock: Callable[[], float] = time.time


class EventRecorder:
    """One call, as it is reported."""

    def __init__(
        self,
        facts: CallFacts,
        ref: EffectRef | None,
        call: Any = None,
        *,
        doubt_age_s: float | None = None,
        workflow: bool = False,
    ) -> None:
        self.facts, self.ref, self.call, self.workflow = facts, ref, call, workflow
        self.attempts = 0
        self.verdict: Verdict | None = None  # of the last attempt that failed
        self.error = ""
        self._failing = False  # and nothing was decided about it yet
        self._token = ""  # that was reported to hold the effect
        self._last: Any = None  # what the store answered last about the record
        self._doubt_age_s = doubt_age_s
        self._started = facts.now()

    def tell(self, name: str, **data: Any) -> None:
        facts = self.facts
        if facts.watch.of(name):
            facts.watch.emit(
                Event(
                    name=name,
                    at=facts.clock(),
                    tool=facts.tool,
                    kind=facts.kind,
                    effect=self.ref,
                    **data,
                )
            )

    # ------------------------------------------------------------ the call

    def begins(self) -> None:
        self.tell("calling")

    def ends(self, ending: Ending | Over) -> None:
        end, reason = ended(ending, self.attempts), suppressed(ending, self.attempts)
        if reason:
            self._emit_verdict("retry_suppressed", attempt=self.attempts, reason=reason)
        if self.ref is not None and given_up(ending, self.attempts):
            self._emit_verdict("dead_letter", attempt=self.attempts, reason=reason or end.outcome)
        if end.event:
            self.tell(end.event, age_s=end.age_s, error=end.error, outcome=end.detail)
        self._call(end.outcome, end.error, end.age_s)

    def cut(self, error: BaseException) -> None:
        """The call ended by an error no flow knows: a cancellation, or a mistake that is raised."""
        stopped = isinstance(error, GeneratorExit)  # from outside: why, only the caller knows
        self._call(
            "refused" if isinstance(error, Exception) else "cancelled",
            "" if stopped else type(error).__name__,
        )

    def _call(self, outcome: str, error: str, age_s: float | None = None) -> None:
        took_s = self.facts.now() - self._started
        if self.workflow:
            self.tell("workflow", outcome=outcome, error=error, duration_s=took_s)
        self.tell(
            "call",
            outcome=outcome,
            error=error,
            attempt=self.attempts,
            duration_s=took_s,
            age_s=age_s,
        )

    # ------------------------------------------------------------ ops

    def before(self, op: Op[Any]) -> None:
        match op:
            case Invoke(attempt=attempt) | Transact(attempt=attempt):
                self.tell("attempting", attempt=attempt)
            case Sleep(seconds) if self._failing and not isinstance(self._last, _WAITS):
                self._failing = False
                self._emit_verdict("retry_scheduled", attempt=self.attempts, delay_s=seconds)

    def after(self, op: Op[Any], reply: Any, took_s: float) -> None:
        match op:
            case Invoke() | Transact():
                self._attempted(op, reply, took_s)
            case Ask():
                self._probed(reply, took_s)
            case Keep():
                self.tell("kept", attempt=self.attempts)
            case Sleep() | CheckPrecondition():
                pass
            case _:
                self._stored(op, reply, took_s)

    def _attempted(self, op: Invoke | Transact, reply: Any, took_s: float) -> None:
        self.attempts, self._last, self._failing = op.attempt, None, False
        in_transaction = isinstance(op, Transact)
        match reply:
            case Ok():
                self.verdict, self.error = None, ""
            case Raised(error):
                self._failing = True
                self.verdict, self.error = (
                    self._judged(reply, op),
                    type(error).__name__,
                )
            case NotStarted(error):
                self.attempts -= 1
                self.verdict, self.error = (
                    UNKNOWN.but(certainty=Certainty.NOT_SENT),
                    type(error).__name__,
                )
            case Unconfirmed(_, error) | Unavailable(error):
                sure = isinstance(reply, Unavailable)
                self.verdict = UNKNOWN.but(
                    certainty=Certainty.NOT_SENT if sure else Certainty.AMBIGUOUS
                )
                self.error = type(error).__name__
            case _:
                self.verdict, self.error = UNKNOWN.but(certainty=Certainty.NOT_SENT), "LeaseLost"
        self._emit_verdict("attempt", attempt=op.attempt, duration_s=took_s)
        if in_transaction and isinstance(reply, Ok):
            self.tell("completed", attempt=self.attempts)

    def _judged(self, reply: Raised, op: Invoke | Transact) -> Verdict:
        """As the flow judges it."""
        in_transaction = isinstance(op, Transact)
        key = "" if self.ref is None else self.ref.key
        if key and not in_transaction and of_another(reply.error, key):
            return UNKNOWN
        repeatable = self.facts.resend_s > 0 and not reply.unaided
        return of_attempt(
            self.facts.classify(reply.error),
            reply.seen,
            in_transaction=in_transaction,
            repeatable=repeatable,
            sent_before=isinstance(op, Invoke) and op.sent_before,
        )

    def _emit_verdict(self, name: str, **data: Any) -> None:
        if self.verdict is None:
            self.tell(name, **data)
        else:
            self.tell(
                name,
                error=self.error,
                bucket=self.verdict.bucket,
                certainty=self.verdict.certainty,
                **data,
            )

    def _probed(self, reply: Any, took_s: float) -> None:
        match reply:
            case Ok(Found()):
                outcome, error = "found", ""
            case Ok(NotFound()):
                outcome, error = "not_found", ""
            case Ok(CannotTell()):
                outcome, error = "cannot_tell", ""
            case Raised(raised) | NotStarted(raised):
                outcome, error = "cannot_tell", type(raised).__name__
            case _:
                outcome, error = "cannot_tell", "TypeError"
        self.tell("probed", outcome=outcome, error=error, duration_s=took_s)

    # ------------------------------------------------------------ the store

    def _stored(self, op: Op[Any], reply: Any, took_s: float) -> None:
        name, lost = operation(op), isinstance(reply, Unavailable)
        error = trouble(reply.error) if lost else ""
        self.tell(
            "store", operation=name, duration_s=took_s, error=error, dependency=self.facts.system
        )
        if lost:
            self.tell("store_error", operation=name, duration_s=took_s, error=error)
        if isinstance(op, Together) and not lost:
            for each, its in zip(op.ops, reply, strict=True):
                self._changed(each, its)
        elif type(op) not in _ASIDE:
            self._changed(op, reply)

    def _changed(self, op: Op[Any], reply: Any) -> None:
        self._last = reply
        match op, reply:
            case Claim(), Held():
                self._held(op, reply)
            case Claim(), Doubtful(since_s, _):
                self._doubt_age_s = since_s
                if since_s == 0:  # it was this claim that found it abandoned
                    self.tell("taken_over", outcome="in_doubt")
                    self.tell("in_doubt", reason="its owner vanished")
            case _, Applied():
                self._applied(op)
            case Complete(by=""), Refused():
                self.tell("fenced_out", attempt=self.attempts)
            case _:
                pass

    def _held(self, op: Claim, held: Held) -> None:
        if op.token == self._token:
            return  # the same claim again: an acknowledgement was lost
        self._token = op.token
        watch, request = self.facts.watch, op.request
        digests = self.facts.digests(self.call) if watch.digests and watch.of("reserved") else {}
        self.tell("reserved", fingerprint=request.fingerprint, arguments=digests)
        if held.taken_over:
            self.tell("taken_over", outcome="held", count=held.sends)
        if held.dispatched:
            self.tell("dispatched", count=held.sends)

    def _applied(self, op: Any) -> None:
        match op:
            case Dispatch(send=send):
                self.tell("dispatched", count=send)
            case Unsend():
                self.tell("not_sent", attempt=self.attempts)
            case Complete(by=""):
                self.tell("completed", attempt=self.attempts)
            case Complete(by=by) if self._doubt_age_s is None and self.attempts == 0:
                self.tell("completed", by=by)  # found before the first send
            case Complete(by=by):
                self.tell("settled", outcome="happened", by=by, age_s=self._doubt_age_s)
            case Fail() | Refute():
                self._emit_verdict("failed", attempt=self.attempts)
            case Doubt():
                self._doubt_age_s = 0.0
                why = "" if self.verdict is None else self.verdict.why
                self._emit_verdict("in_doubt", attempt=self.attempts, reason=why)
            case Rerun():
                self.tell("settled", outcome="not_happened", by="probe", age_s=self._doubt_age_s)
            case _:
                pass


def operation(op: Op[Any]) -> str:
    """An op's name, as it is counted."""
    return _OPERATIONS.get(type(op)) or _named(type(op))


_OPERATIONS: dict[type, str] = {}


def _named(op: type) -> str:
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in op.__name__).lstrip("_")
    _OPERATIONS[op] = name
    return name


def trouble(error: BaseException) -> str:
    """What kept the store from answering: the type of the driver's own error, if there is one."""
    return type(error if error.__cause__ is None else error.__cause__).__name__


# ---------------------------------------------------------------- listening


def heard(flow: Flow[T], telling: EventRecorder) -> Flow[T]:
    """The same flow, with an observer: every op passes on as it is, and so does its reply."""
    now = telling.facts.now
    try:
        op = next(flow)
        while True:
            telling.before(op)
            began = now()
            reply = yield op
            telling.after(op, reply, now() - began)
            op = flow.send(reply)
    except StopIteration as done:
        ending: T = done.value
        return ending
    finally:
        flow.close()


def heard_call(flow: Flow[T], telling: EventRecorder) -> Flow[T]:
    """The same for a whole call: how it begins and how it ends is reported as well."""
    telling.begins()
    try:
        ending = yield from heard(flow, telling)
    except BaseException as error:  # reported, and raised as it is
        telling.cut(error)
        raise
    telling.ends(ending)  # type: ignore[arg-type]  # a call's flow ends so
    return ending
