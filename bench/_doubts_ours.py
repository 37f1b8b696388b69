"""Ours in doubts.py: a plain client, a protected one, and a protected one that the tool
declares; sync and async.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
from _doubts_bank import Bank
from _doubts_cells import TIMEOUT_S, Cell, Payment, Said, Subjects

from effectonce import Found, Guard, NotFound, Retry, current_effect
from effectonce.errors import (
    EffectOnceError,
    InDoubt,
    ReplayedFailure,
    ResultUnavailable,
    StepFailed,
)
from effectonce.http.client import protect

Mode = Literal["plain", "protected", "through"]
# shared: reading the certificates anew for each client is most of a cell
TLS = ssl.create_default_context()
FAST = Retry(base_s=0.01, throttled_base_s=0.01, cap_s=0.05)  # the defaults, but for the waiting


def said_by(error: Exception) -> Said:
    """What an error of ours says. The tool's own comes out as itself when its failure is
    definite.
    """
    match error:
        case ResultUnavailable():
            return Said.HAPPENED
        case InDoubt():
            return Said.UNKNOWN
        case ReplayedFailure() | StepFailed():
            return Said.FAILED
        case EffectOnceError():
            return Said.LATER
        case _:
            return Said.FAILED


class Ours:
    """A guard on SQLite, and a new client for each cell."""

    def __init__(self, mode: Mode, folder: Path, bank: Bank) -> None:
        self._mode = mode
        self._guard = Guard(f"sqlite:///{folder}/effects.db")

    def reconcile(self, cell: Cell) -> None:
        self._guard.reconcile(tool=cell.who)

    def tool(self, payment: Payment) -> Callable[[], Said]:
        cell, client = payment.cell, self._client(self._open())

        pay = self._declared(cell)(self._paying(payment, client))
        if cell.downstream == "probe":
            pay.probe(_probe(payment))
        ask = self._asking(cell, pay)

        def call() -> Said:
            try:
                ask()
            except Exception as error:
                return said_by(error)
            return Said.DONE

        return call

    def _paying(self, payment: Payment, client: Any) -> Callable[[str], str]:
        def pay(who: str) -> str:
            headers = headers_of(payment.cell)
            return payment.receipt(self._sent(client, payment.url(), who, headers))

        return pay

    def _open(self) -> Any:
        return httpx.Client(timeout=TIMEOUT_S, verify=TLS)

    def _sent(self, client: Any, url: str, who: str, headers: dict[str, str]) -> bytes:
        """What the bank answers. All clients here are asked alike."""
        response = client.post(url, json={"who": who}, headers=headers, timeout=TIMEOUT_S)
        response.raise_for_status()
        body: bytes = response.content
        return body

    def _asking(self, cell: Cell, pay: Callable[[str], Any]) -> Callable[[], Any]:
        """How the tool is asked for: here, in a step of a conversation."""

        def ask() -> None:
            with self._guard.step("chat", cell.who):
                pay(cell.who)

        return ask

    def _client(self, client: Any) -> Any:
        return client if self._mode == "plain" else protect(client, retry=FAST)

    def _declared(self, cell: Cell) -> Callable[..., Any]:
        through: dict[str, Any] = {"through": "protected"} if self._mode == "through" else {}
        return self._guard.tool(
            kind=cell.kind, downstream=cell.downstream, name=cell.who, retry=FAST, **through
        )


class AsyncOurs(Ours):
    """The same in one event loop."""

    def __init__(self, mode: Mode, folder: Path, bank: Bank) -> None:
        super().__init__(mode, folder, bank)
        self._runner = asyncio.Runner()

    def reconcile(self, cell: Cell) -> None:
        self._runner.run(self._guard.areconcile(tool=cell.who))

    def tool(self, payment: Payment) -> Callable[[], Said]:
        cell, client = payment.cell, self._client(self._runner.run(self._aopen()))

        @self._declared(cell)
        async def pay(who: str) -> str:
            headers = headers_of(cell)
            return payment.receipt(await self._asent(client, payment.url(), who, headers))

        if cell.downstream == "probe":
            pay.probe(_async_probe(payment))

        async def call() -> Said:
            try:
                with self._guard.step("chat", cell.who):
                    await pay(cell.who)
            except Exception as error:
                return said_by(error)
            return Said.DONE

        return lambda: self._runner.run(call())

    async def _aopen(self) -> Any:
        return httpx.AsyncClient(timeout=TIMEOUT_S, verify=TLS)

    async def _asent(self, client: Any, url: str, who: str, headers: dict[str, str]) -> bytes:
        response = await client.post(url, json={"who": who}, headers=headers)
        response.raise_for_status()
        body: bytes = response.content
        return body


def headers_of(cell: Cell) -> dict[str, str]:
    """The key, read first of all. A protected client would send one by itself."""
    return {"Idempotency-Key": current_effect().downstream_key} if cell.downstream == "key" else {}


def _probe(payment: Payment) -> Callable[[str], Found[str] | NotFound]:
    def find(who: str) -> Found[str] | NotFound:
        receipt = payment.find()
        return NotFound() if receipt is None else Found(receipt)

    return find


def _async_probe(payment: Payment) -> Callable[[str], Awaitable[Found[str] | NotFound]]:
    async def find(who: str) -> Found[str] | NotFound:
        return await asyncio.to_thread(_probe(payment), who)

    return find


SUBJECTS: Subjects = {
    "effectonce, plain httpx": partial(Ours, "plain"),
    "effectonce, protect(client)": partial(Ours, "protected"),
    "effectonce, protect and through": partial(Ours, "through"),
    "effectonce async, plain httpx": partial(AsyncOurs, "plain"),
    "effectonce async, protect(client)": partial(AsyncOurs, "protected"),
    "effectonce async, protect and through": partial(AsyncOurs, "through"),
}
