"""`effectonce tail`: follow new effects, and what becomes of those without an outcome."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import guard_here
from effectonce.cli._console import console, in_markup, say
from effectonce.cli._filters import Filters, after, filters
from effectonce.cli._options import Number, effect_options, value_option
from effectonce.cli._output import for_machines, print_flat, print_line, shape
from effectonce.views.times import iso, moment

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.ops import Search
    from effectonce._core.record import Record

PAGE, WATCHED = 200, 500  # how many open effects are looked at in each round


# a change is shown whatever became of it, and nothing that is new is old
@click.command()
@partial(filters, without=("error", "older_than"))
@value_option("--lines", 10, click.IntRange(0, 1000), "Begin with the last N.", "N")
@value_option("--interval", 2.0, Number(0.01), "How often to look.", "SECONDS")
@click.option("--once", is_flag=True, help="Show the last ones and end.")
@effect_options
def tail(*, filters: Filters, lines: int, interval: float, once: bool) -> None:
    r"""Follow effects as they are claimed, sent and decided.

    Looks into the store every few seconds. A change that comes and goes between two looks is not
    seen; the audit has those. Each look reads the whole store unless --since is recent, so do
    not leave it running on a large one. Ctrl-C ends it.

    \b
    Examples:
      effectonce tail --tool refund
      effectonce tail --since 1h --json | jq 'select(.state == "in_doubt")'
    """
    with guard_here() as guard:
        follower = Follower(guard, filters)
        for record in follower.begin(lines):
            _show(record, follower.now)
        if once:
            return
        if not for_machines():
            say("Following. Ctrl-C ends it.")
        pause = threading.Event()
        while not pause.wait(interval):
            for record in follower.changed():
                _show(record, follower.now)


class Follower:
    """What was seen, and what is new since."""

    def __init__(self, guard: Guard, filters: Filters) -> None:
        from effectonce.views.effects import now_of

        self._guard = guard
        self.now = now_of(guard)
        self._search = filters.search(guard, self.now, PAGE)
        self._open: dict[str, tuple[Any, ...]] = {}  # key -> how it was
        self._newest = (0.0, "")

    def begin(self, lines: int) -> list[Record]:
        """The last ones. Open ones among them, and older ones, are watched from now on."""
        from effectonce._core.ops import Browse
        from effectonce._core.record import State

        newest = self._guard.store.apply(self._search)
        if newest:
            self._newest = (newest[0].created_at, newest[0].request.key)
        open_ones = (
            record
            for state in (State.IN_DOUBT, State.DISPATCHED, State.CLAIMED)
            for record in self._guard.store.apply(Browse(state, self._search.tenant, limit=WATCHED))
        )
        for record in (*open_ones, *newest):
            if self._search.fits(record):
                self._watch(record)
        return list(reversed(newest[:lines]))

    def changed(self) -> list[Record]:
        """What is new or different since the last look, oldest first."""
        from effectonce._core.ops import Find
        from effectonce.views.effects import now_of

        self.now = now_of(self._guard)
        known = list(self._open.items())
        found = [(self._guard.store.apply(Find(key)), mark) for key, mark in known]
        different = [r for r, mark in found if r is not None and _mark(r) != mark]
        new = self._new()
        for (key, _), (record, _) in zip(known, found, strict=True):
            if record is None:
                del self._open[key]
        for record in (*different, *new):
            self._watch(record)
        return [*different, *new]

    def _new(self) -> list[Record]:
        from msgspec.structs import replace

        search: Search = replace(self._search, since=max(self._search.since, self._newest[0]))
        found: list[Record] = []
        while True:
            page = self._guard.store.apply(search)
            fresh = [
                r
                for r in page
                if (r.created_at, r.request.key) > self._newest and r.request.key not in self._open
            ]
            found += fresh
            if len(page) < PAGE or len(fresh) < len(page):
                break
            search = after(search, page[-1].created_at, page[-1].request.key)
        if found:
            self._newest = (found[0].created_at, found[0].request.key)
        return found[::-1]

    def _watch(self, record: Record) -> None:
        from effectonce._core.record import TERMINAL

        if record.state in TERMINAL:
            self._open.pop(record.request.key, None)
        elif record.request.key in self._open or len(self._open) < WATCHED:
            self._open[record.request.key] = _mark(record)


def _mark(record: Record) -> tuple[Any, ...]:
    return record.state, record.epoch, record.sends, record.decided_at, len(record.evidence)


def _show(record: Record, now: float) -> None:
    from effectonce.cli._effects import STYLES
    from effectonce.views.effects import as_data, place_of, reference, shown_state

    if for_machines():
        print_line(as_data(record, now), "effect")
        return
    at = max(record.created_at, record.first_dispatch_at, record.decided_at)
    request, stands = record.request, shown_state(record, now)
    if shape() == "plain":
        about = (reference(record), request.terms.tool, record.state)
        print_flat((iso(at), *about, request.scope, request.step))
        return
    state = stands.replace("_", " ")
    shown = f"{reference(record)}  [{STYLES[stands]}]{state:<10}[/]"
    where, tool = in_markup(place_of(record)), in_markup(request.terms.tool)
    line = f"[dim]{moment(at)}[/]  {shown}  {tool}  [dim]{where}[/]"
    console(width_max=sys.maxsize).print(line, no_wrap=True, overflow="ellipsis", crop=True)
