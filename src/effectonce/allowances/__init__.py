"""What is left of the allowances: spent, held by effects without an outcome, in doubt.

for account in guard.allowances.list("refunds"):
print(account.subject, account.spent, account.reserved, account.in_doubt, account.left)
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from effectonce._core.allowances import CELLS, Account, read_account
from effectonce._core.ops import Cell, Find, ListCells, ReadCell
from effectonce._core.record import State
from effectonce._runtime.performers import CLOCK
from effectonce.stores.base import Store

__all__ = ["AllowanceState", "Allowances"]
BATCH = 100
SPENT = frozenset({State.COMPLETED, State.TOMBSTONE})


class AllowanceState(Struct, frozen=True, kw_only=True):
    """One account of an allowance, as it stands now. All amounts are in *unit*."""

    allowance: str
    subject: str
    unit: str
    limit: int
    spent: int
    reserved: int  # by effects that are under way
    in_doubt: int  # by effects that may have happened
    refused: int  # calls in this window: one that is repeated counts each time
    refused_amount: int  # what they would have spent
    refills_at: float  # when something, or all of it, counts no longer; by the store's clock

    @property
    def left(self) -> int:
        return max(0, self.limit - self.spent - self.reserved - self.in_doubt)


class Allowances:
    """Where allowances are looked at. Nothing here changes one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, allowance: str | None = None, *, limit: int = 100) -> tuple[AllowanceState, ...]:
        """Their accounts that a call asked something of, by the name of the allowance."""
        cell: Cell = self._store.apply(ReadCell(CLOCK))
        found: list[AllowanceState] = []
        for value in self._cells("" if allowance is None else f"{allowance} "):
            try:
                account = read_account(value).at(cell.now)
            except msgspec.MsgspecError:
                continue  # of another release
            if allowance not in (None, account.allowance):
                continue  # its name begins alike
            found.append(self._state(account, cell.now))
            if len(found) == limit:
                break
        return tuple(found)

    def _cells(self, begins: str) -> Iterator[bytes]:
        after = ""
        while True:
            page = self._store.apply(ListCells(f"{CELLS}{begins}", after, BATCH))
            yield from (value for _, value in page)
            if len(page) < BATCH:
                return
            after = page[-1][0]

    def _state(self, account: Account, now: float) -> AllowanceState:
        """What is held is what its record says, which a crash may have kept from the account."""
        spent, reserved, in_doubt = sum(account.spent.values()), 0, 0
        for key, entry in account.held.items():
            record = self._store.apply(Find(key))
            if record is None or record.state is State.FAILED:
                continue
            if record.state in SPENT:
                spent += entry.amount
            elif record.state is State.IN_DOUBT:
                in_doubt += entry.amount
            else:
                reserved += entry.amount
        return AllowanceState(
            allowance=account.allowance,
            subject=account.subject,
            unit=account.unit,
            limit=account.limit,
            spent=spent,
            reserved=reserved,
            in_doubt=in_doubt,
            refused=sum(calls for calls, _ in account.refused.values()),
            refused_amount=sum(amount for _, amount in account.refused.values()),
            refills_at=account.refills_at(account.limit - account.used + 1, now),
        )
