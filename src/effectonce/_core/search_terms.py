"""What people know an effect by, such as a payment id: an index in cells, on every store. Pure.

The name of a cell is the term and the key of the effect, so listing names finds it. Where the
guard has a secret, a digest stands for the term: then only the whole term finds it.
"""

from __future__ import annotations

import unicodedata

from effectonce._core.guarantees import DAY_S
from effectonce._core.keys import KEY_LENGTH, derive
from effectonce._core.ops import WriteCell
from effectonce._core.record import Request

CELLS = "found by "  # how their names begin
TERM_MAX = 100  # characters; longer texts are no names
KEPT_MAX_S = 3650 * DAY_S


def spelt(term: str) -> str:
    """One spelling of what people type in several."""
    return " ".join(unicodedata.normalize("NFC", term).casefold().split())


def begins(term: str, secret: bytes) -> str:
    """How the names of cells begin that this finds: a term that begins so, or that is so."""
    if not secret:
        return f"{CELLS}{spelt(term)}"
    return f"{CELLS}{derive('found by', spelt(term), secret=secret)} "


def found_by(term: str, request: Request, secret: bytes) -> WriteCell:
    """The write that lets this effect be found."""
    keep_s = min(request.terms.window_s + request.terms.tombstone_s, KEPT_MAX_S)
    name = f"{begins(term, secret).rstrip()} {request.key}"
    return WriteCell(name, 0, b"", keep_s, listed=True)


def key_in(name: str) -> str:
    """The key of the effect that a cell of this name finds."""
    return name[-KEY_LENGTH:]
