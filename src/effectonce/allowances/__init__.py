"""What is left of the allowances: spent, held by effects without an outcome, in doubt.

for account in guard.allowances.list("refunds"):
print(account.subject, account.spent, account.reserved, account.in_doubt, account.left)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import takewhile
from operator import eq

import msgspec
from msgspec import Struct

from effectonce._core.allowances import CELLS, Account, read_account
from effectonce._core.effect_ref import EffectRef, effect_of
from effectonce._core.ops import Find, ListCells, ReadCell
from effectonce._core.record import State
from effectonce._runtime.performers import CLOCK
from effectonce.stores.base import Store

__all__ = ["AllowancePage", "AllowanceState", "Allowances", "HeldAmount"]
BATCH = 100
SPENT = frozenset({State.COMPLETED, State.TOMBSTONE})


class HeldAmount(Struct, frozen=True, kw_only=True):
    """What an effect without an outcome holds of an account."""

    effect: EffectRef
    amount: int
    in_doubt: bool  # otherwise it is under way


class AllowanceState(Struct, frozen=True, kw_only=True):
    """One account of an allowance, as it stands now. All amounts are in *unit*."""

    allowance: str
    subject: str
    tenant: str | None  # None: it is no tenant's
    unit: str
    limit: int
    spent: int
    reserved: int  # by effects that are under way
    in_doubt: int  # by effects that may have happened
    held_by: tuple[HeldAmount, ...]  # which these are, the oldest first
    refused: int  # calls in this window: one that is repeated counts each time
    refused_amount: int  # what they would have spent
    refills_at: float  # when something, or all of it, counts no longer; by the store's clock

    @property
    def left(self) -> int:
        return max(0, self.limit - self.spent - self.reserved - self.in_doubt)


class AllowancePage(Struct, frozen=True, kw_only=True):
    """Some accounts, and where the next ones begin."""

    accounts: tuple[AllowanceState, ...]
    after: str | None  # None: there are no more


class Allowances:
    """Where allowances are looked at. Nothing here changes one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(
        self, allowance: str | None = None, *, tenant: str | None = None, limit: int = 100
    ) -> tuple[AllowanceState, ...]:
        """Their accounts that a call asked something of, by the name of the allowance; those of
        one *tenant*.
        """
        return self.page(allowance, tenant=tenant, limit=limit).accounts

    def page(
        self,
        allowance: str | None = None,
        *,
        tenant: str | None = None,
        after: str = "",
        limit: int = 100,
        looked_at: int = sys.maxsize,
    ) -> AllowancePage:
        """The same, so many of them after *after*. At most *looked_at* accounts are read for a
        page, and as many records of what holds their amounts: beyond that, what is held counts as
        reserved.
        """
        now = self._store.apply(ReadCell(CLOCK)).now
        begins = "" if allowance is None else f"{allowance} "
        found: list[AllowanceState] = []
        looks, last = looked_at, ""
        for number, (name, value) in enumerate(self._cells(begins, after)):
            if len(found) == limit or number >= looked_at:
                return AllowancePage(accounts=tuple(found), after=_between(last, name))
            last = name
            try:
                account = read_account(value).at(now)
            except msgspec.MsgspecError:
                continue  # of another release
            if allowance not in (None, account.allowance):
                continue  # its name begins alike
            if tenant in (None, account.tenant):
                asked = min(looks, len(account.held))
                looks -= asked
                found.append(self._state(account, now, asked))
        return AllowancePage(accounts=tuple(found), after=None)

    def _cells(self, begins: str, after: str) -> Iterator[tuple[str, bytes]]:
        after = f"{CELLS}{after}" if after else ""
        while True:
            page = self._store.apply(ListCells(f"{CELLS}{begins}", after, BATCH))
            yield from page
            if len(page) < BATCH:
                return
            after = page[-1][0]

    def _state(self, account: Account, now: float, asked: int) -> AllowanceState:
        """What is held is what its record says, which a crash may have kept from the account."""
        spent, reserved, in_doubt = sum(account.spent.values()), 0, 0
        held_by = []
        oldest = sorted(account.held.items(), key=lambda item: item[1].at)
        for key, entry in oldest[:asked]:
            record = self._store.apply(Find(key))
            if record is None or record.state is State.FAILED:
                continue
            if record.state in SPENT:
                spent += entry.amount
                continue
            doubt = record.state is State.IN_DOUBT
            in_doubt += entry.amount if doubt else 0
            reserved += 0 if doubt else entry.amount
            held_by.append(
                HeldAmount(effect=effect_of(record), amount=entry.amount, in_doubt=doubt)
            )
        return AllowanceState(
            allowance=account.allowance,
            subject=account.subject,
            tenant=account.tenant,
            unit=account.unit,
            limit=account.limit,
            spent=spent,
            reserved=reserved + sum(entry.amount for _, entry in oldest[asked:]),
            in_doubt=in_doubt,
            held_by=tuple(held_by),
            refused=sum(calls for calls, _ in account.refused.values()),
            refused_amount=sum(amount for _, amount in account.refused.values()),
            refills_at=account.refills_at(account.limit - account.used + 1, now),
        )


def _between(last: str, following: str) -> str:
    """A place between two names, by no more letters than it takes: they may be another tenant's."""
    alike = sum(1 for _ in takewhile(lambda pair: eq(*pair), zip(last, following, strict=False)))
    return following[: alike + 1].removeprefix(CELLS)
