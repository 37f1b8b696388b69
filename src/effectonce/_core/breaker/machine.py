"""The circuit breaker as a machine: which phase a dependency is in, who may call it now, what
each answer changes.

Rule 1: everything that changes a phase is an event of `MOVES`. An event that has no row for the
present phase changes nothing. Rule 2: every change begins a new generation. An answer to a call
that was let through in an older one is late, and changes nothing: what
        it tells is about a dependency that has been judged anew since.
Rule 3: half-open, at most `probes` permits are out at any time. A permit comes back with its
answer, whatever that is, or when its lease
        ends. What a probe says after its lease still counts if nothing was decided meanwhile: it is
        true.
Rule 4: only what says something about the dependency counts. A cancelled call, a refusal of this
one request, an error of our own
        process say nothing: they neither open nor close, nor do they interrupt a row of failures.

The caller holds a lock around each method, and never around the call itself. Time and randomness
are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from math import inf
from types import MappingProxyType

from msgspec import Struct

from effectonce._core.breaker.windows import LastCalls, LastFailures, LastSeconds
from effectonce._core.classification.verdicts import Bucket, Scope, Verdict


class Phase(StrEnum):
    """How a circuit treats calls."""

    CLOSED = "closed"  # calls pass and are counted
    OPEN = "open"  # calls are refused until the next probe
    HALF_OPEN = "half_open"  # a few calls pass, to see how it is
    FORCED_OPEN = "forced_open"  # calls are refused until a person closes it
    DISABLED = "disabled"  # calls pass and are not counted


class BreakerEvent(StrEnum):
    """What can change a phase."""

    TRIPPED = "too many calls failed, or were slow"
    QUORUM = "most other processes have opened theirs"
    TIME_UP = "the open time is over and a call comes"
    PROBE_FAILED = "a probe failed, or was slow"
    RECOVERED = "enough probes went well"
    OPEN_FOR = "`open(for_s=...)`"
    OPEN_BY_HAND = "`open()`"
    CLOSE_BY_HAND = "`close()`"
    DISABLE_BY_HAND = "`disable()`"


MOVES = MappingProxyType(
    {
        (Phase.CLOSED, BreakerEvent.TRIPPED): Phase.OPEN,
        (Phase.CLOSED, BreakerEvent.QUORUM): Phase.OPEN,
        (Phase.OPEN, BreakerEvent.TIME_UP): Phase.HALF_OPEN,
        (Phase.HALF_OPEN, BreakerEvent.PROBE_FAILED): Phase.OPEN,
        (Phase.HALF_OPEN, BreakerEvent.RECOVERED): Phase.CLOSED,
        **{(phase, BreakerEvent.OPEN_FOR): Phase.OPEN for phase in Phase},
        **{(phase, BreakerEvent.OPEN_BY_HAND): Phase.FORCED_OPEN for phase in Phase},
        **{(phase, BreakerEvent.CLOSE_BY_HAND): Phase.CLOSED for phase in Phase},
        **{(phase, BreakerEvent.DISABLE_BY_HAND): Phase.DISABLED for phase in Phase},
    }
)


# ---------------------------------------------------------------- what an error says about the
# dependency


class Sign(StrEnum):
    """What the end of a call says about the dependency."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


UNHEALTHY = frozenset(
    {Bucket.OVERLOADED, Bucket.SERVER_ERROR, Bucket.UNREACHABLE, Bucket.NO_ANSWER}
)
NEVER_COUNTED = frozenset(
    {Bucket.CANCELLED, Bucket.CIRCUIT_OPEN, Bucket.CONTROL_FLOW}
)  # no request was sent, or no caller waited


def sign_of(
    verdict: Verdict,
    failures: frozenset[Bucket] = UNHEALTHY,
    successes: frozenset[Bucket] = frozenset(),
) -> Sign:
    """Does this verdict count, and how? *failures* and *successes*: buckets that count as such."""
    bucket, scope = verdict.bucket, verdict.scope
    if bucket in NEVER_COUNTED:
        return Sign.NEUTRAL
    if bucket is Bucket.OK or bucket in successes:
        return Sign.SUCCESS
    if scope is Scope.PROCESS:  # our own pool, our own disk
        return Sign.NEUTRAL
    return Sign.FAILURE if bucket in failures or scope is Scope.HOST else Sign.NEUTRAL


# ---------------------------------------------------------------- the machine


class Limits(Struct, frozen=True, kw_only=True):
    """When to open, for how long, and when to close. `policy.Breaker` has checked them."""

    consecutive: int | None
    failures: int | None
    rate: float | None
    slow_rate: float | None
    slow_s: float
    window_calls: int | None
    window_s: float
    minimum: int
    open_s: float
    open_max_s: float
    growth: float
    jitter: float
    retry_after_max_s: float
    probes: int
    probe_lease_s: float
    successes: int


FREE = 0  # passage without a permit
UNASKED = 0  # no generation: what such a call says is not asked for


class Machine:
    """One dependency's circuit."""

    __slots__ = (
        "_good_probes",
        "_last_probe",
        "_limits",
        "_open_s",
        "_openings",
        "_rng",
        "failed_calls",
        "generation",
        "in_a_row",
        "late",
        "moved",
        "neutral",
        "opened",
        "ours",
        "phase",
        "probes",
        "recent",
        "refused",
        "since",
        "slow_calls",
        "succeeded_calls",
        "until",
        "why",
        "window",
    )

    def __init__(self, limits: Limits, rng: Callable[[], float], now: float) -> None:
        self._limits, self._rng = limits, rng
        self.phase, self.since, self.until, self.why = Phase.CLOSED, now, inf, ""
        self.generation = 1
        # where the last event came from; the code that reports it sets it back
        self.moved: Phase | None = None
        self.ours = False  # is it open because of our own calls?
        self.in_a_row = self._good_probes = 0
        self.probes: dict[int, float] = {}  # permits that are out, and when their leases end
        self._last_probe = FREE
        self._openings, self._open_s = 0, 0.0
        self.window, self.recent = _window(limits), _recent(limits)
        self.succeeded_calls = self.failed_calls = self.slow_calls = 0
        self.neutral = self.late = self.refused = self.opened = 0

    # ------------------------------------------------------------ who may call

    def admit(self, now: float) -> int | None:
        """The number of the permit, FREE if none is needed; None: refused."""
        phase = self.phase
        if phase is Phase.CLOSED or phase is Phase.DISABLED:
            return FREE
        if phase is Phase.OPEN and now >= self.until:
            self._go(BreakerEvent.TIME_UP, now)
        if self.phase is Phase.HALF_OPEN:
            self.probes = {number: until for number, until in self.probes.items() if until > now}
            if len(self.probes) < self._limits.probes:
                self._last_probe += 1
                self.probes[self._last_probe] = now + self._limits.probe_lease_s
                return self._last_probe
        self.refused += 1
        return None

    def wait_s(self, now: float) -> float | None:
        """How long until a call may probe, at the latest; None: until a person closes it."""
        match self.phase:
            case Phase.OPEN:
                return max(0.0, self.until - now)
            case Phase.HALF_OPEN if len(self.probes) >= self._limits.probes:
                return max(0.0, min(self.probes.values()) - now)
            case Phase.FORCED_OPEN:
                return None
            case _:
                return 0.0

    # ------------------------------------------------------------ how it went

    def succeeded(self, generation: int, permit: int, now: float, slow: int) -> None:
        """A call came back well; *slow* is 1 if that took too long."""
        if generation != self.generation:
            self.late += generation != UNASKED
            return
        if self.phase is Phase.CLOSED:
            self.succeeded_calls += 1
            self.in_a_row = 0
            self._count(now, 0, slow, None)
        elif self.phase is Phase.HALF_OPEN:
            self._probe_succeeded(permit, now, slow)

    def failed(
        self, generation: int, permit: int, now: float, slow: int, retry_after_s: float | None
    ) -> None:
        """A call failed in a way that counts."""
        if generation != self.generation:
            self.late += generation != UNASKED
            return
        if self.phase is Phase.CLOSED:
            self.failed_calls += 1
            self.in_a_row += 1
            if self.in_a_row == self._limits.consecutive:
                self._trip(now, f"{_failures(self.in_a_row)} in a row", retry_after_s)
            elif self.recent is not None and self.recent.add(now):
                self._trip(
                    now,
                    f"{_failures(self._limits.failures)} in {self._limits.window_s:g} s",
                    retry_after_s,
                )
            else:
                self._count(now, 1, slow, retry_after_s)
        elif self.phase is Phase.HALF_OPEN:
            self.failed_calls += 1
            self.slow_calls += slow
            self._trip(now, "a probe failed", retry_after_s)

    def released(self, generation: int, permit: int) -> None:
        """A call ended in a way that says nothing: its permit is free again."""
        if generation != self.generation:
            self.late += generation != UNASKED
            return
        self.neutral += 1
        self.probes.pop(permit, None)

    def _probe_succeeded(self, permit: int, now: float, slow: int) -> None:
        self.succeeded_calls += 1
        self.slow_calls += slow
        if slow:
            self._trip(now, "a probe was slow", None)
            return
        self.probes.pop(permit, None)
        self._good_probes += 1
        if self._good_probes == self._limits.successes:
            self._go(BreakerEvent.RECOVERED, now)

    def _count(self, now: float, failed: int, slow: int, retry_after_s: float | None) -> None:
        """Into the window. Only a call that failed or was slow can make it too bad."""
        window, limits = self.window, self._limits
        if window is None:
            return
        window.add(now, failed, slow)
        self.slow_calls += slow
        calls = window.calls
        if not (failed or slow):
            return
        if failed and self.recent is None and window.failed == limits.failures:
            self._trip(
                now,
                f"{_failures(window.failed)} among the last {limits.window_calls} calls",
                retry_after_s,
            )
            return
        if calls < limits.minimum:
            return
        if limits.rate is not None and window.failed >= limits.rate * calls:
            self._trip(now, f"{window.failed} of {calls} calls failed", retry_after_s)
        elif limits.slow_rate is not None and window.slow >= limits.slow_rate * calls:
            self._trip(
                now,
                f"{window.slow} of {calls} calls took {limits.slow_s:g} s or longer",
                retry_after_s,
            )

    def failed_in_window(self, now: float) -> int:
        """How many failures the window holds."""
        if self.recent is not None:
            return self.recent.count(now)
        return 0 if self.window is None else self.window.failed

    # ------------------------------------------------------------ calls that go well, by the dozen

    def counts_until(self, now: float) -> float:
        """Until when good calls may be counted and go to `passed`; -inf: each must be reported."""
        if self.phase is Phase.DISABLED:
            return inf
        if self.phase is not Phase.CLOSED or (
            self.in_a_row and self._limits.consecutive is not None
        ):
            return -inf
        return inf if self.window is None else self.window.counts_until(now)

    def passed(self, count: int) -> None:
        """So many calls went well since the last report, none of them slow."""
        if self.phase is not Phase.DISABLED:
            self.succeeded_calls += count
        if self.phase is Phase.CLOSED:
            self.in_a_row = 0  # a failure is reported at once, so these came after the last one
            if self.window is not None:
                self.window.passed(count)

    # ------------------------------------------------------------ changes

    def open(self, now: float, for_s: float | None) -> None:
        """Refuse calls from now on: for *for_s* seconds, or until a person closes it."""
        self._go(
            BreakerEvent.OPEN_BY_HAND if for_s is None else BreakerEvent.OPEN_FOR, now, "by hand"
        )
        self.until = inf if for_s is None else now + for_s

    def close(self, now: float) -> None:
        """Let calls pass and count them from zero."""
        self._openings = 0
        self._go(BreakerEvent.CLOSE_BY_HAND, now, "by hand")

    def disable(self, now: float) -> None:
        """Let calls pass and count nothing."""
        self._go(BreakerEvent.DISABLE_BY_HAND, now, "by hand")

    def follow(self, now: float, for_s: float, why: str) -> None:
        """Others have found it unhealthy: open too, if it is closed."""
        if self._go(BreakerEvent.QUORUM, now, why):
            self.until = now + for_s

    def vote_s(self, now: float) -> float:
        """How long our own finding still stands; 0: none. What others found is not our own."""
        return max(0.0, self.until - now) if self.phase is Phase.OPEN and self.ours else 0.0

    def _trip(self, now: float, why: str, retry_after_s: float | None) -> None:
        if self.phase is Phase.CLOSED and now - self.since >= self._open_s:
            self._openings = 0  # it was well for as long as it had been away: this is a new story
        self._go(
            BreakerEvent.TRIPPED if self.phase is Phase.CLOSED else BreakerEvent.PROBE_FAILED,
            now,
            why,
        )
        self._open_s = self._draw_s(retry_after_s)
        self._openings += 1
        self.until, self.ours = now + self._open_s, True

    def _draw_s(self, retry_after_s: float | None) -> float:
        """Open time: grows with each opening, spread under a ceiling, at least what was asked."""
        limits, drawn = self._limits, self._rng()
        ceiling_s = min(limits.open_max_s, limits.open_s * limits.growth ** min(self._openings, 64))
        asked_s = 0.0 if retry_after_s is None else min(retry_after_s, limits.retry_after_max_s)
        return max(
            ceiling_s * (1.0 - limits.jitter * drawn), asked_s * (1.0 + limits.jitter * drawn)
        )

    def _go(self, event: BreakerEvent, now: float, why: str = "") -> bool:
        """Change as the table says; False: in this phase the event changes nothing."""
        to = MOVES.get((self.phase, event))
        if to is None:
            return False
        self.moved, self.phase, self.since, self.why = self.phase, to, now, why or event.value
        self.generation += 1
        self.until, self.ours = inf, False
        self.in_a_row = self._good_probes = 0
        self.probes = {}
        if self.window is not None:
            self.window.clear()
        if self.recent is not None:
            self.recent.clear()
        self.opened += to is Phase.OPEN or to is Phase.FORCED_OPEN
        return True


def _window(limits: Limits) -> LastCalls | LastSeconds | None:
    if limits.window_calls is not None:
        return LastCalls(limits.window_calls)
    return (
        None if limits.rate is None and limits.slow_rate is None else LastSeconds(limits.window_s)
    )


def _recent(limits: Limits) -> LastFailures | None:
    """Failures are counted apart for a window of seconds: a window of calls counts them itself."""
    if limits.failures is None or limits.window_calls is not None:
        return None
    return LastFailures(limits.failures, limits.window_s)


def _failures(count: int | None) -> str:
    return f"{count} failure{'' if count == 1 else 's'}"
