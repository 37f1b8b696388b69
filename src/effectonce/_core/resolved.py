"""Types that msgspec has looked at.

It does so when a type is first read or checked. If two threads do that at once, the process may
crash (seen with msgspec 0.22), so it is done where a type is defined, or a tool is declared.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec


def resolved(*types: Any) -> None:
    """Have msgspec look at these types now."""
    for each in types:
        with contextlib.suppress(Exception):  # it fits no type: only the look counts
            msgspec.convert(None, each)
