"""What tools may spend in a time: sums or counts, in one cell for each allowance and subject. Pure.

Theory of operation. An amount is held in the cell after the effect is claimed, and before anything
may leave:

  claim ──> hold ──> dispatch ──> invoke ──> outcome ──> spent, or given back
              └─ more than is left ──> nothing is sent

The record is the truth, and the cell an index of it: an entry names its effect, and the owner that
made it. What a crash leaves behind is judged by the record when the limit is reached:

  completed            spent
  failed, or forgotten given back
  never sent           given back, once its owner can send nothing any more: its claim is taken
  anything else        it may have happened, or may happen: held

So the cell never says less than what was spent or may be. An entry counts in the window in which
it was made. Only the owner of a record makes one: whether it still is the owner is asked after the
account was read, and the account is written only if it is still the same. So one that was
thought dead cannot count an effect again that another caller has finished.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from effectonce._core.endings import Again, OverLimit
from effectonce._core.guarantees import DAY_S
from effectonce._core.guards import leased
from effectonce._core.ops import (
    Applied,
    Cell,
    Claim,
    Find,
    Flow,
    Held,
    ReadCell,
    Renew,
    Together,
    Unavailable,
    WriteCell,
)
from effectonce._core.record import Record, State
from effectonce._core.resolved import resolved
from effectonce._core.retry_state import Env

CELLS = "allowance "  # how their names begin
HOUR_S, WEEK_S = 3600.0, 7 * DAY_S
MONDAY_S = 4 * DAY_S  # the first one after the beginning of 1970
BUCKETS = 60  # of a rolling window: an amount leaves it with its bucket
TRIES = 1000  # how often another process may be faster; each time, one of them has held its amount
LOOKS = 200  # entries that one call judges


class SpendingWindow(Struct, frozen=True):
    """Calendar time in UTC, or *rolling_s* seconds up to now."""

    per: str  # hour, day, week, month; "": it rolls
    rolling_s: float = 0.0

    def begins(self, now: float) -> float:
        """When a calendar window began."""
        match self.per:
            case "hour":
                return now - now % HOUR_S
            case "day":
                return now - now % DAY_S
            case "week":
                return now - (now - MONDAY_S) % WEEK_S
            case _:
                day = datetime.fromtimestamp(now, UTC)
                return datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()

    def ends(self, now: float) -> float:
        """When a calendar window is over."""
        if self.per == "month":
            return self.begins(self.begins(now) + 32 * DAY_S)
        return self.begins(now) + {"hour": HOUR_S, "day": DAY_S, "week": WEEK_S}[self.per]

    def bucket(self, at: float) -> int:
        """What is spent at this time leaves the window together."""
        return int(at // self._bucket_s) if self.per == "" else int(self.begins(at))

    def leaves_at(self, bucket: int) -> float:
        """When an amount of this bucket counts no longer."""
        if self.per:
            return self.ends(bucket)
        return (bucket + 1) * self._bucket_s + self.rolling_s

    @property
    def _bucket_s(self) -> float:
        return self.rolling_s / BUCKETS

    @property
    def keep_s(self) -> float:
        return max(2 * self.rolling_s, 64 * DAY_S)


class Spend(Struct, frozen=True):
    """What one call takes out of one allowance."""

    allowance: str
    subject: str  # whose, for people
    cell: str
    amount: int
    limit: int
    unit: str
    window: SpendingWindow
    over_approval: bool = False  # a person may let it go above the limit
    tenant: str | None = None  # whose account it is; None: it is for all of them


class Holding(Struct, frozen=True, array_like=True):
    """What an effect without an outcome may cost."""

    amount: int
    at: float
    token: str  # of the owner that holds it


class Account(Struct, frozen=True, array_like=True):
    """The cell of one allowance and subject. The first fields are for people."""

    allowance: str
    subject: str
    unit: str
    limit: int
    window: SpendingWindow
    spent: dict[int, int]  # by bucket
    held: dict[str, Holding]  # by the key of the effect
    refused: dict[int, tuple[int, int]] = {}  # by bucket: how many calls, and their sum
    tenant: str | None = None  # None: no tenant's

    @property
    def used(self) -> int:
        return sum(self.spent.values()) + sum(entry.amount for entry in self.held.values())

    def at(self, now: float) -> Account:
        """Without what no longer counts."""
        window = self.window
        spent = {b: n for b, n in self.spent.items() if window.leaves_at(b) > now}
        held = {k: e for k, e in self.held.items() if window.leaves_at(window.bucket(e.at)) > now}
        refused = {b: seen for b, seen in self.refused.items() if window.leaves_at(b) > now}
        return structs.replace(self, spent=spent, held=held, refused=refused)

    def holding(self, key: str, entry: Holding) -> Account:
        return structs.replace(self, held={**self.held, key: entry})

    def given_back(self, key: str) -> Account:
        return structs.replace(self, held={k: e for k, e in self.held.items() if k != key})

    def paid(self, key: str) -> Account:
        entry = self.held[key]
        bucket = self.window.bucket(entry.at)
        spent = {**self.spent, bucket: self.spent.get(bucket, 0) + entry.amount}
        return structs.replace(self.given_back(key), spent=spent)

    def refusing(self, amount: int, now: float) -> Account:
        bucket = self.window.bucket(now)
        calls, total = self.refused.get(bucket, (0, 0))
        refused = {**self.refused, bucket: (calls + 1, total + amount)}
        return structs.replace(self, refused=refused)

    def refills_at(self, amount: int, now: float) -> float:
        """When so much is left, if all that is held is spent."""
        leaving = [(self.window.leaves_at(b), n) for b, n in self.spent.items()]
        leaving += [
            (self.window.leaves_at(self.window.bucket(e.at)), e.amount) for e in self.held.values()
        ]
        left = self.limit - self.used
        for at, freed in sorted(leaving):
            left += freed
            if left >= amount:
                return at
        return now


_encode = msgspec.msgpack.Encoder().encode


def account_of(cell: Cell, spend: Spend) -> Account:
    """What stands there, under the terms of today. Raises if it is not an account."""
    terms = (spend.allowance, spend.subject, spend.unit, spend.limit, spend.window)
    if not cell.value:
        return Account(*terms, {}, {}, {}, spend.tenant)
    stands = read_account(cell.value)
    account = Account(*terms, stands.spent, stands.held, stands.refused, spend.tenant)
    return account.at(cell.now)


def read_account(value: bytes) -> Account:
    return msgspec.msgpack.decode(value, type=Account)


class Owner(Struct, frozen=True):
    """Who holds an amount: the owner of an effect's record."""

    key: str
    token: str
    epoch: int
    lease_s: float

    def look(self, cell: str) -> Together:
        """The account, and then whether the record is still its own. If nothing is written to
        the account after that, no other owner has come and gone.
        """
        return Together((ReadCell(cell), Renew(self.key, self.token, self.epoch, self.lease_s)))


def hold(
    spend: Spend, owner: Owner, env: Env, *, anyway: bool
) -> Flow[OverLimit | Unavailable | Again | None]:
    """Hold the amount for an effect; *anyway*, whatever is left. None: it is held."""
    looks = LOOKS
    for _ in range(TRIES):
        seen: Any = yield owner.look(spend.cell)
        if isinstance(seen, Unavailable):
            return seen
        cell, owns = seen
        if not isinstance(owns, Applied):
            return Again()
        try:
            account = account_of(cell, spend)
        except msgspec.MsgspecError as error:
            return Unavailable(
                ValueError(f"the account of {spend.allowance} cannot be read: {error}")
            )
        mine = account.held.get(owner.key)
        if mine is None and not anyway and account.used + spend.amount > spend.limit:
            account, looks = yield from _judged(account, cell.now, env, looks)
            if account.used + spend.amount > spend.limit:
                yield from _refused(spend, cell, account)
                return _over(spend, account, cell.now)
        at = cell.now if mine is None else mine.at
        held = account.holding(owner.key, Holding(spend.amount, at, owner.token))
        reply: Any = yield _written(spend, cell, held)
        if reply is None or isinstance(reply, Unavailable):
            return reply
    return Unavailable(TimeoutError(f"{spend.allowance} is being spent by too many others"))


def _refused(spend: Spend, cell: Cell, account: Account) -> Flow[None]:
    """Write what was judged, and count the refusal: also if another caller was faster. What waits
    for a person was not refused.
    """
    if spend.over_approval:
        yield _written(spend, cell, account)
        return
    reply: Any = yield _written(spend, cell, account.refusing(spend.amount, cell.now))
    while isinstance(reply, Cell):
        try:
            account = account_of(reply, spend)
        except msgspec.MsgspecError:
            return
        reply = yield _written(spend, reply, account.refusing(spend.amount, reply.now))


def _over(spend: Spend, account: Account, now: float) -> OverLimit:
    return OverLimit(
        spend.allowance,
        spend.subject,
        spend.unit,
        spend.amount,
        spend.limit,
        max(0, spend.limit - account.used),
        account.refills_at(spend.amount, now) - now if spend.amount <= spend.limit else None,
    )


def hold_all(
    spends: tuple[Spend, ...], owner: Owner, env: Env, *, anyway: bool
) -> Flow[OverLimit | Unavailable | Again | None]:
    """Hold what a call takes out of each of its allowances, or nothing."""
    for number, spend in enumerate(spends):
        refusal = yield from hold(spend, owner, env, anyway=anyway)
        if refusal is not None:
            yield from settle_all(spends[:number], owner.key, owner.token, spent=False)
            return refusal
    return None


def settle_all(spends: tuple[Spend, ...], key: str, token: str, *, spent: bool) -> Flow[None]:
    for spend in spends:
        yield from settle(spend, key, token, spent=spent)


def settle(spend: Spend, key: str, token: str, *, spent: bool) -> Flow[None]:
    """The amount is spent, or given back; if it is still ours. Else the record says it later."""
    cell: Any = yield ReadCell(spend.cell)
    while isinstance(cell, Cell) and cell.value:  # until it is written, or cannot be
        try:
            account = account_of(cell, spend)
        except msgspec.MsgspecError:
            return
        entry = account.held.get(key)
        if entry is None or entry.token != token:
            return
        after = account.paid(key) if spent else account.given_back(key)
        cell = yield _written(spend, cell, after)


def _written(spend: Spend, cell: Cell, account: Account) -> WriteCell:
    return WriteCell(spend.cell, cell.revision, _encode(account), spend.window.keep_s, listed=True)


def _judged(account: Account, now: float, env: Env, looks: int) -> Flow[tuple[Account, int]]:
    """Ask the records of what is held what became of them, the oldest first."""
    for key, _ in sorted(account.held.items(), key=lambda item: item[1].at)[:looks]:
        looks -= 1
        record = yield from Find(key)
        if isinstance(record, Unavailable):
            return account, looks
        became = yield from _became(record, now, env)
        if became == "spent":
            account = account.paid(key)
        elif became == "nothing":
            account = account.given_back(key)
    return account, looks


def _became(record: Record | None, now: float, env: Env) -> Flow[str]:
    if record is None or record.state is State.FAILED:
        return "nothing"
    if record.state in (State.COMPLETED, State.TOMBSTONE):
        return "spent"
    if record.state is not State.CLAIMED or record.sends > 0 or leased(record, now):
        return "held"
    if record.token == "":
        return "nothing"  # it waits for an approval
    taken = yield from Claim(record.request, env.new_token(), 0.0, dispatch=False)
    return "nothing" if isinstance(taken, Held) else "held"


resolved(Account)
