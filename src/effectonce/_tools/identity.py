"""Which effect a call is: the one place where a tenant, a scope, a place, a tool and its
arguments become a key and a `Request`.

Guarded tools, the tools of agents, MCP and HTTP find the place of a call in their own ways, and
say what a repeat has to match. None of them makes a key: two calls are one effect by the rules
of this file alone. `tests/integrations/golden_identities.txt` pins what it makes.
"""

from __future__ import annotations

from msgspec import Struct

from effectonce._core.guarantees import Terms
from effectonce._core.keys import (
    AtOrdinal,
    AtStep,
    ByContent,
    ByName,
    InSequence,
    Place,
    effect_key,
    latch_key,
)
from effectonce._core.record import Request


class Identity(Struct, frozen=True):
    """A call without its place: whose it is, in which conversation, of which tool, and what it
    asks for.
    """

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
        """The request for the effect at *place*. A repeat has to match *fingerprint*; *shown*
        are the scope and step for people.
        """
        scope = step = latch = after = ""
        match place:
            case AtStep() | AtOrdinal():
                named = place.step if type(place) is AtStep else None
                scope, step = self.scope, named or ""
                if latched:  # calls of one step, or of a conversation without steps
                    latch = latch_key(self.tenant, self.scope, named, self.secret)
            case InSequence(stream, number):
                scope, step = stream, str(number)
                if number > 1:
                    after = self.key(InSequence(stream, number - 1))
            case ByName(parts):
                step = "/".join(parts)
            case ByContent():
                pass
        if shown is not None:
            scope, step = shown
        return Request(
            self.key(place), fingerprint, terms, self.tenant, scope, step, arguments, latch, after
        )
