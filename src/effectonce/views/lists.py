"""Pages of filtered lists: a bounded look at a store, what fits of it, and where to go on.

A store filters by tool, state, tenant, scope and age; what it cannot filter by is looked at
here, among as many records as one page may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import structs

from effectonce._core.ops import Browse
from effectonce._core.pages import Recent
from effectonce._core.record import Record, State
from effectonce.recovery.in_doubt import place
from effectonce.stores import Store
from effectonce.views.filter_fields import ListFilter
from effectonce.views.filters import (
    RUN_STATES,
    doubt_facts,
    effect_facts,
    fits,
    run_facts,
    wish_facts,
)

LOOKED_AT = 1000  # records that are read for one page, however many there are
BROUGHT = 200  # at a time, where what fits is chosen here


class FilteredPage(NamedTuple):
    """What fits, and where the next page begins."""

    records: tuple[Record, ...]
    further: Record | None = None  # the last one that was looked at; None: there are no more
    looked_at: int = 0  # how many records this page was chosen from


def effects_page(
    store: Store, asked: ListFilter, now: float, after: Record | None, limit: int
) -> FilteredPage:
    """Effects, the newest first."""
    state = None if asked.state is None else State(asked.state)
    recent = _recently(asked, state, now, after)
    # where the store filters by all of it, it brings no more than is shown
    whole = asked.error is None and asked.older_than is None
    return _recent(
        store,
        structs.replace(recent, limit=limit if whole else max(limit, BROUGHT)),
        lambda record: fits(asked, effect_facts(record), now),
        limit,
    )


def runs_page(
    store: Store, asked: ListFilter, now: float, after: Record | None, limit: int
) -> FilteredPage:
    """Runs of workflows, the newest first."""
    recent = _recently(asked, RUN_STATES.get(asked.state or ""), now, after)
    return _recent(
        store,
        structs.replace(recent, limit=max(limit, LOOKED_AT)),
        lambda record: fits(asked, run_facts(record), now),
        limit,
    )


def doubts_page(
    store: Store, asked: ListFilter, now: float, after: Record | None, limit: int
) -> FilteredPage:
    """Effects in doubt, the oldest first."""
    return _browsed(
        store,
        Browse(State.IN_DOUBT, asked.tenant, _place(after), LOOKED_AT),
        lambda record: fits(asked, doubt_facts(record), now),
        limit,
    )


def wishes_page(
    store: Store, asked: ListFilter, now: float, after: Record | None, limit: int
) -> FilteredPage:
    """Calls that wait for a person, the oldest first."""
    return _browsed(
        store,
        Browse(State.CLAIMED, asked.tenant, _place(after), LOOKED_AT),
        lambda record: fits(asked, wish_facts(record, now), now),
        limit,
    )


def _recently(asked: ListFilter, state: State | None, now: float, after: Record | None) -> Recent:
    since = max(0.0, asked.since(now))
    return Recent(asked.tool, state, asked.tenant, asked.scope, since, after)


def _place(record: Record | None) -> tuple[float, str]:
    return (0.0, "") if record is None else place(record)


def _recent(store: Store, op: Recent, holds: Callable[[Record], bool], limit: int) -> FilteredPage:
    """What fits of the next records. A page ends only where a look of the store ended: between
    two records of one look, a store without an order by age could not go on.
    """
    found: list[Record] = []
    looked_at = 0
    while True:
        page = store.apply(op)
        new = [record for record in page.records if holds(record)]
        left = limit - len(found)
        if len(new) > left:
            op = structs.replace(op, limit=max(left, op.limit // 2))  # a shorter look
            continue
        found, looked_at = found + new, looked_at + len(page.records)
        full = len(found) == limit or looked_at >= LOOKED_AT
        if full or page.further is None or len(page.records) < op.limit:
            return FilteredPage(tuple(found), page.further, looked_at)
        op = structs.replace(op, after=page.further)


def _browsed(store: Store, op: Browse, holds: Callable[[Record], bool], limit: int) -> FilteredPage:
    records = store.apply(op)
    return _chosen(records, records[-1] if len(records) == op.limit else None, holds, limit)


def _chosen(
    records: Iterable[Record],
    further: Record | None,
    holds: Callable[[Record], bool],
    limit: int,
) -> FilteredPage:
    found: list[Record] = []
    looked_at = 0
    for record in records:
        if len(found) == limit:
            return FilteredPage(tuple(found), found[-1], looked_at)
        looked_at += 1
        if holds(record):
            found.append(record)
    return FilteredPage(tuple(found), further, looked_at)
