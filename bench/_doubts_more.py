"""More of ours in doubts.py: other clients than httpx, and the tool as a step of a workflow,
under the same faults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import requests
from _doubts_cells import TIMEOUT_S, Cell, Subjects
from _doubts_ours import AsyncOurs, Ours

from effectonce.workflows import Run

CLIENTS = (
    "effectonce, requests, protect and through",
    "effectonce async, aiohttp, protect and through",
)
WORKFLOWS = ("effectonce, a step of a run, protect and through",)


class WithRequests(Ours):
    def _open(self) -> Any:
        return requests.Session()


class WithAiohttp(AsyncOurs):
    async def _aopen(self) -> Any:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))

    async def _asent(self, client: Any, url: str, who: str, headers: dict[str, str]) -> bytes:
        async with client.post(url, json={"who": who}, headers=headers) as response:
            response.raise_for_status()
            body: bytes = await response.read()
            return body


class InRun(Ours):
    """Each call goes on with the same run."""

    def _asking(self, cell: Cell, pay: Callable[[str], Any]) -> Callable[[], Any]:
        @self._guard.workflow(identity=["who"], name=f"run of {cell.who}")
        def order(run: Run, who: str) -> Any:
            return run.step("pay", pay, who)

        return partial(order, cell.who)


SUBJECTS: Subjects = {
    CLIENTS[0]: partial(WithRequests, "through"),
    CLIENTS[1]: partial(WithAiohttp, "through"),
    WORKFLOWS[0]: partial(InRun, "through"),
}
