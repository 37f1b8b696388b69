"""What a careful user of an engine does about side effects: all engines' docs ask for steps that
can be repeated. So, best configured, a step is repeated where the service honours its key or can
be asked first, and where the error says that nothing happened; not elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from oncebench.kit import Setup, ToolFault


def nothing_happened(error: BaseException) -> bool:
    """Whether this error of a tool says so."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code == 429
    return isinstance(error, (ToolFault, httpx.ConnectError))


def refused(error: BaseException) -> bool:
    """Whether the service said no, for good."""
    import httpx

    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 400


def worth_a_retry(setup: Setup, error: BaseException) -> bool:
    if refused(error):
        return False
    return setup.repeatable or nothing_happened(error)


def trying_again(setup: Setup, tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool; best configured, it tries again itself where the error says that nothing happened.
    For subjects that have no retries of their own, or none that can tell errors apart.
    """
    if not setup.best:
        return tool

    @wraps(tool)
    def pay(order: str, amount: int, note: str = "") -> Any:
        for _ in range(2):
            try:
                return tool(order, amount, note)
            except Exception as error:
                if not nothing_happened(error):
                    raise
                time.sleep(1)
        return tool(order, amount, note)

    return pay


def looking_first(
    setup: Setup, tool: Callable[..., Any], *, again: bool = False
) -> Callable[..., Any]:
    """The tool; best configured, it asks the service first, where that can be asked. *again*: the
    engine says that this is not the first attempt, so a request may be on its way.
    """
    if not setup.best or setup.temperament != "asks":
        return tool

    @wraps(tool)
    def pay(order: str, amount: int, note: str = "") -> Any:
        found = setup.find_for_sure(order) if again else setup.find(order)
        return tool(order, amount, note) if found is None else found

    return pay
