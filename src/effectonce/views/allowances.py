"""One account of an allowance: as data, and as a bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce.allowances import AllowanceState
from effectonce.views.times import iso
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Guard

BAR, SEEN = 160, 2  # how wide a bar is, and the least that can be seen of it


class UsedBar(NamedTuple):
    """Where each part of a bar begins, and how wide it is. All of it is the limit, or more if a
    person let more be spent.
    """

    spent: tuple[int, int]
    reserved: tuple[int, int]
    in_doubt: tuple[int, int]
    limit: int  # where the limit is
    words: str  # the same for those who do not see it


def account_data(account: AllowanceState, now: float) -> dict[str, Any]:
    """An account as `effectonce.allowance/1`."""
    return {
        "allowance": account.allowance,
        "subject": account.subject,
        "tenant": account.tenant,
        "unit": account.unit,
        "limit": account.limit,
        "spent": account.spent,
        "reserved": account.reserved,
        "in_doubt": account.in_doubt,
        "left": account.left,
        "refused": account.refused,
        "refused_amount": account.refused_amount,
        "refills_at": iso(account.refills_at) if account.refills_at > now else None,
        "held_by": [
            {
                "reference": held.effect.reference,
                "tool": held.effect.tool,
                "amount": held.amount,
                "in_doubt": held.in_doubt,
            }
            for held in account.held_by
        ],
        "_refills_s": account.refills_at - now,
    }


def spends(guard: Guard, tool: str | None, account: AllowanceState) -> bool:
    """Is it spent from by this tool: does the tool declare it, or an effect of it hold some?"""
    if tool is None or any(held.effect.tool == tool for held in account.held_by):
        return True
    known = tools_of(guard).get(tool)
    return known is not None and any(
        account.allowance == each.name for each in known.contract.allowances
    )


def bar_of(account: AllowanceState) -> UsedBar:
    """How full it is. What is not nothing can be seen."""
    amounts = (account.spent, account.reserved, account.in_doubt)
    whole = max(account.limit, sum(amounts), 1)
    widths = [max(SEEN, round(BAR * amount / whole)) if amount else 0 for amount in amounts]
    widths[widths.index(max(widths))] -= max(0, sum(widths) - BAR)
    parts = [(sum(widths[:n]), width) for n, width in enumerate(widths)]
    shares = ("spent", "reserved", "in doubt")
    named = ", ".join(f"{n:,} {word}" for n, word in zip(amounts, shares, strict=True) if n)
    words = f"{named or 'nothing used'} of {account.limit:,}"
    return UsedBar(parts[0], parts[1], parts[2], round(BAR * account.limit / whole), words)
