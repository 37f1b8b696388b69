"""What a tool does past its protected clients, as far as Python tells: sockets, threads, processes, tasks that outlive it.

A tool that declares `through=` sends only through protected clients. If it is seen to do anything else that could send, nothing is inferred
from what those clients saw. Python's audit events report it, in the thread and the context that act. The hook is installed with the first
such tool, and stays. It does not see a connection that was open before, or a thread that was started before the tool.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Hashable
from contextvars import Context
from functools import cache
from typing import Any

from effectonce._core.foreign import attempt
from effectonce.effect import Effect, noted, running
from effectonce.errors import ContractViolation

NOTICED = {
    "socket.connect": "connected a socket",
    "subprocess.Popen": "started a process",
    "os.system": "started a process",
    "os.posix_spawn": "started a process",
    "os.spawn": "started a process",
    "os.exec": "started a process",
    "os.fork": "forked",
    "os.forkpty": "forked",
    "_thread.start_new_thread": "started a thread",
    "_thread.start_joinable_thread": "started a thread",
}


_PROTECTED: weakref.WeakSet[Any] = weakref.WeakSet()
_KEYED: weakref.WeakSet[Any] = weakref.WeakSet()  # those of them that send the key of the running effect


def note_protected(client: Any, *, keyed: bool) -> None:
    """From now on, what this client sends is seen."""
    _PROTECTED.add(client)
    if keyed:
        _KEYED.add(client)


def sends_the_key(client: Any) -> bool:
    """Does the key of the running effect go with what this client sends?"""
    return isinstance(client, Hashable) and bool(attempt(_KEYED.__contains__, client))


def only_through(declared: Any) -> bool:
    """Does a tool say that it sends only through protected clients? `"protected"`, or the clients, which are checked."""
    if isinstance(declared, str):
        if declared != "protected":
            raise ContractViolation(f"through={declared!r}: give 'protected', or a list of protected clients")
        return True
    clients = declared if isinstance(declared, list | tuple) else (declared,)
    for client in clients:
        if not isinstance(client, Hashable) or not attempt(_PROTECTED.__contains__, client):
            raise ContractViolation(
                f"through={declared!r}: {type(client).__name__} is not protected, so what it sends is not seen. Give what "
                f"effectonce.http.clients.protect(client) returns."
            )
    return bool(clients)


@cache
def install() -> None:
    """From now on, notice what running tools do."""
    sys.addaudithook({_Watched(event): None for event in NOTICED}.get)  # type: ignore[arg-type]
    if sys.version_info < (3, 12):  # from then on, Python reports it itself
        started = threading._start_new_thread  # type: ignore[attr-defined]  # noqa: SLF001

        def start(*args: Any) -> Any:
            sys.audit("_thread.start_new_thread", *args)
            return started(*args)

        threading._start_new_thread = start  # type: ignore[attr-defined]  # noqa: SLF001


class _Watched(str):
    """An event that is noticed when it is compared with itself.

    Python runs audit hooks in places where no Python code may run: while a thread installs its tracer, another one would be refused. So the
    hook is the `get` of a dict, which is C. Only the name of a watched event has the hash of one of its keys, and is compared with it.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, _: object) -> bool:
        if (effect := running.get()) is not None and noted.get() is not effect:
            effect.elsewhere.append(NOTICED[str(self)])
        return False


def tasks_of(effect: Effect) -> bool:
    """Does a task go on that this tool has started?"""
    try:
        current = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return False
    return any(task is not current and _inside(task, effect) for task in asyncio.all_tasks())


def _inside(task: asyncio.Task[Any], effect: Effect) -> bool:
    contexts = [each for each in gc.get_referents(task) if isinstance(each, Context)]
    return any(context.get(running) is effect for context in contexts)
