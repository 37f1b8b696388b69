"""What there is in a store, and what of it needs a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from effectonce._core.guards import leased
from effectonce._core.ops import Browse
from effectonce._core.pages import COUNTED, Count, Counts
from effectonce._core.record import Record, State
from effectonce.approvals._standing import standing_of, waits
from effectonce.dead_letters._letter import is_dead, letter_of
from effectonce.dead_letters._letters import GRACE_S
from effectonce.views.effects import STATES, given_up, lost, now_of, place_of, reference
from effectonce.views.history import is_run
from effectonce.views.pauses import pauses_of

if TYPE_CHECKING:
    from effectonce import Guard

LOOKED_AT = 1000  # of each state
APPROVAL = "waiting for approval"


def look(
    guard: Guard, tenant: str | None = None, shows: Callable[[Iterable[str]], None] = lambda _: None
) -> dict[str, Any]:
    """A status as `effectonce.status/1`. `counts` is of all tenants. *shows* gets its keys."""
    now = now_of(guard)
    counts: Counts = guard.store.apply(Count(COUNTED))
    doubts = guard.store.apply(Browse(State.IN_DOUBT, tenant, limit=LOOKED_AT))
    pages = [
        guard.store.apply(Browse(state, tenant, limit=LOOKED_AT))
        for state in (State.DISPATCHED, State.CLAIMED)
    ]
    open_ones = [record for page in pages for record in page]
    shows(record.request.key for record in (*doubts, *open_ones))
    left = [r for r in open_ones if lost(r, now)]
    wishes = [r for r in open_ones if waits(r, now)]
    dead = [r for r in open_ones if is_dead(r, now, GRACE_S)]
    runs = [r for r in open_ones if is_run(r) and not leased(r, now)]
    others = [r for r in dead if given_up(r, now)]
    oldest_first = sorted(doubts, key=lambda r: r.decided_at)
    return {
        "counts": {str(state): counts.numbers.get(state, 0) for state in STATES},
        "counts_more": [str(state) for state in STATES if state in counts.more],
        "in_doubt": len(doubts),
        "in_doubt_oldest_s": round(now - oldest_first[0].decided_at, 3) if doubts else None,
        "waiting_approval": len(wishes),
        "abandoned": len(left),
        "dead_letters": len(doubts) + len(dead),
        "given_up": len(others),
        "waiting_runs": len(runs),
        "paused": pauses_of(guard, now),
        "more": LOOKED_AT in (len(doubts), *map(len, pages)),
        "needs_you": [
            *(_needs(r, "in doubt", now - r.decided_at) for r in oldest_first),
            *(_needs(r, APPROVAL, now - _waits_since(r, now)) for r in wishes),
            *(_needs(r, "abandoned", now - r.lease_until) for r in left),
            *(_needs(r, "given up", letter_of(r, None, now).age_s) for r in others),
            *(_needs(r, "a waiting run", now - r.lease_until) for r in runs),
        ],
    }


def _waits_since(record: Record, now: float) -> float:
    """Since it was asked for, or since an approval that was not used ended."""
    standing = standing_of(record, now)
    ended = None if standing is None else standing.until
    return record.created_at if ended is None else ended


def _needs(record: Record, why: str, for_s: float) -> dict[str, Any]:
    return {
        "reference": reference(record),
        "tool": record.request.terms.tool,
        "where": place_of(record),
        "why": why,
        "for_s": round(for_s, 3),
    }
