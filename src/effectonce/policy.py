"""What a tool declares, checked when it is declared. Everything is frozen; a policy is changed with `dataclasses.replace`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from math import inf

from effectonce._core.classify import Rule
from effectonce._core.terms import DAY_S, WINDOW_S, Capability, Kind, Terms, resend_window_s
from effectonce.errors import ContractViolation


def seconds(value: float | timedelta) -> float:
    """Timedeltas are welcome at the edge; inside, time is a float of seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def span(value_s: float) -> str:
    """Seconds as people say them."""
    if value_s == inf:
        return "ever"
    for unit, size_s in (("days", DAY_S), ("h", 3600.0), ("min", 60.0)):
        if value_s >= 2 * size_s or (value_s >= size_s and value_s % size_s == 0 and unit != "days"):
            return f"{value_s / size_s:.3g} {unit}"
    return f"{value_s:.3g} s"


def _require(condition: bool, message: str) -> None:  # noqa: FBT001  # it reads as a sentence
    if not condition:
        raise ContractViolation(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and how patiently to try: full jitter under one wall-clock deadline."""

    attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 20.0
    deadline_s: float = 90.0

    def __post_init__(self) -> None:
        _require(self.attempts >= 1, f"attempts={self.attempts}: a call is at least one attempt")
        _require(0 <= self.base_s <= self.cap_s, f"base_s={self.base_s} and cap_s={self.cap_s}: need 0 <= base_s <= cap_s")
        _require(self.deadline_s > 0, f"deadline_s={self.deadline_s}: a call needs some time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """What help the downstream gives. Use the constructors: they ask for what each capability needs."""

    capability: Capability
    window_s: float = inf
    stores_rejections: bool = False
    delay_s: float | None = None

    @classmethod
    def key(cls, *, window: float | timedelta = DAY_S, stores_rejections: bool = False) -> Downstream:
        """It honours our key for *window*, and with *stores_rejections* replays its own refusals too."""
        _require(seconds(window) > 0, f"window={window}: a downstream that honours the key for no time is downstream='none'")
        return cls(capability=Capability.KEY, window_s=seconds(window), stores_rejections=stores_rejections)

    @classmethod
    def probe(cls, *, delay: float | timedelta | None = None) -> Downstream:
        """It can be asked. With *delay*, no request lands later than that after its sender's lease ended."""
        return cls(capability=Capability.PROBE, delay_s=None if delay is None else seconds(delay))

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
                raise ContractViolation(f"downstream={declared!r}: choose one of {', '.join(Capability)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Drop repeats of the same request within *seconds*: dedup by content and time, with no step and no memory beyond it.

    For low-stakes, high-volume calls such as notifications or search-as-you-type. A crash or a lost answer lets repeats through, and after
    the window the same request runs again. Do not use it for money, mail to customers, or anything that must not happen twice.
    """

    seconds: float

    def __post_init__(self) -> None:
        _require(0 < self.seconds < inf, f"TimeWindow(seconds={self.seconds}): the window must be positive and end some day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a tool declares about itself. The record pins the part of it that safety rests on."""

    name: str
    kind: Kind
    downstream: Downstream
    version: str = "1"
    identity: tuple[str, ...] | None = None  # None: every argument that is not volatile
    volatile: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    window_s: float = inf
    tombstone_s: float = inf
    lease_s: float = 30.0
    wait_s: float = 30.0
    retry: Retry = field(default_factory=Retry)
    permission: str | None = None
    separate_dispatch: bool = False
    not_sent: tuple[type[BaseException], ...] = ()
    rejected: tuple[type[BaseException], ...] = ()
    rules: tuple[Rule, ...] = ()
    one_request: bool = False  # what an error says about its request, it says about the effect
    dedup: TimeWindow | None = None
    accept_store_loss: bool = False

    def __post_init__(self) -> None:
        _require(bool(self.name), "a tool needs a name")
        _require(self.lease_s > 0, f"lease_s={self.lease_s}: the lease must outlast the time between two heartbeats")
        _require(self.wait_s >= 0, f"wait_s={self.wait_s}: waiting cannot be negative")
        _require(self.window_s > 0 or self.kind is Kind.READ, f"window_s={self.window_s}: the window must be positive")
        both = sorted(set(self.identity or ()) & set(self.volatile))
        _require(not both, f"{', '.join(both)} cannot be both identity and volatile")
        _require(
            self.dedup is None or self.kind in (Kind.READ, Kind.IDEMPOTENT_WRITE, Kind.WRITE),
            "time-window dedup lets an effect repeat after its window: it cannot guard an irreversible tool",
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What somebody who declares this should know. Told when the tool is registered, and by `health()`."""
        if self.downstream.capability is not Capability.KEY or self.downstream.window_s >= self.window_s:
            return ()
        theirs, ours = span(self.downstream.window_s), span(self.window_s)
        note = (
            f"{self.name}: the downstream honours a key for {theirs}, we for {ours}. Known outcomes are replayed all the same; "
            f"a request that is still unanswered after {theirs} goes in doubt instead of being sent again."
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
        )


def window_of(kind: Kind, declared: float | timedelta | None) -> float:
    """The declared window, or what this kind usually needs."""
    return WINDOW_S[kind] if declared is None else seconds(declared)
