"""Calls that wait for a person: as data, and what is new about one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce._core.pages import Recent
from effectonce._core.record import Record, State
from effectonce.views.effects import arguments_of, reference
from effectonce.views.text import dumps
from effectonce.views.times import iso

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce.approvals import Wish

UNREADABLE = "they cannot be read here"
_NONE: Any = object()


class ChangedArgument(NamedTuple):
    """An argument that the last such call did not have like this."""

    name: str
    before: str  # as JSON; "": it had none
    now: str


class Comparison(NamedTuple):
    """What differs from the last completed call of the same tool and scope."""

    last: Record
    changed: tuple[ChangedArgument, ...]

    def as_data(self) -> dict[str, Any]:
        changed = [each._asdict() for each in self.changed]
        return {"from": reference(self.last), "at": iso(self.last.decided_at), "changed": changed}


def wish_data(wish: Wish) -> dict[str, Any]:
    """A wish as `effectonce.wish/1`."""
    effect = wish.effect
    return {
        "reference": effect.reference,
        "tool": effect.tool,
        "tenant": effect.tenant,
        "scope": effect.scope,
        "step": effect.step,
        "asked_by": wish.asked_by or None,
        "asked_at": iso(wish.asked_at),
        "expired": wish.expired,
        "arguments": None if wish.arguments is None else dict(wish.arguments),
        "fingerprint": wish.fingerprint,
    }


def arguments_shown(wish: Wish) -> list[tuple[str, str]]:
    """Each argument as the contract lets it be seen, as JSON."""
    if wish.arguments is None:
        return [("arguments", UNREADABLE)]
    return [(name, dumps(value)) for name, value in wish.arguments.items()]


def asks_for(wish: Wish) -> str:
    """The same on a line."""
    if wish.arguments is None:
        return UNREADABLE
    return ", ".join(f"{name}={value}" for name, value in arguments_shown(wish))


def compared(guard: Guard, wish: Wish) -> Comparison | None:
    """None: there is no earlier one in this scope to compare it with, or it cannot be read."""
    effect = wish.effect
    recent = Recent(effect.tool, State.COMPLETED, effect.tenant, effect.scope, limit=1)
    found = guard.store.apply(recent).records
    before = arguments_of(found[0], reveal=True).value if found else None
    if wish.arguments is None or not isinstance(before, Mapping):
        return None
    names = dict.fromkeys((*wish.arguments, *before))
    pairs = [(name, _shown(before, name), _shown(wish.arguments, name)) for name in names]
    return Comparison(found[0], tuple(ChangedArgument(*p) for p in pairs if p[1] != p[2]))


def _shown(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name, _NONE)
    return "" if value is _NONE else dumps(value)
