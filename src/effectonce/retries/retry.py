"""The retry policy without a store: `@retry(...)` for any function, `for attempt in retry(...)`
for any block.

A function that succeeds costs next to nothing: the policy begins to work when it fails. What an
error means is decided by the same tables and the same gate as for a guarded tool. Nothing here
remembers an effect, so what may have happened is tried again only if you say that repeating it
does no harm: `kind="read"` or `kind="idempotent_write"`. And an error speaks for the function
only if the function makes one request: `one_request=True`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import CoroutineType
from typing import Any, NoReturn, ParamSpec, Self, TypeVar, cast, overload

from msgspec import Struct
from msgspec.structs import asdict

from effectonce._core.backoff import Jitter
from effectonce._core.classification.classify import (
    Classifier,
    Rules,
    Verdict,
    as_rules,
    classifier,
)
from effectonce._core.classification.verdicts import Tried
from effectonce._core.decisions import Action, gate
from effectonce._core.endings import Fresh
from effectonce._core.guarantees import Capability, Kind
from effectonce._core.retry_flow import Over, kept_back, over, plain_call
from effectonce._core.retry_state import (
    Env,
    PermitProtocol,
    RetryDecision,
    Retrying,
    RetryState,
    earn,
)
from effectonce._drivers import drive
from effectonce._random import rng
from effectonce._runtime.performers import adrive_call
from effectonce._runtime.plain_performers import AsyncPlain, Plain
from effectonce._runtime.signature import is_async
from effectonce._validate import flags, of_type
from effectonce.effect import running
from effectonce.errors import ContractViolation, EffectOnceError, GaveUp
from effectonce.outcome import last_of, sentence
from effectonce.policy import Downstream, Retry, kind_of
from effectonce.retries.budget import RetryBudget
from effectonce.retries.circuit import Circuit
from effectonce.retries.turn import step_of, turn_here
from effectonce.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")
Rescue = Callable[[Exception, tuple[Any, ...], Mapping[str, Any]], Any]
REPEATABLE = frozenset({Kind.READ, Kind.IDEMPOTENT_WRITE})
ENV = Env(now=time.monotonic, new_token=str, rng=rng)  # nothing here has a token


class Retrier:
    """A ready policy: decorator of a `def` or `async def`, iterable of attempts, sync and async."""

    def __init__(
        self,
        how: Retrying,
        *,
        repeatable: bool,
        store: Store | None,
        name: str,
        env: Env,
        read: bool = False,
    ) -> None:
        self.how, self.repeatable, self.read = how, repeatable, read
        self.store, self.name, self.env = store, name, env
        self.block = name or "a block"

    # ------------------------------------------------------------ as a decorator

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Try this function again where that makes sense and does no harm."""
        if not callable(function):
            raise TypeError(
                f"{function!r} cannot be called, so it cannot be tried again. @classmethod goes"
                " above @retry."
            )
        wrapper = self.around_async(function) if is_async(function) else self.around(function)
        return cast("Callable[P, R]", functools.wraps(function)(wrapper))

    def around(
        self, function: Callable[..., Any], rescue: Rescue | None = None
    ) -> Callable[..., Any]:
        """A sync function, with the policy when it fails. *rescue* answers for errors of ours."""
        how, now, name = self.how, self.env.now, self._named(function)
        circuit, earned = how.circuit, None if how.tokens is None else how.tokens.succeeded

        def call(*args: Any, **kwargs: Any) -> Any:
            started_at = now()
            permit = None if circuit is None else circuit.free
            if permit is None and circuit is not None:
                asked = circuit.try_admit()
                if isinstance(asked, Exception):
                    return _raised(asked) if rescue is None else rescue(asked, args, kwargs)
                permit = asked
            try:
                value = function(*args, **kwargs)
                if type(value) is CoroutineType:
                    value.close()
                    raise TypeError(
                        f"{name} returned a coroutine, so its outcome would not be seen; decorate"
                        " the async def"
                    )
            except BaseException as error:
                # the function's own: reported to the breaker, and raised or tried again
                if permit is not None:
                    permit.failed(how.classify(error))
                if not isinstance(error, Exception):
                    raise
                first = error
            else:
                if permit is not None:
                    permit.succeeded()
                if earned is not None:
                    earned()
                return value
            patience, store = self.patience(name, started_at, attempt=1)
            flow = plain_call(patience, first, repeatable=self.repeatable)
            ending = drive(flow, Plain(store, functools.partial(function, *args, **kwargs)))
            try:
                return concluded(ending, name, read=self.read or rescue is not None)
            except EffectOnceError as error:
                return _raised(error) if rescue is None else rescue(error, args, kwargs)

        return call

    def around_async(
        self, function: Callable[..., Any], rescue: Rescue | None = None
    ) -> Callable[..., Any]:
        """What an async function becomes."""
        how, now, name = self.how, self.env.now, self._named(function)
        circuit, earned = how.circuit, None if how.tokens is None else how.tokens.succeeded

        async def call(*args: Any, **kwargs: Any) -> Any:
            started_at = now()
            permit = None if circuit is None else circuit.free
            if permit is None and circuit is not None:
                asked = circuit.try_admit()
                if isinstance(asked, Exception):
                    return _raised(asked) if rescue is None else await rescue(asked, args, kwargs)
                permit = asked
            try:
                value = await function(*args, **kwargs)
            except BaseException as error:  # the function's own, cancellation included
                if permit is not None:
                    permit.failed(how.classify(error))
                if not isinstance(error, Exception):
                    raise
                first = error
            else:
                if permit is not None:
                    permit.succeeded()
                if earned is not None:
                    earned()
                return value
            patience, store = self.patience(name, started_at, attempt=1)
            flow = plain_call(patience, first, repeatable=self.repeatable)
            again = functools.partial(function, *args, **kwargs)
            ending = await adrive_call(flow, AsyncPlain(store, again))
            try:
                return concluded(ending, name, read=self.read or rescue is not None)
            except EffectOnceError as error:
                return _raised(error) if rescue is None else await rescue(error, args, kwargs)

        return call

    def _named(self, function: Callable[..., Any]) -> str:
        while isinstance(function, functools.partial):
            function = function.func
        return self.name or str(getattr(function, "__qualname__", type(function).__qualname__))

    def patience(
        self, name: str, started_at: float, attempt: int
    ) -> tuple[RetryState, Store | None]:
        """What is left of a call, and where its budgets are: those of its turn, if there is one."""
        scope, effect = turn_here.get(), running.get()
        store = self.store or (None if scope is None else scope.store)
        if effect is not None and effect.lent is not None:
            store = None  # inside a transaction of the store it would wait for that one to end
        turn, step = None, ""
        if scope is not None:
            turn, step = scope.turn, name if effect is None else step_of(effect.ref)
        patience = RetryState(self.how, self.env, turn, step, started_at, attempt)
        if effect is not None:  # nothing in a tool waits for longer than the tool may
            patience.give_up_at = min(patience.give_up_at, effect.deadline)
        return patience, store

    # ------------------------------------------------------------ as an iterable

    def __iter__(self) -> Iterator[Attempt]:
        """`for attempt in retry(...): with attempt: ...`"""
        patience, store = self.patience(self.block, self.env.now(), attempt=0)
        while True:
            attempt = Attempt(self, patience, store)
            yield attempt
            if attempt.delay_s is None:
                return
            time.sleep(attempt.delay_s)

    async def __aiter__(self) -> AsyncIterator[Attempt]:
        """`async for attempt in retry(...): async with attempt: ...`"""
        patience, store = self.patience(self.block, self.env.now(), attempt=0)
        while True:
            attempt = Attempt(self, patience, store)
            yield attempt
            if attempt.delay_s is None:
                return
            await asyncio.sleep(attempt.delay_s)


class Attempt:
    """One try of a block: `with attempt:` in sync code, `async with attempt:` in async code."""

    def __init__(self, retrier: Retrier, patience: RetryState, store: Store | None) -> None:
        self._retrier, self._patience, self._store = retrier, patience, store
        self._permit: PermitProtocol | None = None
        self.delay_s: float | None = None  # until the next one; None: this was the last

    @property
    def number(self) -> int:
        """Which attempt it is, counted from 1."""
        return self._patience.attempt

    @property
    def remaining_s(self) -> float:
        """How many seconds of the deadline are left."""
        return max(0.0, self._patience.give_up_at - self._retrier.env.now())

    def __enter__(self) -> Self:
        circuit = self._retrier.how.circuit
        asked = None if circuit is None else circuit.try_admit()
        if isinstance(asked, Exception):
            _end(kept_back(self._patience, asked), self._retrier.block)
        self._permit = asked
        self._patience.attempt += 1
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return self._well()
        verdict = self._failed(error)
        flow = self._patience.after(error, verdict, repeatable=self._retrier.repeatable)
        return self._decided(error, verdict, drive(flow, Plain(self._store)))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return self._well()
        verdict = self._failed(error)
        flow = self._patience.after(error, verdict, repeatable=self._retrier.repeatable)
        return self._decided(error, verdict, await adrive_call(flow, AsyncPlain(self._store)))

    def _well(self) -> bool:
        tokens = self._retrier.how.tokens
        if self._permit is not None:
            self._permit.succeeded()
        if tokens is not None:
            earn(tokens, self._patience.charged)
        return False

    def _failed(self, error: BaseException) -> Verdict:
        verdict = self._retrier.how.classify(error)
        if self._permit is not None:
            self._permit.failed(verdict)
        return verdict

    def _decided(self, error: BaseException, verdict: Verdict, then: RetryDecision) -> bool:
        self.delay_s = then.delay_s
        if then.delay_s is not None:
            return True
        ended = over(self._patience, error, verdict, then)
        if ended.gave_up is not None:
            _end(ended, self._retrier.block)
        _mark(ended, read=self._retrier.read)
        return False


def retrying(
    policy: Retry, judge: Classifier, breaker: Circuit | None, budget: RetryBudget | None
) -> Retrying:
    """A policy as the core takes it."""
    of_type("breaker", breaker, Circuit, 'a circuit: breaker=breaker("bank")')
    of_type("budget", budget, RetryBudget, 'a budget of retries: budget=RetryBudget("bank")')
    times = asdict(policy) | {"jitter": Jitter(policy.jitter)}
    return Retrying(**times, classify=judge, tokens=budget, circuit=breaker)


def _raised(error: Exception) -> NoReturn:
    raise error


def concluded(ended: Fresh | Over, name: str, *, read: bool) -> Any:
    """The value, or the error raised; *read*, if it is that of a read."""
    return ended.value if isinstance(ended, Fresh) else _end(ended, name, read=read)


def _end(ended: Over, name: str, *, read: bool = False) -> NoReturn:
    if ended.gave_up is None:
        _mark(ended, read=read)
        raise ended.error
    verdict = ended.gave_up
    raise GaveUp(
        f"{name} failed: {last_of(ended.attempts, ended.error)}. {sentence(ended.why)}",
        verdict=verdict,
        retry_after_s=verdict.retry_after_s,
        corrective_action="Call it again later.",  # there is no key that it could go on under
    ) from ended.error


def _mark(ended: Over, *, read: bool) -> None:
    """It speaks of the last attempt, not of those before; of a *read*, of no effect around it."""
    if ended.but is not None:
        tell(ended.error, Tried(ended.but, ended.attempts, gave_up=False))
    if read:
        with contextlib.suppress(AttributeError):
            ended.error.effectonce_read = True  # type: ignore[attr-defined]


def tell(error: BaseException, tried: Tried) -> None:
    """Leave on the error what all attempts together say, for the layer that classifies it next."""
    with contextlib.suppress(AttributeError):  # an exception class with slots
        error.effectonce_tried = tried  # type: ignore[attr-defined]


def _judge(rules: Rules, *, one_request: bool) -> Classifier:
    return classifier((), (), rules=as_rules(rules), one_request=one_request, wall_clock=time.time)


class Advice(Struct, frozen=True):
    """What to do about an error, and why."""

    action: Action
    why: str
    verdict: Verdict

    @property
    def retry_after_s(self) -> float | None:
        """How long the downstream asks to wait."""
        return self.verdict.retry_after_s


def advise(
    error: Any,
    *,
    kind: Kind | str = Kind.WRITE,
    downstream: Downstream | str = "none",
    one_request: bool = False,
    rules: Rules = (),
) -> Advice:
    """What to do about this error or response of a tool of this *kind*: retry, replan, repair,
    shorten, ask a person, or give up.

    For a harness that runs the model itself. A guarded tool decides by the same table.
    """
    capability = Downstream.of(downstream).capability
    recognised = capability in (Capability.KEY, Capability.TRANSACTION)
    repeatable = kind_of(kind) in REPEATABLE or recognised
    verdict = _judge(rules, one_request=one_request or repeatable)(error)
    row = gate(verdict, repeatable=repeatable, probe=capability is Capability.PROBE)
    return Advice(row.action, row.why, verdict)


@overload
def retry(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def retry(
    policy: Retry | None = None,
    /,
    *,
    kind: Kind | str = Kind.WRITE,
    one_request: bool = False,
    rules: Rules = (),
    breaker: Circuit | None = None,
    budget: RetryBudget | None = None,
    store: Store | None = None,
    name: str = "",
    **settings: Any,
) -> Retrier: ...


def retry(
    policy: Any = None,
    /,
    *,
    kind: Kind | str = Kind.WRITE,
    one_request: bool = False,
    rules: Rules = (),
    breaker: Circuit | None = None,
    budget: RetryBudget | None = None,
    store: Store | None = None,
    name: str = "",
    **settings: Any,
) -> Any:
    """Try again where that makes sense and does no harm.

    `@retry(kind="read")` guards a function, `for attempt in retry(attempts=5)` a block. Give a
    `Retry`, or its settings by name. *rules* say what errors mean that the tables do not know;
    *breaker* and *budget* are those of the dependency; a shared budget needs a *store*. Without
    *kind*, what may have happened is not tried again; *one_request* says that the function makes
    one request, so that what an error says about the request is believed about the function.
    """
    repeatable = kind_of(kind) in REPEATABLE
    flags(one_request=one_request)
    if isinstance(budget, RetryBudget) and budget.shared and store is None:
        raise ContractViolation(
            f"the retry budget of {budget.name} is shared: say through which store,"
            " retry(store=...)"
        )
    if isinstance(policy, Retry) and settings:
        raise TypeError(f"give a Retry, or {', '.join(settings)} by name, not both")
    judge = _judge(rules, one_request=one_request or repeatable)
    times = policy if isinstance(policy, Retry) else Retry(**settings)
    how, read = retrying(times, judge, breaker, budget), kind_of(kind) is Kind.READ
    made = Retrier(how, repeatable=repeatable, store=store, name=name, env=ENV, read=read)
    return made if policy is None or isinstance(policy, Retry) else made(policy)
