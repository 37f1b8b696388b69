"""Restate, on a private server: one durable step in one handler, which is invoked over HTTP under
the order as its idempotency key. Each process serves the handler at its place's port, and registers
it there. As shipped, everything is retried for ever. Best configured: retries come soon; where a
repeat may do it twice, an invocation is tried once and then ended, and what did certainly not
happen is a step of its own that is done again.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.adapters._loop import running_loop
from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, nothing_happened, refused, worth_a_retry
from oncebench.kit import Says, Setup

NAME = "Restate"
KIND = "engine"
REQUIRES = ("restate-sdk[serde]==1.2.0", "hypercorn==0.18.0")
NPM = ("@restatedev/restate-server@1.7.12",)
SERVERS = ("restate",)
README = (
    "docs: Invocation, idempotency key; guide Error Handling, at invocation level, for the best"
)
LACKS = {"conflict": "a key that is used again returns the first result (docs, Invocation)"}
WAIT_S = 5.0
NOTHING_HAPPENED = 555


class Failed(Exception):
    """The invocation ended with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


def open(setup: Setup) -> Callable[..., Any]:
    import httpx

    wait = running_loop()
    places = Places(setup.folder)
    play = setup.folder.parent.name
    ingress, admin = setup.servers["restate"].split()

    def serve(place: str) -> None:
        port = int(_kept(setup.folder / f"port.{place}", _free_port()))
        wait(_serving(_app(setup, f"orders-{play}-{place}"), port))
        at = {"uri": f"http://127.0.0.1:{port}", "force": True}
        httpx.post(f"{admin}/deployments", json=at, timeout=30).raise_for_status()

    serve(places.own)
    setup.maintain = lambda: [serve(place) for place in places.orphans()]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            name = f"{tool.__module__}:{order}"
            place = _kept(setup.folder / f"home.{name.encode().hex()}", places.own)
            answer = httpx.post(
                f"{ingress}/orders-{play}-{place}/pay",
                json=[tool.__module__, order, amount, note],
                headers={"idempotency-key": name.encode().hex()},
                timeout=WAIT_S,
            )
            if answer.is_error:
                raise Failed(answer.status_code, answer.text)
            return answer.json()

        return call

    return protect


def _kept(file: Path, value: object) -> str:
    """What the first process wrote there, as a link: it is whole, or not there. The port of a
    place, the place of an order.
    """
    with suppress(FileExistsError):
        file.symlink_to(str(value))
    return str(file.readlink())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _app(setup: Setup, name: str) -> Any:
    import restate

    once = setup.best and not setup.repeatable
    soon, late = timedelta(seconds=setup.lease_s / 20), timedelta(seconds=setup.lease_s / 4)
    if setup.temperament == "asks":  # not before a request can land no more
        soon = late = timedelta(seconds=setup.lands_within_s)
    policy = restate.InvocationRetryPolicy(
        initial_interval=soon,
        max_interval=late,
        max_attempts=1 if once else None,
        on_max_attempts="kill" if once else None,
    )
    service = restate.Service(name, invocation_retry_policy=policy if setup.best else None)

    @service.handler()
    async def pay(ctx: Any, asked: list[Any]) -> dict[str, Any]:
        key = ctx.request().id
        for _ in range(2):
            try:
                return await ctx.run_typed("pay", partial(_step, setup, key, asked))
            except restate.TerminalError as error:
                if error.status_code != NOTHING_HAPPENED:
                    raise
            await ctx.sleep(timedelta(seconds=1))
        return await ctx.run_typed("pay", partial(_step, setup, key, asked))

    return restate.app([service])


def _step(setup: Setup, key: str, asked: list[Any]) -> dict[str, Any]:
    import restate

    setup.key = lambda: key
    module, *rest = asked
    try:
        result: dict[str, Any] = looking_first(setup, importlib.import_module(module).pay)(*rest)
    except Exception as error:
        if not setup.best:
            raise
        if not setup.repeatable and nothing_happened(error):
            raise restate.TerminalError(str(error), status_code=NOTHING_HAPPENED) from error
        if not worth_a_retry(setup, error):
            status = 400 if refused(error) else 500
            raise restate.TerminalError(str(error), status_code=status) from error
        raise
    return result


async def _serving(app: Any, port: int) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.graceful_timeout = 0
    _running.append(asyncio.create_task(serve(app, config, shutdown_trigger=asyncio.Event().wait)))
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


_running: list[Any] = []


def said(error: Exception) -> Says:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return "busy"  # it still runs: the caller has waited long enough
    if isinstance(error, Failed) and error.status == 500:
        return "unknown"  # an invocation that was ended has no words of its own
    return "raised"
