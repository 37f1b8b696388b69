"""What the contenders of peers.py have in common."""

from __future__ import annotations

import itertools
from typing import Any

from _stores import HOT, RESULT


class Keys:
    """Which order is refunded next, and which one again. Counts how often the tool really ran."""

    def __init__(self) -> None:
        self._numbers, self._reads, self.ran = itertools.count(), itertools.count(), 0

    def new(self) -> dict[str, Any]:
        return {"order_id": f"ord_{next(self._numbers)}", "amount": 4200}

    def known(self) -> dict[str, Any]:
        return {"order_id": f"ord_{next(self._reads) % HOT}", "amount": 4200}

    def result(self) -> dict[str, Any]:
        self.ran += 1
        return RESULT


class AsyncPeer:
    """A package with an async API: `call` is what it makes of an async function."""

    call: Any

    def __init__(self, url: str) -> None:
        self.url, self.keys = url, Keys()

    async def first(self) -> None:
        await self.call(**self.keys.new())

    async def replay(self) -> Any:
        return await self.call(**self.keys.known())


class SyncPeer:
    """A package for sync code."""

    call: Any

    def __init__(self, url: str) -> None:
        self.url, self.keys = url, Keys()

    def first(self) -> None:
        self.call(**self.keys.new())

    def replay(self) -> Any:
        return self.call(**self.keys.known())
