"""What a tool does past its protected clients, as far as Python tells: sockets, threads,
processes, tasks that outlive it.

A tool that declares `through=` sends only through protected clients. If it is seen to do
anything else that could send, nothing is inferred from what those clients saw. Python reports
it, in the thread and the context that act: by audit events, in 3.11 by functions of the standard
library that are wrapped. Both are installed with the first such tool, and stay. Neither sees a
connection that was open before, or a thread that was started before the tool.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from contextvars import Context
from functools import cache, wraps
from itertools import islice
from traceback import walk_stack
from typing import Any

from effectonce._core.safe_access import attempt
from effectonce.effect import Effect, leaving_unseen, noted, past_us, running
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
_ACTS: tuple[tuple[Any, str, str], ...] = (  # what raises these events
    (socket.socket, "connect", "socket.connect"),
    (socket.socket, "connect_ex", "socket.connect"),
    (subprocess.Popen, "_execute_child", "subprocess.Popen"),
    (os, "system", "os.system"),
    *(
        (os, name, "os.posix_spawn")
        for name in ("posix_spawn", "posix_spawnp")
        if hasattr(os, name)
    ),
    *((os, name, "os.exec") for name in ("execv", "execve")),
    *((os, name, "os.fork") for name in ("fork", "forkpty") if hasattr(os, name)),
    (threading, "_start_new_thread", "_thread.start_new_thread"),
)

_DEEPEST = 10  # from asyncio.to_thread to the start of a thread there are eight calls
_PROTECTED: weakref.WeakSet[Any] = weakref.WeakSet()
# those of them that send the key of the running effect
_KEYED: weakref.WeakSet[Any] = weakref.WeakSet()


def note_protected(client: Any, *, keyed: bool) -> None:
    """From now on, what this client sends is seen."""
    _PROTECTED.add(client)
    if keyed:
        _KEYED.add(client)


def sends_the_key(client: Any) -> bool:
    """Does the key of the running effect go with what this client sends?"""
    return isinstance(client, Hashable) and bool(attempt(_KEYED.__contains__, client))


def only_through(declared: Any) -> bool:
    """Does a tool say it sends only via protected clients? `"protected"`, or clients to check."""
    if isinstance(declared, str):
        if declared != "protected":
            raise ContractViolation(
                f"through={declared!r}: give 'protected', or a list of protected clients"
            )
        return True
    clients = declared if isinstance(declared, list | tuple) else (declared,)
    for client in clients:
        if not isinstance(client, Hashable) or not attempt(_PROTECTED.__contains__, client):
            raise ContractViolation(
                f"through={declared!r}: {type(client).__name__} is not protected, so what it sends"
                " is not seen. Give what effectonce.http.client.protect(client) returns."
            )
    return bool(clients)


@cache
def install() -> None:
    """From now on, notice what running tools do."""
    if sys.version_info >= (3, 12):
        sys.addaudithook(_heard)
        return
    # In 3.11 a thread may be refused its tracer (coverage, a debugger) wherever any audit hook
    # is installed, and ends.
    for owner, name, event in _ACTS:
        setattr(owner, name, _reporting(event, getattr(owner, name)))


def _heard(event: str, _: Any = None) -> None:
    if event in NOTICED and (effect := running.get()) is not None and noted.get() is not effect:
        if NOTICED[event] == "started a thread" and _takes_the_context_along():
            return
        effect.elsewhere.append(NOTICED[event])
        with past_us():  # the store may connect, too
            leaving_unseen(effect)


def _takes_the_context_along() -> bool:
    """Is the thread for work in a copy of the tool's context? What that does is noticed there."""
    known = {asyncio.to_thread.__code__}
    backend = sys.modules.get("anyio._backends._asyncio")
    its = getattr(getattr(backend, "AsyncIOBackend", None), "run_sync_in_worker_thread", None)
    if its is not None:
        known.add(its.__code__)
    stack = islice(walk_stack(inspect.currentframe()), _DEEPEST)
    return any(frame.f_code in known for frame, _ in stack)


def _reporting(event: str, act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def reported(*args: Any, **kwargs: Any) -> Any:
        _heard(event)
        return act(*args, **kwargs)

    return reported


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
