"""Which effect a call is: the one place where a tenant, a scope, a place, a tool and its
arguments become a key and a `Request`.

Guarded tools, the tools of agents, MCP and HTTP find the place of a call in their own ways, and
say what a repeat has to match. None of them makes a key: two calls are one effect by the rules
of this file alone. `tests/integrations/golden_identities.txt` pins what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
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
from effectonce._runtime.step import StepContext


class Identity(Struct, frozen=True):
    """A call without its place: whose, in which conversation, of which tool, and what it asks."""

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


_pack = msgspec.msgpack.Encoder().encode
_PLAIN = frozenset({str, int, float, bool, type(None)})
# calls whose request is remembered, and how large they may be
ASKED_MAX, ASKED_BYTES_MAX = 1024, 4096


def same_call(
    boundary: StepContext, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[StepContext, bytes] | None:
    """This very call in this very place, if it is made of plain data: a retry has the same
    request, and need not derive it again.

    Of plain data only: MessagePack tells 1, 1.0 and True apart, so equal bytes are equal arguments.
    """
    if (args and not _PLAIN.issuperset(map(type, args))) or (
        kwargs and not _PLAIN.issuperset(map(type, kwargs.values()))
    ):
        return None
    try:
        data = _pack((args, kwargs))
    except (OverflowError, UnicodeEncodeError, TypeError):
        # an integer of more than 64 bits, half a surrogate pair, no dict
        return None
    return (boundary, data) if len(data) <= ASKED_BYTES_MAX else None
