"""Which effects a list shows: the same options wherever there is one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from effectonce.cli._settings import remember, setting
from effectonce.cli._times import since_when

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.ops import Search
    from effectonce._core.pages import Recent

F = TypeVar("F", bound=Callable[..., Any])
STATES = ("claimed", "dispatched", "completed", "failed", "in_doubt", "tombstone")


class Filters:
    """What was asked for."""

    def __init__(
        self,
        tool: str | None,
        state: str | None,
        scope: str | None,
        since: float | None,
        cursor: str | None,
    ) -> None:
        self.tool, self.state, self.scope, self.since, self.cursor = (
            tool,
            state,
            scope,
            since,
            cursor,
        )

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
    def with_filters(
        *,
        tool: str | None,
        state: str | None,
        scope: str | None,
        since: float | None,
        cursor: str | None,
        **others: Any,
    ) -> Any:
        return command(filters=Filters(tool, state, scope, since, cursor), **others)

    for option in (
        click.option(
            "--cursor",
            metavar="EFFECT",
            help="Go on after this effect, the last one of the page before.",
        ),
        click.option(
            "--since",
            type=since_when,
            metavar="WHEN",
            help="Only what was claimed since: 30m, 2h, 7d, or a date in UTC.",
        ),
        click.option(
            "--scope", metavar="NAME", help="Only effects of this conversation, workflow or stream."
        ),
        click.option("--state", type=_StateChoice(STATES), help="Only effects in this state."),
        click.option("--tool", metavar="NAME", help="Only effects of this tool."),
    ):
        with_filters = option(with_filters)
    return with_filters  # type: ignore[return-value]


class _StateChoice(click.Choice[str]):
    """`in-doubt` and `in doubt` are what people type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).replace("-", "_").replace(" ", "_"), param, ctx)


def limit_option(command: F) -> F:
    """`--limit N`, or the setting."""

    def callback(ctx: click.Context, _: click.Parameter, value: int | None) -> None:
        if value is not None:
            remember(ctx, "limit", value)

    text = "How many at most.  [default: 50]"
    kind = click.IntRange(1, 100_000)
    return click.option(
        "--limit", type=kind, metavar="N", expose_value=False, callback=callback, help=text
    )(command)
