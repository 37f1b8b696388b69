"""What retries may cost: the tokens of one dependency, and the patience of one turn. Pure.

A budget stops storms, it does not keep effects apart: the record does that. So where a store
cannot be asked, a call goes on with what this process knows. Where it can, nothing is spent
twice, however many ask at once.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from effectonce._core.classification.verdicts import Bucket, Verdict
from effectonce._core.guarantees import DAY_S
from effectonce._core.ops import Cell, Flow, ReadCell, Unavailable, WriteCell
from effectonce._core.resolved import resolved

# how often another process may be faster: where so many retry at once, one less is no loss
TRIES = 20
T = TypeVar("T")


# ---------------------------------------------------------------- the tokens of a dependency


class TokenBucket:
    """Retries take tokens, successes add some: a dependency without answers is soon left alone."""

    __slots__ = ("capacity", "level")

    def __init__(self, capacity: float, level: float | None = None) -> None:
        self.capacity = capacity
        self.level = capacity if level is None else min(level, capacity)

    def charge(self, cost: float) -> bool:
        """Take *cost* when a retry is scheduled: when it leaves, a thousand may pass uncounted."""
        if self.level < cost:
            return False
        self.level -= cost
        return True

    def earn(self, tokens: float) -> None:
        """Put *tokens* in, as far as there is room."""
        self.level = min(self.capacity, self.level + tokens)


class Costs(Struct, frozen=True):
    """What a retry costs, by what went wrong."""

    other: float
    by_bucket: dict[Bucket, float]

    def of(self, verdict: Verdict) -> float:
        return self.by_bucket.get(verdict.bucket, self.other)


def charge_shared(
    name: str, cost: float, bucket: TokenBucket, earned: float, keep_s: float
) -> Flow[bool | None]:
    """Charge the shared bucket; *bucket* gets the same level. None: the store cannot tell."""
    cell: Any = yield ReadCell(name)
    for _ in range(TRIES):
        if isinstance(cell, Unavailable):
            return None
        bucket.level = min(bucket.capacity, _read(cell, float(bucket.capacity)))
        bucket.earn(earned)
        charged = bucket.charge(cost)
        if not (charged or earned):
            return False
        cell = yield WriteCell(name, cell.revision, _encode(bucket.level), keep_s)
        if cell is None:
            return charged
    return False


def _read(cell: Cell, anew: T) -> T:
    """What the cell says; or what it begins with, if it is empty, foreign or of another version."""
    try:
        return msgspec.msgpack.decode(cell.value, type=type(anew)) if cell.value else anew
    except msgspec.MsgspecError:
        return anew


# ---------------------------------------------------------------- the patience of a turn


class TurnLimits(Struct, frozen=True):
    """What one turn may spend."""

    attempts: int  # per step
    steps: int
    wall_s: float
    repairs: int
    by_bucket: dict[Bucket, int]  # retries of one kind of error, per turn


class Spent(Struct, frozen=True, array_like=True):
    """What a turn has spent so far, in all processes that worked on it."""

    started_at: float  # by the store's clock
    steps: dict[str, int]  # how often something was tried again in each
    retries: dict[str, int]  # by bucket
    repairs: int = 0


_encode = msgspec.msgpack.Encoder().encode


class Purchase(Struct, frozen=True):
    """One attempt in a step: is it a repeat, and after which kind of error? Or a repair prompt."""

    step: str = ""
    again: bool = False
    after: Bucket | None = None
    repair: bool = False


class TurnState:
    """The budget of one turn, in a cell: it outlives a crash, and the turn's processes share it."""

    def __init__(self, name: str, limits: TurnLimits, shown: str) -> None:
        self.name, self.limits, self.shown = name, limits, shown
        self.left_s = limits.wall_s  # as of the last purchase
        self._known = Spent(0.0, {}, {})  # what this process knows of it

    def spend(self, purchase: Purchase) -> Flow[str]:
        """Why not; "" if it is paid."""
        cell: Any = yield ReadCell(self.name)
        # a faster process has bought something, which ends when all is bought
        for _ in range(self._purchases + 1):
            if isinstance(cell, Unavailable):
                self._known, refusal = self._buy(self._known, purchase)
                return refusal
            self._known = spent = _read(cell, Spent(cell.now, {}, {}))
            self.left_s = spent.started_at + self.limits.wall_s - cell.now
            after, refusal = self._buy(spent, purchase)
            if refusal or after == spent:
                return refusal
            cell = yield WriteCell(
                self.name, cell.revision, _encode(after), self.limits.wall_s + DAY_S
            )
            if cell is None:
                self._known = after
                return ""
        return f"{self.shown} is being spent by others"

    @property
    def _purchases(self) -> int:
        """How many there can be in all."""
        return self.limits.steps * self.limits.attempts + self.limits.repairs

    def _buy(self, spent: Spent, purchase: Purchase) -> tuple[Spent, str]:
        limits, shown, step, after = self.limits, self.shown, purchase.step, purchase.after
        steps, retries, repairs = dict(spent.steps), dict(spent.retries), spent.repairs
        if self.left_s <= 0:
            return spent, f"{shown} has taken its {limits.wall_s:g} s"
        if purchase.repair:
            repairs += 1
            if repairs > limits.repairs:
                return spent, f"{shown} has had its {limits.repairs} repair prompt(s)"
        else:
            steps[step] = steps.get(step, 0) + purchase.again
            if len(steps) > limits.steps:
                return spent, f"{shown} has taken its {limits.steps} steps"
            if steps[step] >= limits.attempts:
                return spent, f"this step of {shown} has had its {limits.attempts} attempt(s)"
        if after is not None:
            retries[after] = retries.get(after, 0) + 1
            if retries[after] > limits.by_bucket.get(after, retries[after]):
                return spent, f"{shown} has retried {after} {limits.by_bucket[after]} time(s)"
        return Spent(spent.started_at, steps, retries, repairs), ""


resolved(Spent)
