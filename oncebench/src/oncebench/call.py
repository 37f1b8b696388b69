"""Call one function of a module, in a process of its own that may be killed.

    python -m oncebench.call my_tools:refund '[[["o1"], {"amount": 100}]]'

An async function is run to its end. An error ends the process with code 1.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys


def main() -> None:
    where, calls = sys.argv[1:]
    module, _, name = where.partition(":")
    sys.path.insert(0, "")
    tool = getattr(importlib.import_module(module), name)
    for arguments, keywords in json.loads(calls):
        result = tool(*arguments, **keywords)
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))


async def _awaited(result: object) -> None:
    assert inspect.isawaitable(result)
    await result


if __name__ == "__main__":
    main()
