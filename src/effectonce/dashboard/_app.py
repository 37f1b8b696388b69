"""The application: its pages, and what each request passes before it gets one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from effectonce.dashboard import _actions, _fallback, _links, _pages, _playground
from effectonce.dashboard._access import AccessOf, access_of
from effectonce.dashboard._live import LiveFeed
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.dashboard._security import SecurityMiddleware
from effectonce.errors import ContractViolation, StoreUnavailable

if TYPE_CHECKING:
    from effectonce import Guard

Act: TypeAlias = Callable[[DashboardRequest], Awaitable[Response]]  # on the event loop

NOT_HERE = RefusedVisit(404, "There is no such page", "The address leads nowhere.")
WRONG_WAY = RefusedVisit(
    405, "That cannot be done here", "Nothing was changed: this page takes no such request."
)


def app(guard: Guard, *, access: AccessOf) -> Starlette:
    """The dashboard of a guard, to be run alone or mounted under any prefix.

    *access* says for each request who asks and what they may do; None: they may not even look.
    It may be an `async def`. It is called on the event loop, so it should not block. You take
    care of TLS and of the names that the server answers to.
    """
    if not callable(access):
        raise ContractViolation(
            "access= is a function: it gets a request, and returns an Access, or None for no access"
        )

    def route(path: str, name: str, act: Act, *, acting: bool = False) -> Route:
        async def endpoint(request: Request) -> Response:
            visit = DashboardRequest(request, guard, made.router)
            return await _answer(visit, access, act, acting=acting)

        return Route(path, endpoint, name=name, methods=["POST"] if acting else None)

    def by_link(path: str, name: str, act: Act, methods: tuple[str, ...]) -> Route:
        """A page that its own signature lets in."""

        async def endpoint(request: Request) -> Response:
            visit = DashboardRequest(request, guard, made.router)
            return await _refusals_of(visit, act(visit))

        return Route(path, endpoint, name=name, methods=list(methods))

    async def lost(request: Request, error: Exception) -> Response:
        wrong_way = isinstance(error, HTTPException) and error.status_code == WRONG_WAY.status
        refusal = WRONG_WAY if wrong_way else NOT_HERE
        return DashboardRequest(request, guard, made.router).refused(refusal)

    pages = (*_pages.PAGES, *_actions.LOOKS)
    made = Starlette(
        routes=[
            *(route(path, name, _in_a_thread(page)) for path, name, page in pages),
            *(route(path, name, play) for path, name, play in _playground.PLAYGROUND),
            route("/live", "live", LiveFeed(guard, access).stream),
            *(route(path, name, play) for path, name, play in _fallback.FALLBACK),
            *(by_link(*link) for link in _links.LINKS),
            *(route(path, name, act, acting=True) for path, name, act in _actions.ACTS),
            Mount("/static", _Static(packages=[("effectonce.dashboard", "static")]), name="static"),
        ],
        middleware=[Middleware(SecurityMiddleware)],
        exception_handlers={404: lost, 405: lost},
    )
    return made


def _in_a_thread(page: Callable[[DashboardRequest], Response]) -> Act:
    """A page asks the store."""
    return lambda visit: run_in_threadpool(page, visit)


class _Static(StaticFiles):
    """Files of ours. A browser may keep them, and asks whether they changed."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response


async def _answer(visit: DashboardRequest, access: AccessOf, act: Act, *, acting: bool) -> Response:
    async def answer() -> Response:
        visit.let_in(await access_of(access, visit.request), acting=acting)
        return await act(visit)

    return await _refusals_of(visit, answer())


async def _refusals_of(visit: DashboardRequest, answer: Awaitable[Response]) -> Response:
    """The answer, or the page that says why not."""
    try:
        return await answer
    except RefusedVisit as refusal:
        return visit.refused(refusal)
    except StoreUnavailable as error:
        return visit.refused(
            RefusedVisit(503, "The store cannot be reached", str(error), error.corrective_action)
        )
    except ContractViolation as error:
        text = f"Nothing was changed: {error}."
        return visit.refused(RefusedVisit(409, "That was refused", text))
