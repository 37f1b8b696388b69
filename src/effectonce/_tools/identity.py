"""Which effect a call is: the one place where a tenant, a scope, a place, a tool and its arguments become a key and a `Request`.

Guarded tools, the tools of agents, MCP and HTTP find the place of a call in their own ways, and say what a repeat has to match. None of
them makes a key: two calls are one effect by the rules of this file alone. `tests/integrations/golden_identities.txt` pins what it makes.
"""

from __future__ import annotations

from msgspec import Struct

from effectonce._core.guarantees import Terms
from effectonce._core.keys import AtOrdinal, AtStep, ByName, InSequence, Place, effect_key, latch_key
from effectonce._core.record import Request


class Identity(Struct, frozen=True):
    """A call without its place: whose it is, in which conversation, of which tool, and what it asks for."""

    tenant: str
    scope: str
    tool: str
    intent: bytes  # the canonical form of the arguments that count
    secret: bytes = b""

    def key(self, place: Place) -> str:
        return effect_key(self.tenant, self.scope, self.tool, self.intent, place, self.secret)

    def at(
        self,
        place: Place,
        fingerprint: str,
        terms: Terms,
        arguments: bytes,
        *,
        latched: bool = False,
        shown: tuple[str, str] | None = None,
    ) -> Request:
        """The request for the effect at *place*. A repeat has to match *fingerprint*; *shown* are the scope and step for people."""
        latch = after = ""
        if latched and isinstance(place, AtStep | AtOrdinal):  # calls of one step, or of a conversation without steps
            latch = latch_key(self.tenant, self.scope, place.step if isinstance(place, AtStep) else None, self.secret)
        if isinstance(place, InSequence) and place.number > 1:
            after = self.key(InSequence(place.stream, place.number - 1))
        scope, step = _shown(self.scope, place) if shown is None else shown
        return Request(self.key(place), fingerprint, terms, self.tenant, scope, step, arguments, latch, after)


def _shown(scope: str, place: Place) -> tuple[str, str]:
    match place:
        case AtStep(step):
            return scope, step
        case AtOrdinal():
            return scope, ""
        case InSequence(stream, number):
            return stream, str(number)
        case ByName(parts):
            return "", "/".join(parts)
        case _:
            return "", ""
