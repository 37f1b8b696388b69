"""What only a person can settle, by cause: same tool and reason are one line, with what to do."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce.recovery.causes import SharedCause, trouble_of
from effectonce.views.effects import may_resend, reference
from effectonce.views.times import iso
from effectonce.views.tools import prober_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record

SETTLED = {
    "confirmed": "happened",
    "refuted": "did not happen",
    "retried": "to be sent again by the next call",
    "already_settled": "already settled",
    "refused": "refused",
    "not_tried": "not tried",
}  # what came of one decision
ASK, AGAIN, LOOK = "ask its probe", "let it be sent again", "look downstream, then settle it"
_COMMANDS = {
    ASK: "effectonce indoubt reconcile --tool {tool} --app MODULE:GUARD",
    AGAIN: "effectonce indoubt retry {example} --reason TEXT",
    LOOK: "effectonce effect show {example}",
}


class DoubtGroup(NamedTuple):
    """Effects in doubt for one cause."""

    trouble: SharedCause
    effects: int
    since: float  # when the oldest one began
    newest: float
    example: str  # the reference of the oldest one
    action: str  # what to do next

    @property
    def tool(self) -> str:
        return self.trouble.tool

    @property
    def cause(self) -> str:
        return self.trouble.cause

    @property
    def group(self) -> str:
        return self.trouble.group

    @property
    def command(self) -> str:
        """The next action, as a command."""
        return _COMMANDS[self.action].format(tool=quote(self.tool), example=self.example)

    @property
    def settling(self) -> list[str]:
        """The commands that settle all of them at once, one of which is right."""
        if self.action == ASK:
            return [self.command]
        again = f"effectonce indoubt retry --group {self.group} --reason TEXT"
        return [
            *([again] if self.action == AGAIN else []),
            f"effectonce indoubt confirm --group {self.group} --result JSON --reason TEXT",
            f"effectonce indoubt refute --group {self.group} --reason TEXT",
        ]

    def command_at(self, where: str) -> str:
        """The same with the option that names the store, unless an app has its own."""
        return self.command if self.action == ASK else self.command + where

    def as_data(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "tool": self.tool,
            "tenant": self.trouble.tenant,
            "error": self.trouble.error or None,
            "cause": self.cause,
            "count": self.effects,
            "since": iso(self.since),
            "newest_at": iso(self.newest),
            "example": self.example,
            "action": self.action,
            "command": self.command,
        }


def grouped(guard: Guard, records: Iterable[Record], now: float) -> list[DoubtGroup]:
    """The largest group first; of equal ones, the oldest."""
    groups: dict[SharedCause, DoubtGroup] = {}
    for record in records:
        trouble, action = trouble_of(record), _next(guard, record, now)
        since, ref = record.decided_at, reference(record)
        known = groups.get(trouble, DoubtGroup(trouble, 0, since, since, ref, action))
        if since < known.since:
            known = known._replace(since=since, example=ref)
        # what may be sent again is the next action only if all of them may
        action = LOOK if {action, known.action} == {AGAIN, LOOK} else known.action
        newest = max(since, known.newest)
        groups[trouble] = known._replace(effects=known.effects + 1, newest=newest, action=action)
    return sorted(groups.values(), key=lambda group: (-group.effects, group.since))


def _next(guard: Guard, record: Record, now: float) -> str:
    if prober_of(guard, record) is not None:
        return ASK
    return AGAIN if may_resend(record, now) else LOOK


def where_of(guard: Guard) -> str:
    """The option that names the store of this guard to a command, where it can be named."""
    where = guard._house.where  # noqa: SLF001  # who shows it stands above the guard
    return where if where.startswith(" --store ") else ""
