"""Pages that keep themselves up to date: a stream of "something changed" for each open page.

A stream says no more than that, and the page then asks for itself again. However many pages are
open, the store is asked for one tenant at most every two seconds, and less often where that takes
long. A stream ends with its login, with the server, and after a minute: then the browser opens
the next one.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from effectonce._core.ops import Browse
from effectonce._core.pages import Recent
from effectonce._core.record import State
from effectonce.dashboard._access import AccessOf, access_of
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.errors import StoreUnavailable

if TYPE_CHECKING:
    from effectonce import Guard

EVERY_S = 2.0  # between two looks
RESTS = 20  # times as long as a look took
AT_LEAST_EVERY_S = 30.0  # for what a look does not see, such as breakers
BEAT_S = 15.0  # a proxy closes what is silent for long; and is the login still good?
LASTS_S = 60.0
CONNECTIONS_MAX = 64  # of one process
LOOKED_AT = 50  # of the newest effects, and of the oldest doubts
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
CHANGED = "event: changed\nid: {}\ndata: \n\n"


class WatchedTenant:
    """What was seen last of a tenant's effects."""

    def __init__(self) -> None:
        self.version, self.due, self.asking = "", -1e300, False


class LiveFeed:
    """The open pages of one dashboard."""

    def __init__(self, guard: Guard, access: AccessOf) -> None:
        self._guard, self._access, self.ended = guard, access, False
        _FEEDS.add(self)
        self._tenants: dict[str | None, WatchedTenant] = {}
        self._open: dict[str | None, int] = {}

    async def version(self, tenant: str | None) -> str:
        """What changes with the effects. While one page has it asked, the others get the last."""
        watched = self._tenants.setdefault(tenant, WatchedTenant())
        if not watched.asking and time.monotonic() >= watched.due:
            watched.asking, began = True, time.monotonic()
            try:
                watched.version = await run_in_threadpool(version_of, self._guard, tenant)
            except StoreUnavailable:
                pass  # nothing is known to have changed
            finally:
                ended = time.monotonic()
                watched.asking = False
                watched.due = ended + max(EVERY_S, RESTS * (ended - began))
        return watched.version

    async def stream(self, visit: DashboardRequest) -> Response:
        """For one page, until it is closed."""
        if sum(self._open.values()) >= CONNECTIONS_MAX:
            raise RefusedVisit(
                503, "Too many pages are kept up to date", "Look again by hand, or close one."
            )
        seen = visit.request.headers.get("last-event-id", "")
        return StreamingResponse(
            self._events(visit, seen), media_type="text/event-stream", headers=HEADERS
        )

    async def _events(self, visit: DashboardRequest, seen: str) -> AsyncIterator[str]:
        tenant = visit.tenant
        self._open[tenant] = self._open.get(tenant, 0) + 1
        try:
            async for event in self._changes(visit, seen):
                yield event
        finally:
            self._open[tenant] -= 1
            if self._open[tenant] == 0:
                del self._open[tenant]
                self._tenants.pop(tenant, None)

    async def _changes(self, visit: DashboardRequest, seen: str) -> AsyncIterator[str]:
        version = await self.version(visit.tenant)
        began = said = beat = time.monotonic()
        seen = seen or version
        yield f"retry: 1000\nid: {seen}\n\n"
        while (now := time.monotonic()) < began + LASTS_S and not self.ended:
            if now >= beat + BEAT_S and not await self._may_look(visit):
                yield CHANGED.format(version)  # the page asks for itself, and says why not
                return
            if version != seen or now >= said + AT_LEAST_EVERY_S:
                seen, said, beat = version, now, now
                yield CHANGED.format(version)
            elif now >= beat + BEAT_S:
                beat = now
                yield ": still here\n\n"
            await asyncio.sleep(EVERY_S)
            version = await self.version(visit.tenant)

    async def _may_look(self, visit: DashboardRequest) -> bool:
        try:
            return await access_of(self._access, visit.request) == visit.access
        except RefusedVisit:
            return False


_FEEDS: weakref.WeakSet[LiveFeed] = weakref.WeakSet()


def end_streams() -> None:
    """The server is to end, and waits for every answer."""
    for feed in list(_FEEDS):
        feed.ended = True


def version_of(guard: Guard, tenant: str | None) -> str:
    """A digest of the newest effects and the oldest doubts, as they stand."""
    newest = guard.store.apply(Recent(tenant=tenant, limit=LOOKED_AT)).records
    doubts = guard.store.apply(Browse(State.IN_DOUBT, tenant, limit=LOOKED_AT))
    stands = [
        (r.request.key, str(r.state), r.epoch, r.sends, r.decided_at, len(r.evidence))
        for r in (*newest, *doubts)
    ]
    return hashlib.sha256(repr(stands).encode()).hexdigest()[:16]
