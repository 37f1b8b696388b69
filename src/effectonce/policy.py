"""What a tool declares, checked when it is declared. Everything is frozen; a policy is changed
with `msgspec.structs.replace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from effectonce._core.backoff import MULTIPLIER, Jitter
from effectonce._core.breaker.machine import NEVER_COUNTED, UNHEALTHY, Limits
from effectonce._core.budget import TurnLimits
from effectonce._core.classification.classify import Bucket, Rule
from effectonce._core.guarantees import (
    DAY_S,
    LEASE_MAX_S,
    TOMBSTONE_S,
    WINDOW_S,
    Capability,
    Kind,
    Terms,
    resend_window_s,
)
from effectonce._core.key_shapes import SentKey
from effectonce._validate import flags, numbers, of_type, seconds, texts, whole
from effectonce.errors import ContractViolation

ATTEMPTS, THROTTLED_ATTEMPTS = 5, 10
# so many failures in a row open a breaker that was not configured with when to open
CONSECUTIVE = 5


def span(value_s: float) -> str:
    """Seconds as people say them."""
    if value_s == inf:
        return "ever"
    for unit, size_s in (("days", DAY_S), ("h", 3600.0), ("min", 60.0)):
        if value_s >= 2 * size_s or (
            value_s >= size_s and value_s % size_s == 0 and unit != "days"
        ):
            return f"{value_s / size_s:.3g} {unit}"
    return f"{value_s:.3g} s"


def _require(condition: bool, message: str) -> None:  # noqa: FBT001  # it reads as a sentence
    if not condition:
        raise ContractViolation(message)


class Retry(Struct, frozen=True, kw_only=True):
    """How often and how patiently to try, under one wall-clock deadline.

    A call may fail *attempts* times, five by default. To be put off by a rate limit or an
    overload is not to fail, if it certainly did nothing: with such attempts there may be
    *throttled_attempts* in all, which are ten. If only *attempts* is given, it is both.

    Delays are drawn below a ceiling that grows by *multiplier* from *base_s*, or from
    *throttled_base_s* after a rate limit or overload, up to *cap_s*.
    """

    attempts: int = None  # type: ignore[assignment]  # as below
    throttled_attempts: int = None  # type: ignore[assignment]
    base_s: float = 0.5
    throttled_base_s: float = 1.0
    cap_s: float = 20.0
    deadline_s: float = 90.0
    jitter: Jitter | str = Jitter.FULL
    multiplier: float = MULTIPLIER

    def __post_init__(self) -> None:
        most = self.attempts  # if it is given
        if self.attempts is None:
            force_setattr(self, "attempts", ATTEMPTS)
            most = THROTTLED_ATTEMPTS
        if self.throttled_attempts is None:
            force_setattr(self, "throttled_attempts", most)
        whole(attempts=self.attempts, throttled_attempts=self.throttled_attempts)
        numbers(
            base_s=self.base_s,
            throttled_base_s=self.throttled_base_s,
            cap_s=self.cap_s,
            deadline_s=self.deadline_s,
        )
        numbers(multiplier=self.multiplier)
        _require(self.attempts >= 1, f"attempts={self.attempts}: a call is at least one attempt")
        _require(
            self.throttled_attempts >= 1,
            f"throttled_attempts={self.throttled_attempts}: a call is at least one attempt",
        )
        _require(
            0 <= self.base_s <= self.cap_s,
            f"base_s={self.base_s} and cap_s={self.cap_s}: need 0 <= base_s <= cap_s",
        )
        _require(
            self.throttled_base_s >= 0,
            f"throttled_base_s={self.throttled_base_s}: a delay cannot be negative",
        )
        _require(self.deadline_s > 0, f"deadline_s={self.deadline_s}: a call needs some time")
        _require(
            self.jitter in tuple(Jitter),
            f"jitter={self.jitter!r}: choose one of {', '.join(Jitter)}",
        )
        grows = (
            f"multiplier={self.multiplier}: the ceiling stays (1) or grows up to tenfold each time"
        )
        _require(1 <= self.multiplier <= 10, grows)
        _require(
            self.jitter != Jitter.DECORRELATED or self.multiplier == MULTIPLIER,
            f"multiplier={self.multiplier}: decorrelated delays have no multiplier; choose"
            " jitter='full' or 'equal'",
        )


class Budget(Struct, frozen=True, kw_only=True):
    """What one turn of an agent may spend, in whichever process it goes on: see `Guard.turn`.

    A step may be tried *attempts* times, a turn may have *steps* steps and *repairs* repair
    prompts and take *wall_s* seconds. *by_bucket* bounds how often a turn retries one kind of
    error, such as `{Bucket.RATE_LIMIT: 2}`.
    """

    attempts: int = 3
    steps: int = 8
    wall_s: float = 90.0
    repairs: int = 1
    by_bucket: Mapping[Bucket, int] = {}  # a struct makes a new one each time

    def __post_init__(self) -> None:
        whole(attempts=self.attempts, steps=self.steps, repairs=self.repairs)
        numbers(wall_s=self.wall_s)
        _require(self.attempts >= 1, f"attempts={self.attempts}: a step is at least one attempt")
        _require(self.steps >= 1, f"steps={self.steps}: a turn is at least one step")
        _require(
            0 < self.wall_s < inf,
            f"wall_s={self.wall_s}: a turn needs some time, and ends some day",
        )
        _require(self.repairs >= 0, f"repairs={self.repairs}: repair prompts cannot be negative")
        if not isinstance(self.by_bucket, Mapping):
            raise ContractViolation(
                f"by_bucket={self.by_bucket!r}: give buckets, such as"
                " by_bucket={Bucket.RATE_LIMIT: 2}"
            )
        whole(**{f"by_bucket[{name!r}]": times for name, times in self.by_bucket.items()})
        wrong = [
            name for name, times in self.by_bucket.items() if name not in tuple(Bucket) or times < 0
        ]
        _require(
            not wrong,
            f"by_bucket={dict(self.by_bucket)!r}: give buckets, and how often each may be retried",
        )

    @property
    def limits(self) -> TurnLimits:
        """The part that the core works with."""
        by_bucket = {Bucket(bucket): times for bucket, times in self.by_bucket.items()}
        return TurnLimits(self.attempts, self.steps, self.wall_s, self.repairs, by_bucket)


class Breaker(Struct, frozen=True, kw_only=True):
    """When to stop asking a dependency that is unwell, and how to find out that it is well again.

    It opens after so many *consecutive* failures, or so many *failures* in the window, or when
    the *rate* of failures or the *slow_rate* of calls of *slow_s* and longer is reached in the
    window, if that holds at least *minimum* calls. The window is the last *window_s* seconds or,
    if given, the last *window_calls* calls. Any one that is given opens it; if none is, five
    consecutive failures do.
    """

    consecutive: int | None = None
    failures: int | None = None
    rate: float | None = None
    slow_rate: float | None = None
    slow_s: float | None = None
    window_s: float = 30.0
    window_calls: int | None = None
    minimum: int = 10
    open_s: float = 10.0
    open_max_s: float = 300.0
    growth: float = 2.0
    jitter: float = 0.2
    retry_after_max_s: float = 3600.0
    probes: int = 1
    probe_lease_s: float = 60.0
    successes: int = 1
    counts_as_failure: frozenset[Bucket] = UNHEALTHY
    counts_as_success: frozenset[Bucket] = frozenset()
    shadow: bool = False  # refuse no call, and report what would have happened
    refresh_s: float = 5.0  # how often processes that share it exchange what they found
    quorum: float = 0.5  # more than this share of them, and at least two, open the circuit of all

    def __post_init__(self) -> None:
        if all(
            given is None for given in (self.consecutive, self.failures, self.rate, self.slow_rate)
        ):
            force_setattr(self, "consecutive", CONSECUTIVE)
        _check_types(self)
        _check_opening(self)
        _check_open_time(self)
        _check_counting(self)

    @property
    def limits(self) -> Limits:
        """The part that the machine works with."""
        return Limits(
            consecutive=self.consecutive,
            failures=self.failures,
            rate=self.rate,
            slow_rate=self.slow_rate,
            slow_s=inf if self.slow_s is None else self.slow_s,
            window_s=self.window_s,
            window_calls=self.window_calls,
            minimum=self.minimum,
            open_s=self.open_s,
            open_max_s=self.open_max_s,
            growth=self.growth,
            jitter=self.jitter,
            retry_after_max_s=self.retry_after_max_s,
            probes=self.probes,
            probe_lease_s=self.probe_lease_s,
            successes=self.successes,
        )


_COUNTS = ("consecutive", "failures", "window_calls", "minimum", "probes", "successes")
_MEASURES = (
    "rate", "slow_rate", "slow_s", "window_s", "open_s", "open_max_s", "growth", "jitter",
    "retry_after_max_s", "probe_lease_s", "refresh_s", "quorum",
)  # fmt: skip
_NONE_IS_FINE = ("consecutive", "failures", "rate", "slow_rate", "slow_s", "window_calls")


def _check_types(policy: Breaker) -> None:
    for check, names in ((whole, _COUNTS), (numbers, _MEASURES)):
        given = {name: getattr(policy, name) for name in names}
        check(
            **{
                name: value
                for name, value in given.items()
                if value is not None or name not in _NONE_IS_FINE
            }
        )
    flags(shadow=policy.shadow)


def _check_opening(policy: Breaker) -> None:
    failures, rate, slow_rate, slow_s = (
        policy.failures,
        policy.rate,
        policy.slow_rate,
        policy.slow_s,
    )
    for name, count in (("consecutive", policy.consecutive), ("failures", failures)):
        _require(count is None or count >= 1, f"{name}={count}: it takes at least one to open")
    _require(
        rate is None or 0 < rate <= 1, f"rate={rate}: a share of the calls, above 0 and up to 1"
    )
    _require(
        slow_rate is None or 0 < slow_rate <= 1,
        f"slow_rate={slow_rate}: a share of the calls, above 0 and up to 1",
    )
    _require(
        (slow_rate is None) == (slow_s is None),
        f"slow_rate={slow_rate} and slow_s={slow_s}: one needs the other",
    )
    _require(slow_s is None or 0 < slow_s < inf, f"slow_s={slow_s}: how many seconds are slow?")
    _require(
        0 < policy.window_s < inf,
        f"window_s={policy.window_s}: the window must be positive and end some day",
    )
    _require(policy.minimum >= 1, f"minimum={policy.minimum}: a rate is of at least one call")
    if policy.window_calls is not None:
        _check_window_of(policy, policy.window_calls)


def _check_window_of(policy: Breaker, calls: int) -> None:
    failures, rated = policy.failures, policy.rate is not None or policy.slow_rate is not None
    _require(calls >= 1, f"window_calls={calls}: a window holds at least one call")
    _require(
        rated or failures is not None,
        f"window_calls={calls}: a window needs failures, a rate or a slow_rate to watch",
    )
    _require(
        calls >= policy.minimum or not rated,
        f"window_calls={calls} and minimum={policy.minimum}: a window that never holds the minimum"
        " never opens",
    )
    _require(
        failures is None or calls >= failures,
        f"window_calls={calls} and failures={failures}: they never fit the window",
    )


def _check_open_time(policy: Breaker) -> None:
    base_s, max_s = policy.open_s, policy.open_max_s
    _require(
        0 < base_s <= max_s < inf,
        f"open_s={base_s} and open_max_s={max_s}: need 0 < open_s <= open_max_s, and an end",
    )
    _require(
        1 <= policy.growth <= 10,
        f"growth={policy.growth}: the open time stays (1) or grows up to tenfold each time",
    )
    _require(0 <= policy.jitter <= 1, f"jitter={policy.jitter}: a share of the open time, 0 to 1")
    _require(
        policy.retry_after_max_s >= 0,
        f"retry_after_max_s={policy.retry_after_max_s}: waiting cannot be negative",
    )
    _require(policy.probes >= 1, f"probes={policy.probes}: without a probe it would never close")
    _require(
        policy.probe_lease_s > 0, f"probe_lease_s={policy.probe_lease_s}: a probe needs some time"
    )
    _require(policy.successes >= 1, f"successes={policy.successes}: it takes at least one to close")
    _require(policy.refresh_s > 0, f"refresh_s={policy.refresh_s}: an exchange needs some time")
    _require(
        0 <= policy.quorum < 1,
        f"quorum={policy.quorum}: a share of the processes, from 0 to below 1",
    )


def _check_counting(policy: Breaker) -> None:
    bad, good = policy.counts_as_failure, policy.counts_as_success
    _require(
        all(isinstance(bucket, Bucket) for bucket in (*bad, *good)),
        f"counts_as_failure={bad} and counts_as_success={good}: give sets of Bucket",
    )
    both = sorted(frozenset(bad) & frozenset(good))
    _require(not both, f"{', '.join(both)} cannot count both as failure and as success")
    never = sorted((frozenset(bad) | frozenset(good)) & (NEVER_COUNTED | {Bucket.OK}))
    _require(
        not never,
        f"{', '.join(never)}: this is no failure and no success of a dependency, so it cannot count"
        " as one",
    )


class Downstream(Struct, frozen=True, kw_only=True):
    """What help the downstream gives. Use the constructors: they ask for what each capability
    needs.
    """

    capability: Capability
    window_s: float = inf
    stores_rejections: bool = False
    delay_s: float | None = None

    @classmethod
    def key(
        cls, *, window: float | timedelta = DAY_S, stores_rejections: bool = False
    ) -> Downstream:
        """It honours our key for *window*, and with *stores_rejections* replays its own refusals
        too.
        """
        window_s = seconds(window, "window")
        _require(
            window_s > 0,
            f"window={window}: a downstream that honours the key for no time is downstream='none'",
        )
        flags(stores_rejections=stores_rejections)
        return cls(
            capability=Capability.KEY, window_s=window_s, stores_rejections=stores_rejections
        )

    @classmethod
    def probe(cls, *, delay: float | timedelta | None = None) -> Downstream:
        """It can be asked. With *delay*, no request lands later than that after its sender's
        lease ended.
        """
        delay_s = None if delay is None else seconds(delay, "delay")
        _require(
            delay_s is None or delay_s >= 0, f"delay={delay}: no request lands before it is sent"
        )
        return cls(capability=Capability.PROBE, delay_s=delay_s)

    @classmethod
    def none(cls) -> Downstream:
        """It gives no help at all."""
        return cls(capability=Capability.NONE)

    @classmethod
    def transaction(cls) -> Downstream:
        """The effect is a write in the store's own database."""
        return cls(capability=Capability.TRANSACTION)

    @classmethod
    def of(cls, declared: Downstream | str) -> Downstream:
        """Accept the short names that read well in a decorator."""
        if isinstance(declared, Downstream):
            return declared
        match declared:
            case "key":
                return cls.key()
            case "probe":
                return cls.probe()
            case "none":
                return cls.none()
            case "transaction":
                return cls.transaction()
            case _:
                raise ContractViolation(
                    f"downstream={declared!r}: choose one of {', '.join(Capability)}"
                )


class TimeWindow(Struct, frozen=True, kw_only=True):
    """Drop repeats of the same request within *seconds*: dedup by content and time, with no step
    and no memory beyond it.

    For low-stakes, high-volume calls such as notifications or search-as-you-type. A crash or a
    lost answer lets repeats through, and after the window the same request runs again; with
    `math.inf` it never ends. Do not use it for money, mail to customers, or anything that must
    not happen twice.
    """

    seconds: float

    def __post_init__(self) -> None:
        numbers(seconds=self.seconds)
        _require(
            self.seconds > 0, f"TimeWindow(seconds={self.seconds}): the window must be positive"
        )


class Contract(Struct, frozen=True, kw_only=True):
    """What a tool declares about itself. The record pins the part of it that safety rests on."""

    name: str
    kind: Kind
    downstream: Downstream
    version: str = "1"
    identity: tuple[str, ...] | None = None  # None: every argument that is not volatile
    volatile: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    added: Mapping[str, Any] = {}
    nfc: bool = False  # texts that count are compared in NFC
    window_s: float = inf
    tombstone_s: float = TOMBSTONE_S
    lease_s: float = 30.0
    wait_s: float = 30.0
    retry: Retry = Retry()
    permission: str | None = None
    separate_dispatch: bool = False
    not_sent: tuple[type[BaseException], ...] = ()
    rejected: tuple[type[BaseException], ...] = ()
    rules: tuple[Rule, ...] = ()
    one_request: bool = False  # what an error says about its request, it says about the effect
    through: bool = False  # its effects leave through protected clients only
    # what was sent may settle an error; not for the handlers of a whole app, which do other
    # things, too
    inferred: bool = True
    dedup: TimeWindow | None = None
    accept_store_loss: bool = False
    provider: str = ""  # whose API it calls, if that is known
    sent_key: SentKey | None = None  # how that provider takes its key

    def __post_init__(self) -> None:
        _require(bool(self.name), "a tool needs a name")
        texts(
            name=self.name,
            version=self.version,
            permission="any" if self.permission is None else self.permission,
        )
        numbers(lease_s=self.lease_s, wait_s=self.wait_s)
        flags(
            nfc=self.nfc,
            separate_dispatch=self.separate_dispatch,
            one_request=self.one_request,
            accept_store_loss=self.accept_store_loss,
        )
        of_type("retry", self.retry, Retry, "a policy, such as retry=Retry(attempts=3)")
        of_type("dedup", self.dedup, TimeWindow, "dedup=TimeWindow(seconds=300)")
        _require(
            self.lease_s > 0,
            f"lease_s={self.lease_s}: the lease must outlast the time between two heartbeats",
        )
        _require(
            self.lease_s <= LEASE_MAX_S,
            f"lease_s={self.lease_s}: at most {span(LEASE_MAX_S)}, or no caller could go on after a"
            " crash. Heartbeats renew it",
        )
        _require(self.wait_s >= 0, f"wait_s={self.wait_s}: waiting cannot be negative")
        _require(
            self.window_s > 0 or self.kind is Kind.READ,
            f"window_s={self.window_s}: the window must be positive",
        )
        _require(
            self.tombstone_s >= 0,
            f"tombstone={self.tombstone_s}: a key cannot be forgotten before its window is over",
        )
        both = sorted(set(self.identity or ()) & set(self.volatile))
        _require(not both, f"{', '.join(both)} cannot be both identity and volatile")
        of_type(
            "added",
            self.added,
            Mapping,
            'what calls meant without the parameter, such as added={"currency": "EUR"}',
        )
        ignored = sorted(set(self.added) & set(self.volatile))
        _require(
            not ignored,
            f"{', '.join(ignored)} cannot be both added and volatile: what is volatile never"
            " counts",
        )
        _require(
            self.dedup is None or self.kind in (Kind.READ, Kind.IDEMPOTENT_WRITE, Kind.WRITE),
            "time-window dedup lets an effect repeat after its window: it cannot guard an"
            " irreversible tool",
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What you should know when you declare this. Logged when the tool is registered, and
        reported by `health()`.
        """
        if self.kind is Kind.READ and self.downstream.capability is not Capability.NONE:
            useless = (
                f"{self.name} is a read, which has no record and needs no"
                f" downstream={str(self.downstream.capability)!r}"
            )
            return (
                (
                    f"{useless}. If it changes anything, declare what it is: kind='write',"
                    " 'idempotent_write' or 'irreversible'."
                ),
            )
        if (
            self.downstream.capability is not Capability.KEY
            or self.downstream.window_s >= self.window_s
        ):
            return ()
        theirs, ours = span(self.downstream.window_s), span(self.window_s)
        note = (
            f"{self.name}: {self.provider or 'the downstream'} honours a key for {theirs}, we for"
            f" {ours}. Known outcomes"
            f" are still replayed; a request that is still unanswered after {theirs} goes in doubt"
            " instead of being sent again."
        )
        return (note,)

    @property
    def terms(self) -> Terms:
        """The part that is pinned into each record."""
        capability = self.downstream.capability
        if self.dedup is not None:
            window_s, resend_s, tombstone_s = self.dedup.seconds, inf, 0.0
        else:
            window_s, tombstone_s = self.window_s, self.tombstone_s
            resend_s = resend_window_s(self.kind, capability, self.downstream.window_s)
        return Terms(
            tool=self.name,
            version=self.version,
            kind=self.kind,
            downstream=capability,
            window_s=window_s,
            resend_s=resend_s,
            delay_s=self.downstream.delay_s,
            stores_rejections=self.downstream.stores_rejections,
            tombstone_s=tombstone_s,
            rerun=self.dedup is not None,
            provider=self.provider,
            key_shape="" if self.sent_key is None else str(self.sent_key.shape),
        )


def window_of(kind: Kind, declared: float | timedelta | None) -> float:
    """The declared window, or what this kind usually needs."""
    return WINDOW_S[kind] if declared is None else seconds(declared, "window")


def kind_of(kind: str | Kind) -> Kind:
    """Accept the names that read well in a decorator."""
    try:
        return Kind(kind)
    except ValueError:
        raise ContractViolation(f"kind={kind!r}: choose one of {', '.join(Kind)}") from None


def misspelt(tool: str, fields: Iterable[str], schema: Mapping[str, Any]) -> str:
    """What is wrong with the fields that a contract names, beside the JSON schema of its tool;
    "" if nothing is.

    A field that the tool does not have would make two effects of one wish, or one of two.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties or schema.get("additionalProperties"):
        return ""
    unknown = next((field for field in fields if field not in properties), None)
    return (
        ""
        if unknown is None
        else (
            f"{tool} has no argument {unknown!r}, which its contract names; it has"
            f" {', '.join(properties)}"
        )
    )
