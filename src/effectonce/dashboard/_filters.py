"""The filter of a list: read from the address, shown as a form, and taken off piece by piece."""

from __future__ import annotations

from typing import NamedTuple

from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.views.filter_fields import (
    ALIASES,
    FIELDS,
    BadFilter,
    FilteredList,
    FilterField,
    ListFilter,
    read_filter,
)

ALWAYS = ("after", "live")  # what every list takes beside its filters


class FilterForm(NamedTuple):
    """What a template shows of a filter."""

    inputs: list[tuple[str, FilterField, str]]  # its name, what it is, what was given
    states: tuple[str, ...]
    kept: list[tuple[str, str]]  # what else the address says
    chips: list[tuple[str, str]]  # in words, and the address without it
    clear: str

    @property
    def filtered(self) -> bool:
        return bool(self.chips)


def filter_of(visit: DashboardRequest, listed: FilteredList, *also: str) -> ListFilter:
    """What the address asks for, of the tenant that may be looked at. *also* are its other
    parameters.
    """
    params = visit.request.query_params
    others = {*ALWAYS, *also}
    try:
        asked = read_filter(
            listed,
            {name: value for name, value in params.items() if name not in others},
            own=visit.tenant,
        )
    except BadFilter as error:
        path = visit.request.url.path
        raise RefusedVisit(
            400,
            "This filter cannot be understood",
            f"{str(error)[:1].upper()}{str(error)[1:]}.",
            "Nothing is shown, because everything would look like an answer.",
            (path, "See the list without a filter"),
        ) from None
    return asked if visit.tenant is None else asked._replace(tenant=visit.tenant)


def form_of(
    visit: DashboardRequest, listed: FilteredList, asked: ListFilter, *also: str
) -> FilterForm:
    """The form that asks for it, and a way to take each part of it off."""
    own = {"tenant"} if visit.tenant is not None else set[str]()
    given = {name: value for name, value in asked.given().items() if name not in own}
    names = [name for name in FIELDS if name in listed.fields and name not in own | {"group"}]
    beside = [*also, "live", *(["group"] if asked.group is not None else [])]
    nowhere: dict[str, str | None] = dict.fromkeys(
        (*listed.fields, *ALIASES, "after", "effect", "find"), None
    )
    words = asked.words()
    aliases = {known: alias for alias, known in ALIASES.items()}
    return FilterForm(
        inputs=[(name, FIELDS[name], given.get(name, "")) for name in names],
        states=listed.states,
        kept=[(name, visit.asked(name)) for name in beside if visit.asked(name)],
        chips=[
            (
                words[name],
                visit.with_params(**{name: None, aliases.get(name, name): None, "after": None}),
            )
            for name in given
        ],
        clear=visit.with_params(**nowhere),
    )
