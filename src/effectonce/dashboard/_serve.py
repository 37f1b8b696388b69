"""The dashboard as a server of its own: which names it answers to, and who gets in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp

from effectonce.dashboard._access import Access, AccessOf
from effectonce.dashboard._app import app
from effectonce.dashboard._login import LoginLink
from effectonce.dashboard._security import SecurityMiddleware

if TYPE_CHECKING:
    from effectonce import Guard


def served(guard: Guard, access: AccessOf, hosts: Iterable[str]) -> ASGIApp:
    """For those whom *access* lets in. Refuses other host names: strange pages come by those."""
    inner = app(guard, access=access)
    return SecurityMiddleware(TrustedHostMiddleware(inner, [*hosts], www_redirect=False))


def served_here(
    guard: Guard, access: Access, hosts: Iterable[str], cookie: str, notify: Callable[[str], None]
) -> ASGIApp:
    """For a person who has the link; *notify* gets the token of each link."""
    login = LoginLink(access, cookie, notify)
    inner = login.around(app(guard, access=login.access))
    return SecurityMiddleware(TrustedHostMiddleware(inner, [*hosts], www_redirect=False))
