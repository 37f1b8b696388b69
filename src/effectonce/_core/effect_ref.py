"""Which effect an error or an outcome is about, and how people name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from effectonce._core.keys import REFERENCE_LENGTH

if TYPE_CHECKING:
    from effectonce._core.record import Record

INSIDE = "inside "  # and the key of a running effect: the step of its own guarded calls


class EffectRef(Struct, frozen=True):
    """Which effect an error or an outcome is about."""

    tool: str
    key: str
    tenant: str = ""
    scope: str = ""
    step: str = ""

    @property
    def reference(self) -> str:
        """A short name that is safe to show: it finds the effect, but cannot forge its key."""
        return reference_of(self.key)

    def __str__(self) -> str:
        nested = self.step.startswith(INSIDE) and len(self.step) == len(INSIDE) + len(self.key)
        step = f"{INSIDE}{reference_of(self.step)}" if nested else self.step
        where = "/".join(part for part in (self.scope, step) if part)
        name = f"{self.tool} {self.reference}" if self.key else self.tool
        return f"{name} ({where})" if where else name

    def __repr__(self) -> str:
        """It ends up in logs and tracebacks, where no key belongs."""
        return f"<{type(self).__name__} {self}>"


def effect_of(record: Record) -> EffectRef:
    """Which effect a record is about."""
    request = record.request
    return EffectRef(request.terms.tool, request.key, request.tenant, request.scope, request.step)


def reference_of(key: str) -> str:
    """How the effect that has this key is shown to people."""
    return f"eff_{key[-REFERENCE_LENGTH:]}"
