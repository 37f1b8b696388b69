"""Which effects a list shows: the same options wherever there is one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from effectonce.cli._options import remembering, with_options
from effectonce.cli._settings import setting
from effectonce.views.times import since_when

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.ops import Search
    from effectonce._core.pages import Recent

F = TypeVar("F", bound=Callable[..., Any])
STATES = ("claimed", "dispatched", "completed", "failed", "in_doubt", "tombstone")


class Filters(NamedTuple):
    """What was asked for."""

    tool: str | None
    state: str | None
    scope: str | None
    since: float | None
    cursor: str | None

    def recent(self, guard: Guard, now: float) -> Recent:
        """As an op that looks at a bounded part of the store."""
        from effectonce._core.pages import Recent
        from effectonce.cli._find import find_one

        search = self._search(now, None)
        last = None if self.cursor is None else find_one(guard, self.cursor)
        return Recent(
            search.tool, search.state, search.tenant, search.scope, search.since, last, search.limit
        )

    def search(self, guard: Guard, now: float, limit: int | None = None) -> Search:
        """As an op that finds all of them."""
        from effectonce.cli._find import find_one

        search = self._search(now, limit)
        if self.cursor is None:
            return search
        last = find_one(guard, self.cursor)
        return after(search, last.created_at, last.request.key)

    def _search(self, now: float, limit: int | None) -> Search:
        from effectonce._core.ops import Search
        from effectonce._core.record import State

        since = 0.0 if self.since is None else now + self.since if self.since < 0 else self.since
        return Search(
            tool=self.tool,
            state=None if self.state is None else State(self.state),
            tenant=setting("tenant") or None,
            scope=self.scope,
            since=since,
            limit=setting("limit") if limit is None else limit,
        )


def after(search: Search, created_at: float, key: str) -> Search:
    """The page that follows."""
    from msgspec.structs import replace

    return replace(search, before=(created_at, key))


def filters(command: F) -> F:
    """Give a command the options of a list; it gets them as `filters`."""

    @functools.wraps(command)
    def with_filters(**given: Any) -> Any:
        asked = Filters(*(given.pop(name) for name in Filters._fields))
        return command(filters=asked, **given)

    text = "Only effects of this conversation, workflow or stream."
    return with_options(  # type: ignore[return-value]
        click.option("--tool", metavar="NAME", help="Only effects of this tool."),
        click.option("--state", type=StateChoice(STATES), help="Only effects in this state."),
        click.option("--scope", metavar="NAME", help=text),
        since_option("Only what was claimed since"),
        cursor_option("effect"),
    )(with_filters)


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


limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    metavar="N",
    expose_value=False,
    callback=remembering("limit"),
    help="How many at most.  [default: 50]",
)
