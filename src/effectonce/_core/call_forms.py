"""A call of plain data in all its forms, from one look at its arguments.

A call is written three times: what identifies it, what has to match, and what is stored. Plain
data is written by orjson as RFC 8785 has it, and reads back equal, so one look at the arguments
answers for all three. Whatever else there is takes the long way, which writes the same bytes:
`canonical.canonical` and `codec.encode_arguments`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from orjson import dumps

from effectonce._core.canonical import OPTIONS as AS_RFC_8785
from effectonce._core.canonical import is_plain, sorts_alike
from effectonce._core.codec import OK, SCALARS, STORED_BYTES_MAX, made_of_json
from effectonce._core.codec import OPTIONS as AS_STORED

# what identifies the call, what has to match, what is stored
Forms: TypeAlias = tuple[bytes, bytes, bytes]


def plain_forms(
    arguments: dict[str, Any], identity: tuple[str, ...], matched: tuple[str, ...]
) -> Forms | None:
    """The forms of a call. None: some of its arguments are no plain data."""
    try:
        stored = OK + dumps(arguments, option=AS_STORED)  # first: what holds itself is refused here
        if not SCALARS.issuperset(map(type, arguments.values())) and not (
            is_plain(arguments) and made_of_json(arguments)
        ):
            return None
        if len(stored) > STORED_BYTES_MAX or not (stored.isascii() or sorts_alike(stored)):
            return None
        asked = (
            arguments
            if len(matched) == len(arguments)
            else {name: arguments[name] for name in matched}
        )
        written = dumps(asked, option=AS_RFC_8785)
        if identity == matched:
            return written, written, stored
        return (
            dumps({name: arguments[name] for name in identity}, option=AS_RFC_8785),
            written,
            stored,
        )
    except (TypeError, ValueError):
        return None  # an integer that not every JSON reader knows, or no JSON at all
