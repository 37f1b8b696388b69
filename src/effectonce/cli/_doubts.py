"""What is in doubt, for the command line: one by one, and by group."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from effectonce.cli._app import guard_here
from effectonce.cli._commands import runnable
from effectonce.cli._console import say
from effectonce.cli._effects import SENDS
from effectonce.cli._output import (
    EFFECT,
    TOOL,
    WHERE,
    Column,
    field,
    for_machines,
    on_a_line,
    print_rows,
    shape,
    since,
    to_width,
)
from effectonce.cli._settings import setting
from effectonce.views.doubts import DoubtGroup, grouped
from effectonce.views.effects import as_data, now_of
from effectonce.views.filter_fields import ListFilter
from effectonce.views.lists import doubts_page

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record

PAGE = 100
NAME_MAX = 24  # columns, of a tool before what to do next: the table has more of it


def print_groups(
    asked: ListFilter, named: Column, tell: Callable[[DoubtGroup, dict[str, Any]], None]
) -> None:
    """Groups of effects in doubt, as a table, and what *tell* says below it."""
    with guard_here() as guard:
        now = now_of(guard)
        found = grouped(guard, doubts(guard, asked, now), now)
    limit = setting("limit")
    items = [
        {
            **group.as_data(),
            "command": runnable(group.command),
            "settle": [runnable(command) for command in group.settling],
            "_for_s": now - group.since,
        }
        for group in found[:limit]
    ]
    columns = [*_GROUPS, named]
    if for_machines() or shape() == "plain":
        columns.append(field("NEXT", "command", whole=True))  # on a screen it would be cut off
    count = sum(group.effects for group in found)
    print_rows(items, columns, schema="group", empty=none_of(asked), in_doubt=count)
    if for_machines():
        return
    for group, item in zip(found, items, strict=False):
        tell(group, item)
    if len(found) > limit:
        say("There are more: give a higher --limit.")


def short_tool(item: dict[str, Any]) -> str:
    return to_width(on_a_line(item["tool"]), NAME_MAX).rstrip()


_GROUPS = [
    Column("EFFECTS", lambda item: f"{item['count']:,}", right=True, whole=True),
    TOOL,
    field("CAUSE", "cause"),
    since("SINCE", "_for_s", "since"),
]


def none_of(asked: ListFilter) -> str:
    filtered = [words for name, words in asked.words().items() if name != "tenant"]
    if asked == ListFilter(tool=asked.tool, tenant=asked.tenant) and asked.tool:
        return f"Nothing of {asked.tool} is in doubt."
    return f"Nothing in doubt fits: {', '.join(filtered)}." if filtered else "Nothing is in doubt."


def list_each(asked: ListFilter) -> None:
    """Groups of effects in doubt, as a table, and what *tell* says below it."""
    with guard_here() as guard:
        now, limit = now_of(guard), setting("limit")
        records = list(itertools.islice(doubts(guard, asked, now), limit + 1))
    more = len(records) > limit
    records = records[:limit]
    items = [{**as_data(record, now), "_for_s": now - record.decided_at} for record in records]
    doubt, reason = since("IN DOUBT FOR", "_for_s", "decided_at"), field("REASON", "reason")
    columns = [EFFECT, TOOL, WHERE, SENDS, doubt, reason]
    print_rows(items, columns, schema="effect", empty=none_of(asked))
    if more and not for_machines():
        say("There are more: give a higher --limit.")


def doubts(guard: Guard, asked: ListFilter, now: float) -> Iterator[Record]:
    """What is in doubt and fits, oldest first, page by page."""
    last: Record | None = None
    while True:
        page = doubts_page(guard.store, asked, now, last, PAGE)
        yield from page.records
        if page.further is None:
            return
        last = page.further
