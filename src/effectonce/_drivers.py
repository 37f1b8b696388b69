"""The two loops that run a generator of commands, sync and async: everything that it yields is
performed, and it gets the reply.

The flow of a call, the answer of a store and a conversation with a server are such generators.
Each is written once for both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def drive(commands: Generator[Any, Any, T], perform: Callable[[Any], Any]) -> T:
    """Perform what *commands* asks for until it returns. Stopped in the middle, it may not ask
    for anything more.
    """
    try:
        command = next(commands)
        while True:
            command = commands.send(perform(command))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        commands.close()


async def adrive(commands: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    """The same for an event loop."""
    try:
        command = next(commands)
        while True:
            command = commands.send(await perform(command))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        commands.close()
