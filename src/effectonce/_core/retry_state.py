"""How long one call goes on: the same rules for a guarded call, a read and a plain function.

Layers that retry inside each other do not multiply: the layer that gave up has retried enough,
and no other layer retries its `GaveUp`. What an outer loop of another library adds is bounded by
the turn, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

from msgspec import Struct, structs

from effectonce._core.backoff import MULTIPLIER, Jitter, delay, full_jitter
from effectonce._core.budget import Purchase, TurnState
from effectonce._core.classification.classify import Classifier
from effectonce._core.classification.verdicts import SURE, Bucket, Verdict
from effectonce._core.codec import excuse
from effectonce._core.decisions import GOES_ON, Action, gate
from effectonce._core.ops import Complete, Fail, Flow, Interrupted, Keep, Op, Sleep, Unavailable
from effectonce._core.pauses import Pauses
from effectonce._core.safe_access import get

W = TypeVar("W")
THROTTLED = frozenset({Bucket.RATE_LIMIT, Bucket.OVERLOADED})


class Tokens(Protocol):
    """The retry budget of a dependency."""

    @property
    def succeeded(self) -> Callable[[], object]: ...

    def refund(self, verdict: Verdict) -> None: ...

    def charge(self, verdict: Verdict) -> Flow[bool]: ...


class PermitProtocol(Protocol):
    """The right to make one call; say once how it ended."""

    @property
    def succeeded(self) -> Callable[[], object]: ...

    def failed(self, error: object, /) -> None: ...

    def released(self) -> None: ...


class CircuitProtocol(Protocol):
    """The breaker of a dependency."""

    @property
    def free(self) -> PermitProtocol | None:
        """The permit that all callers share now; None: ask for one."""

    def refusal(self) -> Exception | None: ...

    def try_admit(self) -> PermitProtocol | Exception: ...


class Retrying(Struct, frozen=True, kw_only=True):
    """How often and how patiently to try."""

    attempts: int
    throttled_attempts: int
    deadline_s: float
    base_s: float
    throttled_base_s: float
    cap_s: float
    jitter: Jitter
    multiplier: float = MULTIPLIER
    classify: Classifier
    tokens: Tokens | None = None
    circuit: CircuitProtocol | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """How this tool wants to be called: the flow's view of a contract."""

    lease_s: float
    wait_s: float  # how long to wait for another caller of the same effect; 0 = not at all
    retrying: Retrying
    separate_dispatch: bool
    has_probe: bool
    encode: Callable[[Any], bytes]
    encode_partial: Callable[[BaseException], bytes | None]


class Env(Struct, frozen=True, kw_only=True):
    """The world outside, as arguments: a monotonic clock, tokens, randomness, paused tools."""

    now: Callable[[], float]
    new_token: Callable[[], str]
    rng: Callable[[], float]
    pauses: Pauses | None = None  # None: nothing can be paused


class Admission:
    """The circuit and the retry budget of the dependency, as one call meets them."""

    __slots__ = ("_failed", "_permit", "_tokens", "circuit")

    def __init__(self, circuit: CircuitProtocol | None, tokens: Tokens | None) -> None:
        self.circuit, self._tokens = circuit, tokens
        self._permit: PermitProtocol | None = None
        # how the attempt before ended: the next one was charged for that
        self._failed: Verdict | None = None

    def refusal(self) -> Exception | None:
        """Why the circuit would let nothing through now."""
        return None if self.circuit is None else self.circuit.refusal()

    def ask(self) -> Exception | None:
        """Ask for a permit as late as possible: it measures the call. None: nothing against it."""
        if self.circuit is None:
            return None
        asked = self.circuit.try_admit()
        if isinstance(asked, Exception):
            return asked
        self._permit = asked
        return None

    def ended(self, verdict: Verdict | None) -> None:
        """How the attempt ended; None: well."""
        if self is NO_LIMIT:
            return
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.succeeded() if verdict is None else permit.failed(verdict)
        if verdict is None and self._tokens is not None:
            earn(self._tokens, self._failed)
        self._failed = verdict

    def release(self) -> None:
        """The attempt says nothing about the dependency."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.released()


NO_LIMIT = Admission(None, None)  # of a dependency that has neither: nothing is ever noted in it


def earn(tokens: Tokens, retried: Verdict | None) -> None:
    """A call succeeded: at once, or with its retry after *retried*."""
    if retried is None:
        tokens.succeeded()
    else:
        tokens.refund(retried)


class StopReason(str):
    """Why there is no other attempt: a sentence, and one word for those who count."""

    __slots__ = ("word",)
    word: str

    def __new__(cls, word: str, text: str) -> Self:
        why = super().__new__(cls, text)
        why.word = word
        return why


class RetryDecision(Struct, frozen=True):
    """What to do about an error. With a delay: try again after it."""

    action: Action
    why: str
    delay_s: float | None = None
    gave_up: bool = False  # there is no other attempt

    @property
    def worthwhile(self) -> bool:
        """Another attempt could go better, whether or not there is one."""
        return self.gave_up or self.delay_s is not None


class RetryState:
    """What is left of one call's attempts and time."""

    previous_s = 0.0
    charged: Verdict | None = None  # what the attempt under way is a retry after
    # how the last attempt ended that may have had an effect
    unanswered: BaseException | None = None

    def __init__(
        self,
        how: Retrying,
        env: Env,
        turn: TurnState | None = None,
        step: str = "",
        started_at: float | None = None,
        attempt: int = 0,
        refusals: int = 0,
    ) -> None:
        self.how, self.env, self.turn, self.step = how, env, turn, step
        self.give_up_at = (env.now() if started_at is None else started_at) + how.deadline_s
        # of all attempts, those that were put off and did nothing
        self.attempt, self.refusals = attempt, refusals

    def anew(self) -> RetryState:
        """As many attempts at something else, in the same time."""
        started_at = self.give_up_at - self.how.deadline_s
        return RetryState(self.how, self.env, self.turn, self.step, started_at)

    def went_well(self) -> None:
        """A retry was paid for, and it went well."""
        if self.charged is not None and self.how.tokens is not None:
            earn(self.how.tokens, self.charged)

    def begin(self, *, again: bool) -> Flow[str]:
        """Take an attempt from the turn; *again*: it was tried before. Why not; "" if it may."""
        return "" if self.turn is None else (yield from self._spend(None, again=again))

    def after(
        self, error: BaseException, verdict: Verdict, *, repeatable: bool, probe: bool = False
    ) -> Flow[RetryDecision]:
        """What to do about this error. A retry is paid when it is scheduled, not when it leaves."""
        row, how, now = gate(verdict, repeatable=repeatable, probe=probe), self.how, self.env.now()
        if verdict.certainty not in SURE:
            self.unanswered = error
        if row.action not in GOES_ON or not isinstance(error, Exception):
            return RetryDecision(row.action, row.why)
        self.refusals += verdict.bucket in THROTTLED and verdict.certainty in SURE
        used_up = self._tried_often_enough()
        if used_up:
            return RetryDecision(Action.HAND_BACK, used_up, gave_up=True)
        base_s = how.throttled_base_s if verdict.bucket in THROTTLED else how.base_s
        delay_s = delay(
            how.jitter,
            self.attempt,
            self.previous_s,
            base_s,
            how.cap_s,
            self.env.rng,
            how.multiplier,
        )
        # spread, too: all clients that got the same delay would come back together
        if verdict.retry_after_s is not None:
            delay_s = max(delay_s, verdict.retry_after_s + base_s * self.env.rng())
        if now + delay_s >= self.give_up_at:
            return _enough(
                "deadline", f"the next attempt would be in {delay_s:.3g} s, which is too late"
            )
        refusal = "" if self.turn is None else (yield from self._spend(verdict.bucket, again=True))
        if refusal:
            return _enough("budget", refusal)
        if now + delay_s >= self.give_up_at:
            return _enough(
                "deadline", f"the next attempt would be in {delay_s:.3g} s, when its turn is over"
            )
        if how.tokens is not None and not (yield from how.tokens.charge(verdict)):
            return _enough("budget", "too many retries go there already: its retry budget is empty")
        self.previous_s, self.charged = delay_s, verdict
        return RetryDecision(row.action, row.why, delay_s)

    def used_up(self) -> str:
        """Why nothing may run again, whatever ended the last attempt; "" if something may."""
        if self.env.now() >= self.give_up_at:
            return StopReason("deadline", "the time that it may take is over")
        return self._tried_often_enough()

    def _tried_often_enough(self) -> str:
        """A throttled attempt is no failure: it counts in the total, not among `attempts`."""
        attempts, most = self.how.attempts, max(self.how.attempts, self.how.throttled_attempts)
        if attempts == 1:
            return StopReason("max_attempts", "it may be tried only once") if self.attempt else ""
        if self.attempt < most and self.attempt - self.refusals < attempts:
            return ""
        return StopReason("max_attempts", f"it was tried {self.attempt} times")

    def _spend(self, after: Bucket | None, *, again: bool) -> Flow[str]:
        assert self.turn is not None
        refusal = yield from self.turn.spend(Purchase(self.step, again, after))
        self.give_up_at = min(self.give_up_at, self.env.now() + self.turn.left_s)
        return refusal


def _enough(word: str, why: str) -> RetryDecision:
    return RetryDecision(Action.HAND_BACK, StopReason(word, why), gave_up=True)


LARGE = 1 << 16  # bytes: an outcome that a store may take too long to write
# a lost acknowledgement is repeated with the same token before a caller hears of it
STORE_TRIES = 3


def insist(op: Op[Any], env: Env) -> Flow[Any]:
    """Perform a store write; repeat it with the same token while its fate is unknown."""
    reply = yield op
    return (yield from repeated(op, reply, env)) if isinstance(reply, Unavailable) else reply


def repeated(op: Op[Any], reply: Any, env: Env) -> Flow[Any]:
    """The same for an op that *reply* says got no answer. A lasting fault is not retried."""
    if not getattr(reply.error, "retriable", True):
        return reply
    for attempt in range(1, STORE_TRIES):
        if isinstance((yield from Sleep(full_jitter(attempt, 0.02, 0.2, env.rng))), Interrupted):
            return reply
        reply = yield op
        if not isinstance(reply, Unavailable):
            return reply
    return reply


def persist(op: Op[W], reply: Any, give_up_at: float, env: Env) -> Flow[W]:
    """The effect has happened, and the write of it was answered with *reply*.

    Keep trying to write it down for as long as the caller's deadline allows, then keep it here.
    """
    failures = 0
    while isinstance(reply, Unavailable):
        left_s = give_up_at - env.now()  # looked at once: a moment later it may be below zero
        failures += 1
        if left_s <= 0 or get(reply.error, "retriable") is False:
            break
        if isinstance(
            (yield from Sleep(min(left_s, full_jitter(failures, 0.05, 2.0, env.rng)))), Interrupted
        ):
            break
        reply = yield op
    else:
        return reply  # type: ignore[no-any-return]
    # perhaps that is why: that it is done fits in few bytes
    if isinstance(op, Complete) and len(op.outcome) > LARGE:
        why = excuse(f"the store could not take its {len(op.outcome):,} bytes")
        if not isinstance(small := (yield structs.replace(op, outcome=why)), Unavailable):
            return small  # type: ignore[no-any-return]
    if isinstance(op, Complete | Fail):
        yield from Keep(op)
    # as every op is replied to, if the store does not answer
    return reply  # type: ignore[return-value]
