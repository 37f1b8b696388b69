"""What a tool declares, checked when it is declared. Everything is frozen; a policy is changed
with `msgspec.structs.replace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from effectonce._core.backoff import MULTIPLIER, Jitter
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
from effectonce._text import span
from effectonce._validate import flags, numbers, of_type, require, seconds, texts, whole
from effectonce.errors import ContractViolation
from effectonce.policy.permissions import Allowance, Approval

ATTEMPTS, THROTTLED_ATTEMPTS = 5, 10


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
        require(self.attempts >= 1, f"attempts={self.attempts}: a call is at least one attempt")
        require(
            self.throttled_attempts >= 1,
            f"throttled_attempts={self.throttled_attempts}: a call is at least one attempt",
        )
        require(
            0 <= self.base_s <= self.cap_s,
            f"base_s={self.base_s} and cap_s={self.cap_s}: need 0 <= base_s <= cap_s",
        )
        require(
            self.throttled_base_s >= 0,
            f"throttled_base_s={self.throttled_base_s}: a delay cannot be negative",
        )
        require(self.deadline_s > 0, f"deadline_s={self.deadline_s}: a call needs some time")
        require(
            self.jitter in tuple(Jitter),
            f"jitter={self.jitter!r}: choose one of {', '.join(Jitter)}",
        )
        grows = (
            f"multiplier={self.multiplier}: the ceiling stays (1) or grows up to tenfold each time"
        )
        require(1 <= self.multiplier <= 10, grows)
        require(
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
        require(self.attempts >= 1, f"attempts={self.attempts}: a step is at least one attempt")
        require(self.steps >= 1, f"steps={self.steps}: a turn is at least one step")
        require(
            0 < self.wall_s < inf,
            f"wall_s={self.wall_s}: a turn needs some time, and ends some day",
        )
        require(self.repairs >= 0, f"repairs={self.repairs}: repair prompts cannot be negative")
        if not isinstance(self.by_bucket, Mapping):
            raise ContractViolation(
                f"by_bucket={self.by_bucket!r}: give buckets, such as"
                " by_bucket={Bucket.RATE_LIMIT: 2}"
            )
        whole(**{f"by_bucket[{name!r}]": times for name, times in self.by_bucket.items()})
        wrong = [
            name for name, times in self.by_bucket.items() if name not in tuple(Bucket) or times < 0
        ]
        require(
            not wrong,
            f"by_bucket={dict(self.by_bucket)!r}: give buckets, and how often each may be retried",
        )

    @property
    def limits(self) -> TurnLimits:
        """The part that the core works with."""
        by_bucket = {Bucket(bucket): times for bucket, times in self.by_bucket.items()}
        return TurnLimits(self.attempts, self.steps, self.wall_s, self.repairs, by_bucket)


class Downstream(Struct, frozen=True, kw_only=True):
    """What help the downstream gives. Use the constructors: they ask for what each capability
    needs.
    """

    capability: Capability
    window_s: float = inf
    stores_rejections: bool = False
    delay_s: float | None = None
    before_sending: bool = False  # the probe is asked before the first send, too

    def __post_init__(self) -> None:
        require(
            self.capability is Capability.PROBE or not self.before_sending,
            "before_sending=True asks a probe: declare Downstream.probe(before_sending=True)",
        )

    @classmethod
    def key(
        cls, *, window: float | timedelta = DAY_S, stores_rejections: bool = False
    ) -> Downstream:
        """It honours our key for *window*, and with *stores_rejections* replays its own refusals
        too.
        """
        window_s = seconds(window, "window")
        require(
            window_s > 0,
            f"window={window}: a downstream that honours the key for no time is downstream='none'",
        )
        flags(stores_rejections=stores_rejections)
        return cls(
            capability=Capability.KEY, window_s=window_s, stores_rejections=stores_rejections
        )

    @classmethod
    def probe(
        cls, *, delay: float | timedelta | None = None, before_sending: bool = False
    ) -> Downstream:
        """It can be asked. With *delay*, no request lands later than that after its sender's
        lease ended. With *before_sending*, it is asked before the first send, too.
        """
        delay_s = None if delay is None else seconds(delay, "delay")
        require(
            delay_s is None or delay_s >= 0, f"delay={delay}: no request lands before it is sent"
        )
        flags(before_sending=before_sending)
        return cls(capability=Capability.PROBE, delay_s=delay_s, before_sending=before_sending)

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
        require(
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
    approval: Approval | None = None
    allowances: tuple[Allowance, ...] = ()
    spends: str | int | Callable[..., int] = 1  # of each: an argument, a number, a function
    searchable: tuple[str, ...] = ()  # arguments that find an effect again
    separate_dispatch: bool | None = None  # None: see dispatches_apart
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
        require(bool(self.name), "a tool needs a name")
        texts(
            name=self.name,
            version=self.version,
            permission="any" if self.permission is None else self.permission,
        )
        numbers(lease_s=self.lease_s, wait_s=self.wait_s)
        flags(
            nfc=self.nfc,
            separate_dispatch=False if self.separate_dispatch is None else self.separate_dispatch,
            one_request=self.one_request,
            accept_store_loss=self.accept_store_loss,
        )
        of_type("retry", self.retry, Retry, "a policy, such as retry=Retry(attempts=3)")
        of_type("dedup", self.dedup, TimeWindow, "dedup=TimeWindow(seconds=300)")
        require(
            self.lease_s > 0,
            f"lease_s={self.lease_s}: the lease must outlast the time between two heartbeats",
        )
        require(
            self.lease_s <= LEASE_MAX_S,
            f"lease_s={self.lease_s}: at most {span(LEASE_MAX_S)}, or no caller could go on after a"
            " crash. Heartbeats renew it",
        )
        require(self.wait_s >= 0, f"wait_s={self.wait_s}: waiting cannot be negative")
        require(
            self.window_s > 0 or self.kind is Kind.READ,
            f"window_s={self.window_s}: the window must be positive",
        )
        require(
            self.tombstone_s >= 0,
            f"tombstone={self.tombstone_s}: a key cannot be forgotten before its window is over",
        )
        both = sorted(set(self.identity or ()) & set(self.volatile))
        require(not both, f"{', '.join(both)} cannot be both identity and volatile")
        of_type(
            "added",
            self.added,
            Mapping,
            'what calls meant without the parameter, such as added={"currency": "EUR"}',
        )
        ignored = sorted(set(self.added) & set(self.volatile))
        require(
            not ignored,
            f"{', '.join(ignored)} cannot be both added and volatile: what is volatile never"
            " counts",
        )
        require(
            self.approval is None or self.kind is not Kind.READ,
            f"{self.name} is a read, which is not approved: it has no record",
        )
        require(
            not self.allowances or self.kind is not Kind.READ,
            f"{self.name} is a read, which spends nothing: it has no record",
        )
        require(
            not self.searchable or self.kind is not Kind.READ,
            f"{self.name} is a read, which cannot be searched for: it has no record",
        )
        require(
            self.dedup is None or self.kind in (Kind.READ, Kind.IDEMPOTENT_WRITE, Kind.WRITE),
            "time-window dedup lets an effect repeat after its window: it cannot guard an"
            " irreversible tool",
        )

    @property
    def dispatches_apart(self) -> bool:
        """Is it written down on its own that something leaves? Where that is seen, and a crash
        before it would cost a person.
        """
        if self.separate_dispatch is None:
            return self.through and self.terms.resend_s == 0
        return self.separate_dispatch

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
            approval=self.approval is not None,
            four_eyes=self.approval is not None and self.approval.four_eyes,
            valid_s=0.0 if self.approval is None else self.approval.valid_s,
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
