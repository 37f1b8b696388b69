"""What a tool does past its protected clients, as far as Python tells: sockets, threads,
processes, tasks that outlive it.

A tool that declares `through=` sends only through protected clients. If it is seen to do
anything else that could send, nothing is inferred from what those clients saw. Python reports
it, in the thread and the context that act: by audit events, in 3.11 by functions of the standard
library that are wrapped. Both are installed with the first such tool, and stay. Neither sees a
connection that was open before, or a thread that was started before the tool, unless it is one of
a pool, or what runs in a context that is not the tool's, unless a pool is given it.
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
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _worker  # what its threads run
from contextvars import Context
from functools import cache, partial, wraps
from itertools import islice
from traceback import walk_stack
from typing import Any

from effectonce._core.safe_access import attempt
from effectonce.effect import Effect, leaving_unseen, noted, running
from effectonce.errors import ContractViolation

# Python has no such events
HANDED_OVER, HANDED_OUT = "effectonce.handed_over", "effectonce.handed_out"
NOTICED = {
    HANDED_OVER: "gave work to a thread",
    HANDED_OUT: "gave work to a process",
    "socket.connect": "connected a socket",
    "socket.sendto": "sent a datagram",
    "socket.sendmsg": "sent a datagram",
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
    (socket.socket, "sendto", "socket.sendto"),
    *(
        (socket.socket, name, "socket.sendmsg")
        for name in ("sendmsg",)
        if hasattr(socket.socket, name)
    ),
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

_DEEPEST = 10  # from asyncio.to_thread to where we look there are four calls, and tracers' own
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
    pool: Any = ThreadPoolExecutor
    pool.submit = _handing_over(pool.submit)
    _watch_process_pools()
    if sys.version_info >= (3, 12):
        sys.addaudithook(_heard)
        return
    # In 3.11 a thread may be refused its tracer (coverage, a debugger) wherever any audit hook
    # is installed, and ends.
    for owner, name, event in _ACTS:
        setattr(owner, name, _reporting(event, getattr(owner, name)))


def _watch_process_pools() -> None:
    try:
        from concurrent.futures import ProcessPoolExecutor
    except ImportError:  # a platform without processes
        return
    pool: Any = ProcessPoolExecutor
    pool.submit = _handing_out(pool.submit)


def _heard(event: str, args: tuple[Any, ...] = ()) -> None:
    if event in NOTICED and (effect := running.get()) is not None and noted.get() is not effect:
        if _is_no_news(event, args):
            return
        effect.act_elsewhere(NOTICED[event])
        leaving_unseen(effect)


def _is_no_news(event: str, args: tuple[Any, ...]) -> bool:
    if event == "socket.sendmsg":
        return args[1] is None  # it has no address: it was noticed when it was connected
    return NOTICED[event] == "started a thread" and _is_watched(args[0])


def _is_watched(started: Any) -> bool:
    """Is the start of a thread no news? It is one of ours; or of a pool, to which the work is
    handed over before the eyes of `_handing_over`; or of anyio, in the context of the tool.
    """
    thread = getattr(started, "__self__", None)
    return isinstance(thread, threading.Thread) and (
        thread.name.startswith("effectonce-")
        or getattr(thread, "_target", None) is _worker
        or type(thread).__module__.startswith("anyio.")
    )


def _reporting(event: str, act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def reported(*args: Any, **kwargs: Any) -> Any:
        _heard(event, _as_audited(event, args))
        return act(*args, **kwargs)

    return reported


def _as_audited(event: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of `sendmsg(socket, buffers, others, flags, address)` the audit names the last."""
    if event != "socket.sendmsg":
        return args
    return args[0], args[4] if len(args) > 4 else None


def _handing_out(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Work for a process of a pool, which may be there already. It has no context of ours."""

    @wraps(submit)
    def handed_out(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        _heard(HANDED_OUT)
        return submit(pool, function, *args, **kwargs)

    return handed_out


def _handing_over(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Work for a thread of a pool. In the context of the tool, what it does is noticed there."""

    @wraps(submit)
    def handed_over(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if running.get() is not None and not _keeps_its_context(function):
            _heard(HANDED_OVER)
        return submit(pool, function, *args, **kwargs)

    return handed_over


def _keeps_its_context(function: Any) -> bool:
    """Is it `run` of the tool's context; or work of `asyncio.to_thread`, which a tracer may have
    wrapped?
    """
    while isinstance(function, partial):
        function = function.func
    stack = islice(walk_stack(inspect.currentframe()), _DEEPEST)
    context = getattr(function, "__self__", None)
    if isinstance(context, Context):  # of a request, or of a job: not of the tool
        return context.get(running) is running.get()
    return any(frame.f_code is asyncio.to_thread.__code__ for frame, _ in stack)


def tasks_of(effect: Effect) -> bool:
    """Does a task go on that this tool has started?"""
    try:
        current = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return False
    return any(task is not current and _inside(task, effect) for task in asyncio.all_tasks())


def _inside(task: asyncio.Task[Any], effect: Effect) -> bool:
    """Not one that a protected client started for a request: that was noted as such. aiohttp goes
    on to look a host up when no caller waits any more.
    """
    contexts = [each for each in gc.get_referents(task) if isinstance(each, Context)]
    return any(
        context.get(running) is effect and context.get(noted) is not effect for context in contexts
    )
