"""For a dashboard on one's own machine: a link that works once, then a session in that browser.

A person who can read the terminal gets in, and no other user of the machine. The first browser
that opens the link uses it up, so it is of no use to a person who finds it later in a history; a
new one is made at once, for another browser. Sessions end with this process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from effectonce.dashboard._access import Access
from effectonce.dashboard._request import RefusedVisit

LASTS_S = 12 * 3600.0


class LoginLink:
    """Hands out links, and knows who came through one."""

    def __init__(
        self,
        access: Access,
        cookie: str,
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._cookie, self._notify, self._clock = access, cookie, notify, clock
        self._sessions: dict[bytes, float] = {}  # a digest of each, and when it ends
        self._new_token()

    def _new_token(self) -> None:
        """The one that the next browser gets in with."""
        self._token = secrets.token_urlsafe(32)
        self._notify(self._token)

    def access(self, request: Request) -> Access:
        """What the dashboard asks for each request."""
        ends = self._sessions.get(_digest(request.cookies.get(self._cookie, "")), 0.0)
        if ends > self._clock():
            return self._access
        used = "token" in request.query_params
        raise RefusedVisit(
            401,
            "This link does not work any more" if used else "Who are you?",
            "A link works once, and a session ends after 12 hours, or with the server."
            if used
            else "This dashboard only lets in browsers that opened its link.",
            "Open the last link that effectonce serve has printed in its terminal.",
        )

    def around(self, app: ASGIApp) -> ASGIApp:
        """Let a browser with the link in: it gets a cookie, and the address without the token."""

        async def opened(scope: Scope, receive: Receive, send: Send) -> None:
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            given = query.get("token", [""])[0]
            if (
                scope["type"] != "http"
                or scope["method"] != "GET"
                or not secrets.compare_digest(given.encode(), self._token.encode())
            ):
                await app(scope, receive, send)
                return
            session = secrets.token_urlsafe(32)
            now = self._clock()
            self._sessions = {known: ends for known, ends in self._sessions.items() if ends > now}
            self._sessions[_digest(session)] = now + LASTS_S
            self._new_token()
            answer = RedirectResponse("/", 303)
            secure = scope["scheme"] == "https"
            answer.set_cookie(
                self._cookie, session, int(LASTS_S), secure=secure, httponly=True, samesite="lax"
            )
            await answer(scope, receive, send)

        return opened


def _digest(session: str) -> bytes:
    return hashlib.sha256(session.encode()).digest()
