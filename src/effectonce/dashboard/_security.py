"""What every request passes: no other site acts through a browser; pages are not framed or kept.

Browsers report themselves who may act: `Sec-Fetch-Site` says where a request comes from, and a
page cannot forge it. Browsers too old for it send `Origin`. A client that sends neither is no
browser: it may act only with an `Authorization` of its own, and without cookies, which a browser
would have added by itself. No token is needed in forms.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # with none at all, a browser would hide the Origin of our own forms, too
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class SecurityMiddleware:
    """Around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        why = "" if scope["method"] in SAFE else cross_origin(Headers(scope=scope), scope["scheme"])
        answer = PlainTextResponse(f"Nothing was changed: {why}\n", 403) if why else self._app
        await answer(scope, receive, shielded)


def cross_origin(headers: Headers, scheme: str) -> str:
    """Why a request that changes something is refused; "" if it may pass."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site in ("same-origin", "none"):
        return ""
    if site is not None:
        return f"this came from another site (Sec-Fetch-Site: {site})."
    if origin is not None:
        mine = f"{scheme}://{headers.get('host', '')}"
        return "" if origin == mine else f"this came from another site ({origin}), not from {mine}."
    if "authorization" in headers and "cookie" not in headers:
        return ""
    return (
        "without Sec-Fetch-Site or Origin this is no browser; other clients send Authorization, and"
        " no cookie."
    )
