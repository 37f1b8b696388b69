"""What a careful user of a library does about doubts, where the library's own text says how. It is
a part of the best configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from oncebench.adapters._retries import nothing_happened, refused
from oncebench.kit import Setup, Told

IN_DOUBT = "it may have happened"


class TooLate(Exception):
    """The service has forgotten the key: to send it again could do it twice."""


def within_the_window(setup: Setup, since_s: float) -> None:
    """Raises if a key that was first sent then is no longer honoured."""
    if setup.window_s is not None and time.time() - since_s > setup.window_s:
        raise TooLate("the service has forgotten the key")


def returning_doubts(setup: Setup, tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool, for libraries that keep what is returned and forget what was raised. Best
    configured, where no key makes a second request safe, a doubt is returned.
    """
    if not setup.best or setup.temperament == "keys":
        return tool

    @wraps(tool)
    def pay(order: str, amount: int, note: str = "") -> Any:
        try:
            return tool(order, amount, note)
        except Exception as error:
            if refused(error) or nothing_happened(error):
                raise
            return {IN_DOUBT: str(error)}

    return pay


def told(result: Any) -> Any:
    """What the caller of such a tool is told."""
    return Told("unknown") if isinstance(result, dict) and IN_DOUBT in result else result
