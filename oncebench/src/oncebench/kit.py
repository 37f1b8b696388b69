"""What an adapter is given, and what the tools do. It runs in the subject's process, and needs
the subject, httpx and the standard library alone.

An adapter is a module of `oncebench.adapters` with:

    NAME, KIND, REQUIRES, README   what it is, what is installed, which text it follows
    NPM, SERVERS                   packages of npm, and servers that it needs; none, if not there
    LACKS                          what the subject says that it does not do, with where it says so
    OFFERS                         "transaction", where a tool can share the subject's own;
                                   "approval", where a call can wait for a person's yes
    open(setup)                    returns `protect(tool)`, which returns the protected tool
    said(error)                    what an error of the subject tells its caller
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from oncebench import rows

Says = Literal[
    "done",  # it happened, and here is the result
    "happened",  # it happened; the result is not kept
    "unknown",  # it may have happened: a person must look
    "busy",  # another call is at it, or was
    "waiting",  # nothing was sent: a person has to say yes first
    "failed",  # it has not happened, says the subject
    "conflict",  # the same key and other arguments, or arguments that it refuses
    "expired",  # too old to say
    "raised",  # the tool's own error, and no word of the subject
]
Temperament = Literal["keys", "asks", "deaf", "transaction"]


# httpx makes a TLS context for each client, also for a plain-HTTP URL: 78 ms of certificates that
# the loopback service has no use for. With verify=False it is 1 ms.
VERIFY = False

PATHS = {"refunds": "/pay", "payouts": "/payouts"}  # where each tool sends


@dataclass(frozen=True, slots=True)
class Told:
    """What a subject returns as its word, where others raise: `return Told("unknown")`."""

    says: Says


class ToolFault(ValueError):
    """A bug of the tool, before it sent anything."""


@dataclass(slots=True, kw_only=True)
class Setup:
    """What a deployment of the subject is given."""

    folder: Path  # for its files; all its processes share it
    url: str  # of the service
    temperament: Temperament
    window_s: float | None  # how long the service says that it remembers keys
    lands_within_s: float  # how late, it says, a request may still land
    best: bool  # everything that the subject offers, or what its README begins with
    lease_s: float  # where the subject has a lease or a stale time, it is this
    servers: dict[str, str] = field(default_factory=dict)  # URLs of the stores that it asked for
    bug: str = ""  # of the control with a broken store
    database: str = ""  # where the effect is a row: the URL of its database
    approval: bool = False  # every call waits until a person has said yes

    # What an adapter may set: how the tool learns its key, how it sends, what runs round a call.
    key: Callable[[], str | None] = lambda: None
    post: Callable[[str, dict[str, Any], dict[str, str]], Any] | None = None
    connection: Callable[[], Any] | None = None  # with the transaction that the tool may share
    around: Callable[[Wish], AbstractContextManager[Any]] = lambda _: nullcontext()
    maintain: Callable[[], object] = lambda: None  # what its docs tell you to run now and then
    approve: Callable[[Wish], object] = lambda _: None  # a person says yes to what waits

    @property
    def repeatable(self) -> bool:
        """Whether the tool may be called again when it is not known what became of it."""
        return self.temperament in {"asks", "keys"} or self.connection is not None

    def find(self, order: str) -> dict[str, Any] | None:
        """Ask the service whether it happened."""
        import httpx  # noqa: PLC0415

        asked = httpx.get(f"{self.url}/effects", params={"order": order}, timeout=5, verify=VERIFY)
        asked.raise_for_status()
        found: list[dict[str, Any]] = asked.json()
        return found[0] if found else None

    def find_for_sure(self, order: str) -> dict[str, Any] | None:
        """The same for what may be on its way. Best configured, "nothing" is believed when no
        request can land any more, by the service's own word.
        """
        found = self.find(order)
        if found is None and self.best:
            time.sleep(self.lands_within_s)
            found = self.find(order)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that an agent wants. *name* tells wishes apart, *order* what they want."""

    name: str
    order: str
    amount: Any = 100
    note: str = ""
    run: str = "chat-1"
    tool: Literal["refunds", "payouts"] = "refunds"
    shape: Literal["keywords", "positional", "defaults"] = "keywords"
    first: Literal["", "raise", "die", "die after"] = ""  # what the tool does, once
    returns: Any = None  # what it returns instead of the answer, as JSON
    unstorable: bool = False  # or: something that no store can keep
    timeout_s: float = 1.5  # how long the tool waits for the answer


_current: Wish | None = None
_setup: Setup | None = None


def begin(setup: Setup) -> None:
    global _setup  # noqa: PLW0603
    _setup = setup


def now_serving(wish: Wish | None) -> None:
    global _current  # noqa: PLW0603
    _current = wish


def body(path: str, *, order: str, amount: Any, note: str) -> Any:
    """What each tool does: send one request, and return what the service answers. Where the
    effect is a row, insert it.
    """
    assert _setup is not None
    wish = _current if _current is not None and _current.order == order else None
    first = wish.first if wish is not None and wish.first and _first_time(wish) else ""
    if first == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if first == "raise":
        raise ToolFault("a bug of the tool, before it sent anything")
    asked = {"order": order, "amount": amount, "note": note}
    if _setup.temperament == "transaction":
        shared = None if _setup.connection is None else _setup.connection()
        answer = rows.insert(_setup.database, shared, path, asked)
    else:
        key = _setup.key() if _setup.temperament == "keys" else None
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = (_setup.post or send)(f"{_setup.url}{path}", asked, headers)
    if first == "die after":
        os.kill(os.getpid(), signal.SIGKILL)
    if wish is None:
        return answer
    if wish.unstorable:
        return {"receipt": answer["receipt"], "lock": threading.Lock()}
    return answer if wish.returns is None else wish.returns["value"]


def send(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    """A plain client, as most tools have."""
    import httpx  # noqa: PLC0415

    response = httpx.post(url, json=body, headers=headers, timeout=timeout_s(), verify=VERIFY)
    response.raise_for_status()
    return response.json()


def timeout_s() -> float:
    """How long the tool waits for an answer."""
    return 1.5 if _current is None else _current.timeout_s


def _first_time(wish: Wish) -> bool:
    """Whether this is the first try of all processes."""
    assert _setup is not None
    try:
        (_setup.folder / f"tried-{wish.name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def called(tool: Callable[..., Any], wish: Wish) -> Any:
    """Call it the way this wish does."""
    match wish.shape:
        case "positional":
            return tool(wish.order, wish.amount, wish.note)
        case "defaults":
            return tool(wish.order, wish.amount)
        case "keywords":
            return tool(order=wish.order, amount=wish.amount, note=wish.note)
