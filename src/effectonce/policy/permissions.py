"""May I, and how much: what a tool declares about approvals and spending, checked at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from math import inf

from msgspec import Struct

from effectonce._core.allowances import SpendingWindow
from effectonce._core.guarantees import DAY_S
from effectonce._validate import flags, numbers, of_type, require, seconds, texts, whole

CALENDAR = ("hour", "day", "week", "month")


class Approval(Struct, frozen=True, kw_only=True):
    """A person approves a call before it is sent: its very arguments, once, within *valid_s*.

    *when* says which calls need it, by the arguments that it names: `when=lambda amount: amount
    > 500`. Without it, all do. *never* says which are refused, and cannot be approved.
    *four_eyes*: not the one who asked (`guard.step(asked_by=)`).
    *precondition* says whether what a call rests on still holds, by the arguments that it names.
    It is asked before a person is, and again right before the first send.
    """

    when: Callable[..., bool] | None = None
    valid_s: float = DAY_S
    four_eyes: bool = False
    precondition: Callable[..., bool | Awaitable[bool]] | None = None
    never: Callable[..., bool] | None = None

    def __post_init__(self) -> None:
        numbers(valid_s=self.valid_s)
        flags(four_eyes=self.four_eyes)
        require(
            0 < self.valid_s < inf, f"valid_s={self.valid_s}: an approval is used some day, or ends"
        )
        for name, rule in (("when", self.when), ("never", self.never)):
            require(
                rule is None or callable(rule),
                f"{name}={rule!r}: give a function of the arguments that decide",
            )
        require(
            self.precondition is None or callable(self.precondition),
            f"precondition={self.precondition!r}: give a function of the arguments that it needs",
        )

    @classmethod
    def of(cls, declared: Approval | Callable[..., bool] | bool) -> Approval | None:  # noqa: FBT001
        """Accept what reads well in a decorator: True, or the rule alone."""
        if isinstance(declared, Approval):
            return declared
        if isinstance(declared, bool):
            return cls() if declared else None
        return cls(when=declared)


class Allowance(Struct, frozen=True):
    """What tools may spend in a time: `Allowance("refunds", limit=500_000, unit="cents")` a day.

    *per* is an hour, day, week or month of the calendar (UTC), or a time that rolls, such as
    `timedelta(hours=1)`. Each subject has its own: *for_each* is "tenant", or "scope" (a
    conversation), "asked_by", or arguments of the tool, each within its tenant; None: one for
    all. *over*: what is above the limit is refused, or waits for an "approval".
    """

    name: str
    limit: int
    per: str | float | timedelta = "day"
    unit: str = ""
    for_each: str | tuple[str, ...] | None = "tenant"
    over: str = "refuse"

    def __post_init__(self) -> None:
        texts(name=self.name, unit=self.unit or "any")
        whole(limit=self.limit)
        require(bool(self.name), "an allowance needs a name")
        require(self.limit >= 0, f"limit={self.limit}: it cannot be negative")
        require(
            self.over in ("refuse", "approval"),
            f"over={self.over!r}: choose what happens above the limit, 'refuse' or 'approval'",
        )
        if isinstance(self.per, str):
            require(
                self.per in CALENDAR,
                f"per={self.per!r}: choose one of {', '.join(CALENDAR)}, or give a timedelta",
            )
        else:
            require(0 < seconds(self.per, "per") < inf, f"per={self.per}: a window takes some time")

    @classmethod
    def several(cls, declared: Allowance | Sequence[Allowance]) -> tuple[Allowance, ...]:
        """Accept one, or more."""
        given = (declared,) if isinstance(declared, Allowance) else tuple(declared)
        for each in given:
            of_type("allowance", each, Allowance, 'such as Allowance("refunds", limit=500_000)')
        return given

    @property
    def window(self) -> SpendingWindow:
        if isinstance(self.per, str):
            return SpendingWindow(self.per)
        return SpendingWindow("", seconds(self.per, "per"))

    @property
    def subject(self) -> tuple[str, ...]:
        """What tells two accounts apart."""
        if self.for_each is None:
            return ()
        named = (self.for_each,) if isinstance(self.for_each, str) else tuple(self.for_each)
        return tuple(dict.fromkeys(("tenant", *named)))
