"""What a list can be filtered by: the same words in a URL, in options and in sentences.

A filter is read here, checked here and described here, for pages and for commands alike. What
is not understood is an error with what is allowed: a filter that was ignored would show
everything, and look like an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce.views.times import since_when, span_s

if TYPE_CHECKING:
    from effectonce.dead_letters import Wanted

NO_ERROR = "none"  # `error=none`: no error was recorded
STATES = ("claimed", "dispatched", "completed", "failed", "in_doubt", "tombstone")
LETTER_STATES = ("never_started", "in_doubt", "failed")
RUN_STATES = ("open", "completed", "failed")
_GROUP = re.compile(r"g_[0-9a-f]{10}")


class BadFilter(ValueError):
    """A filter that cannot be understood: what was given, and what is allowed."""


class FilterField(NamedTuple):
    """One thing to filter by."""

    label: str  # of an input
    hint: str  # what may be given
    words: str  # before its value, in a sentence


FIELDS = {
    "tool": FilterField("Tool", "its name", "tool"),
    "tenant": FilterField("Tenant", "its name", "tenant"),
    "state": FilterField("State", "", "state"),
    "error": FilterField("Error", "its type, or none", "error"),
    "bucket": FilterField("Taken for", "transient", "taken for"),
    "scope": FilterField("Scope", "conversation", "scope"),
    "older_than": FilterField("Older than", "2h, 7d, or a date", "older than"),
    "newer_than": FilterField("Newer than", "2h, 7d, or a date", "newer than"),
    "group": FilterField("Group", "g_…", "group"),
}
ALIASES = {"since": "newer_than"}


class FilteredList(NamedTuple):
    """A list, and what it can be filtered by."""

    name: str  # of what is on it
    fields: tuple[str, ...]
    states: tuple[str, ...] = ()


_COMMON = ("tool", "tenant", "error", "scope", "older_than", "newer_than")
EFFECTS = FilteredList("effects", (*_COMMON, "state"), STATES)
IN_DOUBT = FilteredList("effects in doubt", (*_COMMON, "group"))
LETTERS = FilteredList("dead letters", (*_COMMON, "state", "bucket", "group"), LETTER_STATES)
RUNS = FilteredList("runs", (*_COMMON, "state"), (*RUN_STATES, "all"))
APPROVALS = FilteredList(
    "calls that wait",
    ("tool", "tenant", "scope", "older_than", "newer_than", "state"),
    ("waiting", "expired"),
)
ALLOWANCES = FilteredList("accounts", ("tool", "tenant"))


class ListFilter(NamedTuple):
    """What was asked for. Without a value, a field is not filtered by."""

    tool: str | None = None
    tenant: str | None = None
    state: str | None = None
    error: str | None = None  # "": no error was recorded
    bucket: str | None = None
    scope: str | None = None
    older_than: str | None = None  # as it was given: a span, or a date
    newer_than: str | None = None
    group: str | None = None

    def given(self) -> dict[str, str]:
        """As parameters of a URL. Read again, they are the same filter."""
        named = self._asdict()
        if self.error == "":
            named["error"] = NO_ERROR
        return {name: value for name, value in named.items() if value is not None}

    def words(self) -> dict[str, str]:
        """Each filter in words, by its name."""
        return {
            name: f"{FIELDS[name].words} {value.replace('_', ' ') if name == 'state' else value}"
            for name, value in self.given().items()
        }

    def options(self) -> str:
        """As options of a command, each with a space before it."""
        from shlex import quote  # noqa: PLC0415  # a look at the help does not need it

        flags = (
            f" --{name.replace('_', '-')} {quote(value)}" for name, value in self.given().items()
        )
        return "".join(flags)

    def since(self, now: float) -> float:
        """What is older than this moment does not fit; 0: whatever its age."""
        return 0.0 if self.newer_than is None else _moment(self.newer_than, now)

    def until(self, now: float) -> float:
        """What is younger than this moment does not fit."""
        return inf if self.older_than is None else _moment(self.older_than, now)

    def wanted(self, now: float) -> Wanted:
        """The same for dead letters."""
        named = ("tool", "tenant", "state", "error", "bucket", "scope", "group")
        values = {name: getattr(self, name) for name in named}
        chosen: Any = {name: value for name, value in values.items() if value is not None}
        wanted: Wanted = chosen
        if self.older_than is not None:
            wanted["older_than_s"] = now - self.until(now)
        if self.newer_than is not None:
            wanted["newer_than_s"] = now - self.since(now)
        return wanted


def _moment(text: str, now: float) -> float:
    """A span is so long ago, and a date is itself."""
    try:
        return now - span_s(text)
    except ValueError:
        return since_when(text)


# ---------------------------------------------------------------- reading


def read_filter(
    listed: FilteredList, given: Mapping[str, str | None], *, own: str | None = None
) -> ListFilter:
    """What was asked for, checked. *own* is the only tenant that may be looked at.

    Raises `BadFilter`. An empty text filters nothing: so does an empty field of a form.
    """
    asked: dict[str, str] = {}
    for name, value in given.items():
        if value is None or not value.strip():
            continue
        known = ALIASES.get(name, name)
        if known not in listed.fields:
            named = ", ".join(sorted(listed.fields))
            raise BadFilter(f"{listed.name} have no filter {name!r}. There are {named}")
        asked[known] = _checked(listed, known, value.strip())
    if own is not None and asked.get("tenant", own) != own:
        raise BadFilter(f"the tenant {asked['tenant']!r} is not yours to look at: {own!r} is")
    return ListFilter(**asked)


def _checked(listed: FilteredList, name: str, value: str) -> str:
    match name:
        case "state":
            value = value.replace("-", "_").replace(" ", "_")
            if value not in listed.states:
                allowed = ", ".join(state.replace("_", "-") for state in listed.states)
                raise BadFilter(f"{value!r} is no state of {listed.name}. There are {allowed}")
        case "older_than" | "newer_than":
            try:
                since_when(value)
            except (ValueError, OverflowError) as error:
                raise BadFilter(str(error)) from None
        case "group":
            if _GROUP.fullmatch(value) is None:
                raise BadFilter(f"{value!r} is no group: its name is g_ and 10 digits")
        case "error" if value == NO_ERROR:
            return ""
        case _:
            pass
    return value
