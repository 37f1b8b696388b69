"""The circuit breaker that you use: `@breaker("stripe")`, `with circuit.admit():`, one circuit
per dependency.

The machine in `_core/breaker/machine.py` decides; this file gives it time, chance and a lock.
The lock is held for the decision and never for the call, so callers do not wait for each other.
A closed circuit that measures no time gives every caller the same permit: to ask it is to look
at an attribute.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any, ParamSpec, TypeVar, cast, overload

from effectonce._core.breaker.machine import FREE, UNASKED, Machine, Phase, Sign, sign_of
from effectonce._core.breaker.votes import Quorum, carried
from effectonce._core.classification.classify import (
    Bucket,
    Certainty,
    Rules,
    Verdict,
    as_rules,
    classifier,
)
from effectonce._forks import anew_in_a_fork
from effectonce._log import LOG
from effectonce._random import rng
from effectonce._text import span
from effectonce._validate import of_type, texts
from effectonce.errors import CircuitOpen, ContractViolation
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.guarded_function import guarded
from effectonce.retries.permit import (
    NOTHING,
    WELL,
    Change,
    CircuitStats,
    OnChange,
    Permit,
    SharedPermit,
)
from effectonce.retries.shared_circuit import VoteExchange
from effectonce.stores.base import Store

_UNKNOWN = (Bucket.UNKNOWN, Certainty.AMBIGUOUS)
P = ParamSpec("P")
R = TypeVar("R")


class Circuit:
    """Stops calls to a dependency that is unwell, and finds out with a few of them when it is
    well again.

    Use it as a decorator of a `def` or an `async def`, or around any block: `with
    circuit.admit():`. *rules* say what errors mean that the tables do not know. *on_change* is
    called with the old phase, the new one and the statistics, after each change, by the caller
    that caused it: hand longer work over. With *shared*, a store, processes tell each other what
    they found; *node* names this one.
    """

    def __init__(
        self,
        name: str,
        policy: Breaker | None = None,
        *,
        rules: Rules = (),
        on_change: OnChange | None = None,
        shared: Store | None = None,
        node: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = rng,
    ) -> None:
        if not name:
            raise ContractViolation("a circuit needs the name of its dependency")
        texts(name=name)
        of_type("policy", policy, Breaker, "a policy, such as Breaker(consecutive=5)")
        if shared is not None and not callable(getattr(shared, "apply", None)):
            raise ContractViolation(
                f"shared={shared!r}: give the store through which processes share it, such as"
                " guard.store"
            )
        self.name, self.policy = name, Breaker() if policy is None else policy
        self.shared = shared  # where its votes are
        self._on_change, self._clock = () if on_change is None else (on_change,), clock
        limits = self.policy.limits
        self._machine, self._lock = Machine(limits, rng, clock()), threading.RLock()
        self._classify = classifier(
            (), (), rules=as_rules(rules), one_request=True, wall_clock=time.time
        )
        self._slow_s = limits.slow_s
        self._measures = limits.slow_rate is not None
        # successes that nothing depends on; `next` is atomic, += is not
        self._counter, self._looks = count(), 0
        self._count = self._counter.__next__
        self._last_failure = ""
        self._warned = False
        self._sharing: VoteExchange | None = None
        if shared is not None:
            self._sharing = VoteExchange(
                shared, name, node, self.policy.refresh_s, self._vote_s, self._hear
            )
        self._shared_permit: SharedPermit | None = None
        # the same, where it does not matter when a call began: for those in a hurry
        self.free: SharedPermit | None = None
        self._share_out(clock())
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        """What it knows goes along; a lock does not."""
        self._lock = threading.RLock()

    # ------------------------------------------------------------ asking

    def admit(self) -> Permit:
        """May I call? Raises `CircuitOpen` with the time to the next probe."""
        free = self._shared_permit
        permit = self._ask() if free is None else self._like(free)
        if isinstance(permit, CircuitOpen):
            raise permit
        return permit

    def try_admit(self) -> Permit | SharedPermit | CircuitOpen:
        """The same; refusals are values, permits may be shared. Say exactly once how it ended."""
        permit, free = self.free, self._shared_permit
        if permit is not None:
            return permit
        return self._ask() if free is None else self._like(free)

    def _like(self, free: SharedPermit) -> Permit:
        """A permit of one's own, where all calls get one."""
        return Permit(self._settle, free.generation, FREE, self._clock() if self._measures else 0.0)

    def refusal(self) -> CircuitOpen | None:
        """Would a call be refused now? Takes nothing: lets a caller save preparing one."""
        if self._shared_permit is not None or self.policy.shadow:
            return None
        now = self._clock()
        with self._lock:
            if self._machine.wait_s(now) == 0:
                return None
            self._machine.refused += 1
            return self._refusal(now)

    def _ask(self) -> Permit | CircuitOpen:
        now, machine = self._clock(), self._machine
        with self._lock:
            number = machine.admit(now)
            generation = machine.generation
            refusal = self._refusal(now) if number is None and not self.policy.shadow else None
            change = None if machine.moved is None else self._change(now)
        self._follow_up(now, change)
        if refusal is not None:
            return refusal
        if number is None:  # in shadow mode
            return Permit(self._settle, UNASKED, FREE, now)
        return Permit(self._settle, generation, number, now)

    def _refusal(self, now: float) -> CircuitOpen:
        machine, name = self._machine, self.name
        wait_s = machine.wait_s(now)
        if machine.phase is Phase.HALF_OPEN:
            others = f"{len(machine.probes)} other call(s)"
            what = f"{name} is being tried by {others}, and no more are let through"
        else:
            phase = machine.phase.replace("_", " ")
            what = f"the circuit of {name} is {phase}: {machine.why}"
            if machine.ours and self._last_failure:
                what += f"; the last error: {self._last_failure}"
        then = "An operator must close it."
        if wait_s is not None:
            then = f"The next call is let through in {span(wait_s)} at the latest."
        message = f"{what}. Nothing was sent. {then}"
        return CircuitOpen(message, circuit=name, phase=machine.phase, retry_after_s=wait_s)

    # ------------------------------------------------------------ telling

    def _settle(self, permit: Permit | SharedPermit, ended: object, started_at: float) -> None:
        free, now = self._shared_permit, self._clock()
        slow = now - started_at >= self._slow_s
        if ended is not WELL:
            sign, retry_after_s = self._judge(ended)
        elif (
            free is not None
            and free.generation == permit.generation
            and now < free.counts_until
            and not slow
        ):
            self._count()
            return
        else:
            sign, retry_after_s = WELL, None
        machine = self._machine
        with self._lock:
            self._fold()
            if sign is WELL:
                machine.succeeded(permit.generation, permit.number, now, int(slow))
            elif sign is NOTHING:
                machine.released(permit.generation, permit.number)
            else:
                machine.failed(permit.generation, permit.number, now, int(slow), retry_after_s)
            change = None if machine.moved is None else self._change(now)
            self._share_out(now)
        self._follow_up(now, change)

    def _judge(self, ended: object) -> tuple[Sign, float | None]:
        if ended is NOTHING or (
            isinstance(ended, BaseException) and not isinstance(ended, Exception)
        ):
            return NOTHING, None  # a cancellation, of whichever library
        verdict = (
            ended if isinstance(ended, Verdict) else self._classify(cast(BaseException, ended))
        )
        sign = sign_of(verdict, self.policy.counts_as_failure, self.policy.counts_as_success)
        if sign is Sign.FAILURE:
            self._last_failure = verdict.why
        elif sign is NOTHING and (verdict.bucket, verdict.certainty) == _UNKNOWN:
            self._mention(ended)
        return sign, verdict.retry_after_s

    def _mention(self, ended: object) -> None:
        """Warn once that a breaker may never open: it was not configured with what errors mean."""
        if self._warned or isinstance(ended, Verdict):
            return
        self._warned = True
        LOG.warning(
            "circuit %s: %s is not known, so it does not count against the dependency. If it"
            " should, say so: rules={%s: Bucket.SERVER_ERROR}. This is logged once.",
            self.name,
            type(ended).__qualname__,
            type(ended).__name__,
        )

    def _fold(self) -> None:
        """Tell the machine of the calls that were just counted. The caller holds the lock."""
        passed = next(self._counter) - self._looks  # to look is to count, too
        self._looks += passed + 1
        if passed:
            self._machine.passed(passed)

    # ------------------------------------------------------------ by hand

    @property
    def phase(self) -> Phase:
        """How it treats calls. Open stays open until a call comes after its time."""
        return self._machine.phase

    def open(self, for_s: float | None = None) -> None:
        """Refuse calls: for *for_s* seconds and then probe, or until `close()`."""
        if for_s is not None and not for_s > 0:
            raise ContractViolation(
                f"for_s={for_s}: how many seconds? Without it, the circuit stays open until close()"
            )
        self._act(lambda machine, now: machine.open(now, for_s))

    def close(self) -> None:
        """Let calls pass, and count from zero."""
        self._act(Machine.close)

    def disable(self) -> None:
        """Let calls pass and count nothing, until `close()` or `open()`."""
        self._act(Machine.disable)

    def stats(self) -> CircuitStats:
        """How it is now."""
        now = self._clock()
        with self._lock:
            self._fold()
            return self._stats(now)

    def _act(self, act: Callable[[Machine, float], None]) -> bool:
        """Whether it has changed anything."""
        now = self._clock()
        with self._lock:
            self._fold()
            act(self._machine, now)
            change = None if self._machine.moved is None else self._change(now)
        self._follow_up(now, change)
        return change is not None

    # ------------------------------------------------------------ changes

    def _change(self, now: float) -> Change:
        """What has just changed. The caller holds the lock."""
        machine = self._machine
        old, machine.moved = machine.moved, None
        assert old is not None
        if self._shared_permit is not None:
            self._shared_permit.count_until(-inf)  # a call that still has it is late
            self._shared_permit = self.free = None
        self._share_out(now)
        return Change(old, machine.phase, self._stats(now))

    def _share_out(self, now: float) -> None:
        """One permit for all, where none are counted; how long its successes are only counted."""
        machine = self._machine
        if machine.phase is not Phase.CLOSED and machine.phase is not Phase.DISABLED:
            return
        if self._shared_permit is None:
            self._shared_permit = SharedPermit(self._settle, self._count, machine.generation)
            self.free = None if self._measures else self._shared_permit
        until = machine.counts_until(now)
        due = inf if self._sharing is None else self._sharing.due
        self._shared_permit.count_until(min(until, due))

    def _follow_up(self, now: float, change: Change | None) -> None:
        """Without the lock: notify people and processes. Open again is news to processes alone."""
        if self._sharing is not None and (change is not None or now >= self._sharing.due):
            self._sharing.start(now, urgent=change is not None)
        if change is None or change.old is change.new:
            return
        level = logging.WARNING if change.new is Phase.OPEN else logging.INFO
        said = (self.name, change.new, change.old, change.stats.why)
        LOG.log(level, "circuit %s: %s, was %s: %s", *said)
        for hook in self._on_change:
            try:
                hook(change.old, change.new, change.stats)
            except Exception:
                # the hook's own; the call that caused the change has nothing to do with it
                LOG.exception("circuit %s: on_change failed", self.name)

    def _stats(self, now: float) -> CircuitStats:
        machine, window = self._machine, self._machine.window
        if window is not None:
            window.forget(now)
        return CircuitStats(
            phase=machine.phase,
            why=machine.why,
            since_s=now - machine.since,
            retry_after_s=machine.wait_s(now),
            generation=machine.generation,
            opened=machine.opened,
            succeeded=machine.succeeded_calls,
            failed=machine.failed_calls,
            slow=machine.slow_calls,
            neutral=machine.neutral,
            late=machine.late,
            refused=machine.refused,
            failures_in_a_row=machine.in_a_row,
            probes_out=len(machine.probes),
            window_calls=0 if window is None else window.calls,
            window_failed=machine.failed_in_window(now),
            window_slow=0 if window is None else window.slow,
        )

    # ------------------------------------------------------------ shared

    def share(self) -> None:
        """Exchange votes with the other processes now, instead of at the next refresh."""
        if self._sharing is not None:
            self._sharing.run()

    async def ashare(self) -> None:
        """The same, in a loop."""
        if self._sharing is not None:
            await self._sharing.arun()

    def _vote_s(self) -> float:
        with self._lock:
            return self._machine.vote_s(self._clock())

    def _hear(self, standing: Quorum) -> bool:
        """Open if enough others say so. False: it did not change anything."""
        if not carried(standing, self.policy.quorum):
            return False
        for_s = standing.first_until - standing.now
        return self._act(lambda machine, now: machine.follow(now, for_s, standing.why))

    def watch(self, on_change: OnChange) -> None:
        """Call *on_change* as well, after each change from now on."""
        self._on_change = (*self._on_change, on_change)

    # ------------------------------------------------------------ as a decorator

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, /, *, fallback: Callable[..., Any]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        fallback: Callable[..., Any] | None = None,
    ) -> Any:
        """Guard a function. *fallback* (error, then the call's arguments) answers refused calls."""
        if function is None:
            return functools.partial(guarded, self, fallback=fallback)
        return guarded(self, function, fallback)


def breaker(
    name: str,
    *,
    rules: Rules = (),
    on_change: OnChange | None = None,
    shared: Store | None = None,
    node: str | None = None,
    **policy: Any,
) -> Circuit:
    """A circuit of one dependency: `@breaker("stripe", consecutive=5)`. The rest: see `Breaker`."""
    return Circuit(
        name, Breaker(**policy), rules=rules, on_change=on_change, shared=shared, node=node
    )
