"""One request to the dashboard: who asks, about which guard, and how the answer is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Router

from effectonce import __version__
from effectonce._core.effect_ref import reference_of
from effectonce._core.keys import HOME_LENGTH
from effectonce._core.pages import Refer
from effectonce._core.record import Record
from effectonce._text import harmless
from effectonce.approvals._links import link_of
from effectonce.dashboard._access import Access
from effectonce.views.doubts import where_of
from effectonce.views.effects import now_of, reference
from effectonce.views.times import instant, iso, moment, span

if TYPE_CHECKING:
    from effectonce import Guard

UNCHANGED = "Nothing was changed."
_NAMED = re.compile(r"eff_([0-9a-f]{12})(?:_([0-9a-f]{8,12}))?")


class RefusedVisit(Exception):
    """A page that says why not: what happened, and what to do."""

    def __init__(
        self,
        status: int,
        title: str,
        text: str,
        advice: str = "",
        link: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(title)
        self.status, self.title, self.text = status, title, text
        self.advice, self.link = advice, link


def reason_of(form: Mapping[str, str]) -> str:
    """Why a person decides something."""
    reason = form.get("reason", "").strip()
    if not reason:
        text = "A reason stays on the record, for those who ask later."
        raise RefusedVisit(422, "Say why", text, f"{UNCHANGED} Go back, and give one.")
    return reason


class DashboardRequest:
    """What a page is made from."""

    def __init__(self, request: Request, guard: Guard, routes: Router) -> None:
        self.request, self.guard, self._routes = request, guard, routes
        self._access: Access | None = None
        self._links: dict[str, str] = {}  # by reference

    def let_in(self, access: Access | None, *, acting: bool) -> None:
        """Nothing is read or changed before this."""
        if access is None:
            text = "The operator of this dashboard has not given you access."
            raise RefusedVisit(403, "You may not look at this", text)
        self._access = access
        if acting and not access.acts:
            raise RefusedVisit(
                403,
                "This is read-only",
                "Nothing was changed: you may look, and not decide.",
                "Its operator decides that: effectonce serve --allow-actions, or"
                " Access(acts=True).",
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
        if "reference" in params:
            params["reference"] = self._links.get(params["reference"], params["reference"])
        under = self.request.scope.get("root_path", "")
        return f"{under}{self._routes.url_path_for(name, **params)}"

    def with_params(self, **changes: str | None) -> str:
        """This page with other parameters; None removes one."""
        known = {**self.request.query_params, **changes}
        return _query({name: value for name, value in known.items() if value is not None})

    def page(self, template: str, status: int = 200, /, **data: Any) -> Response:
        own = {"visit": self, "access": self._access, "href": self.href, "now": None}
        data = {**own, "live": self.asked("live") != "off", **data}
        return HTMLResponse(TEMPLATES.get_template(template).render(**data), status)

    def refused(self, refusal: RefusedVisit) -> Response:
        return self.page("refusal.html", refusal.status, refusal=refusal, section="")

    def go(self, name: str, /, query: Mapping[str, str], **params: Any) -> Response:
        """After something was changed: a page that can be loaded again."""
        return RedirectResponse(self.href(name, **params) + _query(query), 303)

    def runnable(self, command: str) -> str:
        """A command that people may copy, with the store that they are looking at."""
        return command + where_of(self.guard)

    def now(self) -> float:
        return now_of(self.guard)

    def shows(self, keys: Iterable[str]) -> None:
        """These are on the page: its links say how their keys begin, which saves a search."""
        for key in keys:
            reference, link = reference_of(key), link_of(key)
            # it stands for several
            self._links[reference] = link if self._links.get(reference, link) == link else reference

    def shows_run(self, reference: str, step: Record) -> None:
        """The run of a step lies beside it."""
        self._links[reference] = f"{reference}_{step.request.key[:HOME_LENGTH]}"

    def find(self, named: str) -> Record:
        """The effect of this reference, or of this link, if these eyes may see it."""
        read = _NAMED.fullmatch(named)
        found: tuple[Record, ...] = ()
        if read is not None:
            found = self.guard.store.apply(Refer(read[1], self.tenant, beginning=read[2] or ""))
        if not found:
            raise RefusedVisit(
                404,
                "There is no such effect",
                f"This store has no {named}.",
                "Is it in another store, or was it forgotten?",
            )
        if len(found) > 1:
            text = f"{named} stands for several effects here."
            raise RefusedVisit(
                409, "Several effects", text, f"Use {self.runnable('effectonce effect show KEY')}."
            )
        self._links[reference(found[0])] = named
        return found[0]


def _query(params: Mapping[str, str]) -> str:
    return f"?{urlencode(params, safe='', quote_via=quote)}"


def _shown(value: Any) -> Any:
    """What others wrote, without marks that turn later text around. All is escaped after this."""
    return harmless(value) if type(value) is str else value


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("effectonce.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {
        "span": span,
        "moment": moment,
        "instant": instant,
        "iso": iso,
        "words": lambda text: str(text).replace("_", " "),
    }
    made.globals |= {"version": __version__}
    return made


TEMPLATES = _templates()
