"""What only a person can settle, by cause: same tool and reason are one line, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce.views.effects import may_resend, reference
from effectonce.views.times import iso
from effectonce.views.tools import prober_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record

# the error of an attempt stands behind the reason, with a message that differs each time
_ERROR = re.compile(r" \((\w[\w.]*)(?:: .*)?\)(?=;|\Z)", re.DOTALL)
ASK, AGAIN, LOOK = "ask its probe", "let it be sent again", "look downstream, then settle it"
_COMMANDS = {
    ASK: "effectonce indoubt reconcile --tool {tool} --app MODULE:GUARD",
    AGAIN: "effectonce indoubt retry {example} --reason TEXT",
    LOOK: "effectonce effect show {example}",
}


class DoubtGroup(NamedTuple):
    """Effects in doubt for one cause."""

    tool: str
    cause: str
    effects: int
    since: float  # when the oldest one began
    example: str  # the reference of the oldest one
    action: str  # what to do next

    @property
    def command(self) -> str:
        """The next action, as a command."""
        from shlex import quote  # noqa: PLC0415

        return _COMMANDS[self.action].format(tool=quote(self.tool), example=self.example)

    def command_at(self, where: str) -> str:
        """The same with the option that names the store, unless an app has its own."""
        return self.command if self.action == ASK else self.command + where

    def as_data(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "cause": self.cause,
            "count": self.effects,
            "since": iso(self.since),
            "example": self.example,
            "action": self.action,
            "command": self.command,
        }


def cause_of(record: Record) -> str:
    """Its reason, without what only this one error said."""
    return _ERROR.sub(lambda error: f" ({error[1]})", record.reason)


def grouped(guard: Guard, records: Iterable[Record], now: float) -> list[DoubtGroup]:
    """The largest group first; of equal ones, the oldest."""
    groups: dict[tuple[str, str, str], DoubtGroup] = {}
    for record in records:
        tool, cause, action = record.request.terms.tool, cause_of(record), _next(guard, record, now)
        since, ref = record.decided_at, reference(record)
        new = DoubtGroup(tool, cause, 0, since, ref, action)
        known = groups.get((tool, cause, action), new)
        if since < known.since:
            known = known._replace(since=since, example=ref)
        groups[tool, cause, action] = known._replace(effects=known.effects + 1)
    return sorted(groups.values(), key=lambda group: (-group.effects, group.since))


def _next(guard: Guard, record: Record, now: float) -> str:
    if prober_of(guard, record) is not None:
        return ASK
    return AGAIN if may_resend(record, now) else LOOK


def where_of(guard: Guard) -> str:
    """The option that names the store of this guard to a command, where it can be named."""
    where = guard._house.where  # noqa: SLF001  # who shows it stands above the guard
    return where if where.startswith(" --store ") else ""
