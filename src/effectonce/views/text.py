"""What others wrote, to be shown: as JSON without loss, and no more than a screen holds."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from effectonce._text import harmless_json

SHOWN_MAX = 300  # of one message


def shortened(text: str, longest: int, more: str = "") -> str:
    """Enough of a long text: a screen holds one story. *more* says where all of it is."""
    left = len(text) - longest
    return text if left <= longest // 4 else f"{text[:longest]}… ({left:,} more characters{more})"


class Screen(NamedTuple):
    """Where something is shown: how much of it, and what stands for the rest."""

    reveal: bool = False
    more: str = ""  # where all of a long text is
    reveal_with: str = ""  # how to see what is hidden
    keys: str = "This process does not have the keys to read what is stored."

    def shorten(self, text: str) -> str:
        return shortened(text, SHOWN_MAX, self.more)

    def hidden(self, text: str, what: str) -> str:
        """*what* is "it" or "them"."""
        how = f": {self.reveal_with} {what}" if self.reveal_with else ""
        return f"{text} (hidden{how})"


def dumps(document: Any, indent: int | None = None) -> str:
    """As JSON, whatever a user's tool returned. What a terminal would obey is escaped in it."""
    try:
        made = json.dumps(
            document, default=_exact, ensure_ascii=False, allow_nan=False, indent=indent
        )
    except (TypeError, ValueError):  # a key that is no text, an infinity
        made = json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, indent=indent)
    return harmless_json(made)


def _plain(value: Any) -> Any:
    """The same with texts for what JSON cannot hold."""
    match value:
        case Mapping():
            return {
                key if isinstance(key, str) else dumps(key): _plain(each)
                for key, each in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case float() if not isfinite(value):
            return str(value)
        case str() | int() | float() | None:
            return value
        case _:
            return _exact(value)


def _exact(value: Any) -> Any:
    """What JSON has no word for, without loss."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case set() | frozenset() | tuple():
            return list(value)
        case Mapping():
            return dict(value)
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
        case _:
            return str(value)
