"""One request to the dashboard: who asks, about which guard, and how the answer is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Router

from effectonce import __version__
from effectonce._core.ops import Find
from effectonce._core.pages import LOOKED_AT, Refer
from effectonce._core.records import Record
from effectonce._shown.effects import now_of, reference
from effectonce._shown.times import iso, moment, span
from effectonce._text import harmless
from effectonce.server._access import Access
from effectonce.server._seen import seen_of

if TYPE_CHECKING:
    from effectonce import Guard

_REFERENCE = re.compile(r"eff_([0-9a-f]{12})")


class Refusal(Exception):
    """A page that says why not: what happened, and what to do."""

    def __init__(self, status: int, title: str, text: str, advice: str = "", link: tuple[str, str] | None = None) -> None:
        super().__init__(title)
        self.status, self.title, self.text, self.advice, self.link = status, title, text, advice, link


class Visit:
    """What a page is made from."""

    def __init__(self, request: Request, guard: Guard, routes: Router) -> None:
        self.request, self.guard, self._routes = request, guard, routes
        self._access: Access | None = None

    def let_in(self, access: Access | None, *, acting: bool) -> None:
        """Nothing is read or changed for anybody before this."""
        if access is None:
            raise Refusal(403, "You may not look at this", "Whoever runs this has not given you access.")
        self._access = access
        if acting and not access.acts:
            raise Refusal(
                403,
                "This is read-only",
                "Nothing was changed: you may look, and not decide.",
                "Whoever runs it decides that: effectonce serve --allow-actions, or Access(acts=True).",
            )

    @property
    def access(self) -> Access:
        assert self._access is not None
        return self._access

    @property
    def tenant(self) -> str | None:
        return self.access.tenant

    def asked(self, name: str) -> str:
        """A parameter of the URL."""
        return self.request.query_params.get(name, "").strip()

    async def form(self) -> dict[str, str]:
        """What was sent with it."""
        return {name: str(value) for name, value in (await self.request.form()).items()}

    def href(self, name: str, /, **params: Any) -> str:
        """Where a page is, whatever this application is mounted under."""
        return str(self.request.scope.get("root_path", "")) + str(self._routes.url_path_for(name, **params))

    def with_params(self, **changes: str | None) -> str:
        """This page with other parameters; None removes one."""
        known = {**self.request.query_params, **changes}
        return "?" + "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in known.items() if value is not None)

    def page(self, template: str, status: int = 200, /, **data: Any) -> Response:
        now = data.pop("now", None)
        data |= {"visit": self, "access": self._access, "href": self.href, "now": now, "live": self.asked("live") == "on"}
        return HTMLResponse(TEMPLATES.get_template(template).render(**data), status)

    def refused(self, refusal: Refusal) -> Response:
        return self.page("refusal.html", refusal.status, refusal=refusal, section="")

    def go(self, name: str, /, query: Mapping[str, str] | None = None, **params: Any) -> Response:
        """After something was changed: a page that can be loaded again."""
        wanted = "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in (query or {}).items())
        return RedirectResponse(self.href(name, **params) + (f"?{wanted}" if wanted else ""), 303)

    def now(self) -> float:
        return now_of(self.guard)

    def saw(self, records: Iterable[Record]) -> None:
        """These are on the page: a link to one of them is followed without a search."""
        seen_of(self.guard).add(records)

    def find(self, named: str) -> Record:
        """The effect of this reference, if these eyes may see it."""
        known = self.guard.store.apply(Find(key)) if (key := seen_of(self.guard).key(named)) else None
        if known is not None and self.tenant in (None, known.request.tenant):
            return known
        read = _REFERENCE.fullmatch(named)
        found = () if read is None else self.guard.store.apply(Refer(read[1], self.tenant))
        if not found:
            where = f"among those that wait, failed or are in doubt, and the {LOOKED_AT:,} newest"
            raise Refusal(
                404,
                "There is no such effect",
                f"This store has no {named} {where}.",
                f"An older one: effectonce effect show {named}. Or is it in another store, or was it forgotten?",
            )
        if len(found) > 1:
            raise Refusal(
                409, "Several effects", f"{named} stands for several effects here.", "Use effectonce effect show KEY."
            )
        return found[0]


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _shown(value: Any) -> Any:
    """What others wrote, without what turns the text after it around. Escaping comes after this, for everything."""
    return harmless(value) if type(value) is str else value


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("effectonce.server"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"span": span, "moment": moment, "iso": iso, "words": lambda text: str(text).replace("_", " ")}
    made.globals |= {"version": __version__, "reference": reference}
    return made


TEMPLATES = _templates()
