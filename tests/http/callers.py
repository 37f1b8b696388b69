"""The real clients, each in its colour, made alike: a caller makes some requests, alone or
inside a guarded tool.
"""

import asyncio

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from effectonce import Guard, Retry
from effectonce.http.client import protect

SOON = Retry(attempts=3, base_s=0.001, throttled_base_s=0.001, cap_s=0.002)
# where time runs out: on a slow machine it may for the next attempt, too
LONG = Retry(attempts=50, base_s=0.001, cap_s=0.002)


class Sync:
    colour = "sync"

    def __init__(self, make, send):
        self.make, self.send = make, send

    def calls(self, url, *asked, wait_s=5.0, **policy):
        """The answers to some requests, one client for all of them: pairs of status and headers."""
        with self.make() as made:
            client = protect(made, **{"retry": SOON} | policy)
            return [
                self.send(client, method, url + path, headers, body, wait_s)
                for method, path, headers, body in map(full, asked)
            ]

    def guarded(self, url, *asked, wait_s=5.0, contract=None, **policy):
        """The same in a tool, which tries only once unless its contract says more."""
        guard = Guard("memory://")

        @guard.tool(
            **{"kind": "write", "downstream": "key", "retry": Retry(attempts=1)} | (contract or {})
        )
        def work(order: int) -> list[int]:
            return [status for status, _ in self.calls(url, *asked, wait_s=wait_s, **policy)]

        with guard.step("chat", "work"):
            return work(1)


class Async:
    colour = "async"

    def __init__(self, make, send):
        self.make, self.send = make, send

    async def acalls(self, url, asked, wait_s, policy):
        async with self.make() as made:
            client = protect(made, **{"retry": SOON} | policy)
            return [
                await self.send(client, method, url + path, headers, body, wait_s)
                for method, path, headers, body in map(full, asked)
            ]

    def calls(self, url, *asked, wait_s=5.0, **policy):
        return asyncio.run(self.acalls(url, asked, wait_s, policy))

    def guarded(self, url, *asked, wait_s=5.0, contract=None, **policy):
        guard = Guard("memory://")

        @guard.tool(
            **{"kind": "write", "downstream": "key", "retry": Retry(attempts=1)} | (contract or {})
        )
        async def work(order: int) -> list[int]:
            return [status for status, _ in await self.acalls(url, asked, wait_s, policy)]

        async def main():
            with guard.step("chat", "work"):
                return await work(1)

        return asyncio.run(main())


def full(asked):
    """Return method, path, headers and body: `"/pay"` is a POST without headers of its own."""
    method, path, *more = ("POST", asked) if isinstance(asked, str) else asked
    headers = more[0] if more else {}
    usual = None if method == "GET" else b'{"amount": 5}'
    return method, path, headers, more[1] if len(more) > 1 else usual


def with_httpx(client, method, url, headers, body, wait_s):
    response = client.request(
        method, url, headers=headers, content=body, timeout=wait_s, follow_redirects=True
    )
    return response.status_code, response.headers


def with_requests(client, method, url, headers, body, wait_s):
    response = client.request(method, url, headers=headers, data=body, timeout=wait_s)
    return response.status_code, response.headers


def with_urllib3(client, method, url, headers, body, wait_s):
    response = client.request(method, url, headers=headers, body=body, timeout=wait_s)
    return response.status, response.headers


async def with_httpx_async(client, method, url, headers, body, wait_s):
    response = await client.request(
        method, url, headers=headers, content=body, timeout=wait_s, follow_redirects=True
    )
    return response.status_code, response.headers


async def with_aiohttp(client, method, url, headers, body, wait_s):
    timeout = aiohttp.ClientTimeout(sock_read=wait_s)
    async with client.request(method, url, headers=headers, data=body, timeout=timeout) as response:
        await response.read()
        return response.status, response.headers


CALLERS = {
    "httpx": Sync(httpx.Client, with_httpx),
    "httpx2": Sync(httpx2.Client, with_httpx),
    "requests": Sync(requests.Session, with_requests),
    "urllib3": Sync(urllib3.PoolManager, with_urllib3),
    "httpx-async": Async(httpx.AsyncClient, with_httpx_async),
    "httpx2-async": Async(httpx2.AsyncClient, with_httpx_async),
    "aiohttp": Async(aiohttp.ClientSession, with_aiohttp),
}


def each(*, long):
    """Parametrize a test with all callers. Those whose names are in *long* run in the long tier."""
    marked = [
        pytest.param(caller, id=name, marks=[pytest.mark.long] if name in long else [])
        for name, caller in CALLERS.items()
    ]
    return pytest.mark.parametrize("caller", marked)


every_client = each(long=())
# The code for httpx protects httpx2, too: some tests of `every_client` suffice.
each_client = each(long=("httpx2", "httpx2-async"))
# The policy of all clients is one piece of code, in two colours.
each_colour = each(long=("httpx2", "httpx2-async", "urllib3", "requests", "httpx-async"))
