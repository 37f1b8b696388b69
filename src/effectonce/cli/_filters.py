"""Which effects a list shows: the same options wherever there is one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from effectonce.cli._options import remembering, with_options
from effectonce.cli._settings import setting
from effectonce.views.filter_fields import (
    EFFECTS,
    NO_ERROR,
    BadFilter,
    FilteredList,
    ListFilter,
    read_filter,
)
from effectonce.views.times import since_when

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.ops import Search
    from effectonce._core.record import Record
    from effectonce.views.lists import FilteredPage

F = TypeVar("F", bound=Callable[..., Any])
_SINCE = "30m, 2h, 7d, or a date in UTC."
_HELP = {
    "tool": ("NAME", "Only {what} of this tool."),
    "state": (None, "Only {what} in this state."),
    "scope": ("NAME", "Only {what} of this conversation, workflow or stream."),
    "error": ("TYPE", "Only this type of the last error, such as TimeoutError; none: without one."),
    "bucket": ("NAME", "Only what the last error was taken for, such as transient."),
    "older_than": ("WHEN", f"Only what is older: {_SINCE}"),
    "newer_than": ("WHEN", f"Only what is newer: {_SINCE}"),
    "group": ("GROUP", "Only {what} of this group: see `groups`."),
}  # the tenant is a setting


class Filters(NamedTuple):
    """What was asked for, and where to go on."""

    asked: ListFilter
    cursor: str | None

    def page(self, guard: Guard, now: float) -> FilteredPage:
        """A bounded look at the store."""
        from effectonce.cli._find import find_one
        from effectonce.views.lists import effects_page

        last = None if self.cursor is None else find_one(guard, self.cursor)
        return effects_page(guard.store, self.asked, now, last, setting("limit"))

    def search(self, guard: Guard, now: float, limit: int) -> Search:
        """As an op that finds all of them, of what the store filters by."""
        from effectonce.cli._find import find_one

        search = self._search(now, limit)
        if self.cursor is None:
            return search
        last = find_one(guard, self.cursor)
        return after(search, last.created_at, last.request.key)

    def fits(self, record: Record, now: float) -> bool:
        """Does it fit what the store cannot filter by as well?"""
        from effectonce.views.filters import effect_facts, fits

        return fits(self.asked, effect_facts(record), now)

    def _search(self, now: float, limit: int) -> Search:
        from effectonce._core.ops import Search
        from effectonce._core.record import State

        asked = self.asked
        return Search(
            tool=asked.tool,
            state=None if asked.state is None else State(asked.state),
            tenant=asked.tenant,
            scope=asked.scope,
            since=asked.since(now),
            limit=limit,
        )


def after(search: Search, created_at: float, key: str) -> Search:
    """The page that follows."""
    from msgspec.structs import replace

    return replace(search, before=(created_at, key))


def filters(command: F, *, without: tuple[str, ...] = ()) -> F:
    """Give a command the options of a list of effects; it gets them as `filters`."""

    @functools.wraps(command)
    def with_filters(*, asked: ListFilter, cursor: str | None, **given: Any) -> Any:
        return command(filters=Filters(asked, cursor), **given)

    given = cursor_option("effect")(with_filters)
    return filter_options(EFFECTS, without=without)(given)  # type: ignore[return-value]


def filter_options(listed: FilteredList, *, without: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Give a command the options that a list is filtered by; it gets them as `asked`."""
    names = [name for name in _HELP if name in listed.fields and name not in without]

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_filter(**given: Any) -> Any:
            options = {name: given.pop(name) for name in names}
            return command(asked=read_options(listed, options), **given)

        return with_options(*(_filter_option(listed, name) for name in names))(with_filter)  # type: ignore[return-value]

    return decorate


def read_options(listed: FilteredList, options: Mapping[str, str | None]) -> ListFilter:
    """What options ask for, of the tenant in force."""
    given = {**options, "tenant": setting("tenant")}
    if given.get("error") == "":
        given["error"] = NO_ERROR
    try:
        return read_filter(listed, given)
    except BadFilter as error:
        raise click.UsageError(f"{error}.") from None


def _filter_option(listed: FilteredList, name: str) -> Callable[[F], F]:
    metavar, text = _HELP[name]
    flags = [f"--{name.replace('_', '-')}", name]
    if name == "newer_than":
        flags.insert(1, "--since")
    kind = StateChoice(listed.states) if name == "state" else None
    return click.option(*flags, type=kind, metavar=metavar, help=text.format(what=listed.name))


def since_option(words: str) -> Callable[[F], F]:
    text = f"{words}: 30m, 2h, 7d, or a date in UTC."
    return click.option("--since", type=as_option(since_when), metavar="WHEN", help=text)


def cursor_option(what: str) -> Callable[[F], F]:
    text = f"Go on after this {what}, the last one of the page before."
    return click.option("--cursor", metavar="EFFECT", help=text)


def as_option(read: Callable[[str], float]) -> Callable[[str], float]:
    """What reads a moment or a span that a person typed, as the type of an option."""

    def convert(text: str) -> float:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


class StateChoice(click.Choice[str]):
    """`in-doubt` and `in doubt` are what people type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).replace("-", "_").replace(" ", "_"), param, ctx)


class PerSecond(click.ParamType[float]):
    """A rate: `20/s`, `20`, or `600/m`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, float):
            return value
        number, _, unit = str(value).partition("/")
        try:
            per_s = float(number) / {"": 1, "s": 1, "m": 60, "h": 3600}[unit]
        except (ValueError, KeyError):
            return self.fail(f"{value!r} is no rate such as 20/s or 600/m.", param, ctx)
        if per_s != per_s:  # noqa: PLR0124
            return self.fail(f"{value} is not a number.", param, ctx)
        if not 0 < per_s < inf:
            return self.fail(f"{value} is not in the range x>0.", param, ctx)
        return per_s


def pace_option(default: float, *more: str) -> Callable[[F], F]:
    """How fast many effects are worked off."""
    text = f"At most this many a second, or N/m a minute.  [default: {default:g}/s]"
    return click.option(
        "--pace", *more, "pace", type=PerSecond(), default=default, metavar="N/s", help=text
    )


limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    metavar="N",
    expose_value=False,
    callback=remembering("limit"),
    help="How many at most.  [default: 50]",
)
