"""idempotent-tools. Best configured: a second call waits for the first (on_duplicate="block"; the
wait is cut to 2 s), or runs again where the service honours the key (on_duplicate="retry"). Its ttl
stays off, because it forgets what was done as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import Says, Setup

NAME = "idempotent-tools"
KIND = "library"
REQUIRES = ("idempotent-tools==0.1.1",)
README = "README, Quick start and Execution semantics"
LACKS = {
    "asks": "it has no way to ask a service (idempotent_tools.decorator)",
    "conflict": "a key that was seen returns its result (README, Execution semantics)",
}


def open(setup: Setup) -> Callable[..., Any]:
    from idempotent_tools import idempotent
    from idempotent_tools.backends.sqlite_backend import SQLiteBackend

    backend = SQLiteBackend(db_path=str(setup.folder / "store.db"))
    best: dict[str, Any] = {}
    if setup.best:
        best = {"on_duplicate": "block", "poll_timeout": 2.0}
    if setup.best and setup.temperament == "keys":
        best = {"on_duplicate": "retry"}
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        protected = idempotent(backend=backend, **best)(tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{tool.__module__}:{order}"
            return protected(order, amount, note, idempotency_key=key[0])

        return call

    return protect


def said(error: Exception) -> Says:
    from idempotent_tools.errors import DuplicateInFlightError

    waited = isinstance(error, TimeoutError) and "in-flight call" in str(error)
    return "busy" if waited or isinstance(error, DuplicateInFlightError) else "raised"
