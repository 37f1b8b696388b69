"""What a wrong name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def guess(name: str, known: Iterable[str]) -> str:
    """A sentence with the names that are near, with a space before it; or nothing."""
    wanted, by_lower = name.lower(), {each.lower(): each for each in known}
    family = [each for lower, each in by_lower.items() if lower.startswith(f"{wanted}.")]
    near = family or [by_lower[each] for each in difflib.get_close_matches(wanted, by_lower, 3)]
    if not near:
        return ""
    *others, last = (repr(each) for each in near)
    return f" Did you mean {', '.join(others) + ' or ' if others else ''}{last}?"
