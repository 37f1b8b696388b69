"""Call one function of a module, in a process of its own that may be killed.

    python -m oncebench.call my_tools:refund '[[["o1"], {"amount": 100}]]'

An async function is run to its end. An error ends the process with code 1. With --when-asked first,
it says `ready` when the module is loaded, and calls when it gets a line.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys

WHEN_ASKED = "--when-asked"
READY = "ready"


def main() -> None:
    *options, where, calls = sys.argv[1:]
    module, _, name = where.partition(":")
    sys.path.insert(0, "")
    tool = getattr(importlib.import_module(module), name)
    if options == [WHEN_ASKED]:
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        sys.stdin.readline()
    for arguments, keywords in json.loads(calls):
        result = tool(*arguments, **keywords)
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))


async def _awaited(result: object) -> None:
    assert inspect.isawaitable(result)
    await result


if __name__ == "__main__":
    main()
