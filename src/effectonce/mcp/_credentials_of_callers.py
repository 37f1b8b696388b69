"""Who calls over HTTP: all that is passed on to the server and may be a credential.

The proxy does not know how the server behind it authenticates. So every header counts, and the
query string, unless a header is known to say nothing about its sender. Two callers that differ
in any of these share no result.

 1. In the store a caller is a keyed digest. The key is the guard's secret. A guard without one
    uses a random key that is made once and kept in the store: callers are the same after a
    restart, and who can read the store can test a guess of a credential there.
 2. A request without credentials belongs to its session. One without a session has no caller,
    and its call is refused, unless the operator declared that all who send no credentials are
    one caller.
 3. A header whose name does not say that it is a credential may be the same in all requests,
    because a proxy in front writes it. Where there is nothing else, the session counts as well.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, MutableMapping
from typing import Any

from effectonce._core.guarantees import DAY_S
from effectonce._core.keys import derive
from effectonce._core.ops import Cell, ReadCell, WriteCell
from effectonce._credentials import SAYS_WHO
from effectonce.errors import ContractViolation
from effectonce.guard import Guard

SESSION = b"mcp-session-id"
# Meant for the next hop only, or written anew for the server: these are not passed on.
NOT_PASSED = frozenset(
    b"""
    accept-encoding connection content-length expect host keep-alive proxy-connection te
    transfer-encoding upgrade
    """.split()
)
# What is passed on and says nothing about who sends it. Many of these are new in every request,
# retries included.
HARMLESS = frozenset(
    b"""
    accept accept-charset accept-language b3 baggage cache-control cdn-loop cf-ipcountry cf-ray
    cf-visitor content-encoding content-language content-type date dnt forwarded idempotency-key
    last-event-id mcp-method mcp-name mcp-protocol-version mcp-session-id origin pragma priority
    referer sentry-trace traceparent tracestate user-agent via x-amzn-trace-id
    x-cloud-trace-context x-correlation-id x-forwarded-for x-forwarded-host x-forwarded-port
    x-forwarded-prefix x-forwarded-proto x-forwarded-scheme x-forwarded-server x-real-ip
    x-request-id x-user-agent
    """.split()
)
HARMLESS_PREFIXES = (b"mcp-param-", b"sec-ch-", b"sec-fetch-", b"x-b3-", b"x-envoy-")
CELL, KEPT_S = "mcp-callers", 3650 * DAY_S
Credentials = tuple[bytes, ...]


class NoCaller(ContractViolation):
    """A call of which it is not known who makes it."""


class Callers:
    """Tells callers apart. *all_one*: how an operator says that all without credentials are one."""

    def __init__(
        self, guard: Guard, *, all_one: str, ignored: Iterable[str] = (), one_caller: bool = False
    ) -> None:
        # it stands above the guard
        self._store, self._secret = guard.store, guard._house.secret  # noqa: SLF001
        self._ignored = HARMLESS | {name.lower().encode("latin-1") for name in ignored}
        self._one_caller, self._all_one = one_caller, all_one

    def credentials(self, scope: MutableMapping[str, Any]) -> Credentials:
        """All of a request that may be one; if there is none, its session. Kept in memory alone."""
        headers = [(name.lower(), value.strip(b" \t")) for name, value in scope["headers"]]
        counting = [pair for pair in headers if self._counts(pair[0])]
        counted = sorted(counting, key=lambda pair: pair[0])
        query = scope.get("query_string", b"")
        parts = tuple(part for pair in counted for part in pair)
        sessions = [] if self._one_caller else [value for name, value in headers if name == SESSION]
        if query or any(SAYS_WHO.search(name) for name, _ in counted) or (counted and not sessions):
            return (b"credentials", query, *parts)
        return (b"session", *sessions, *parts) if sessions else ()

    def _counts(self, name: bytes) -> bool:
        ignored = name in NOT_PASSED or name in self._ignored
        return not ignored and not name.startswith(HARMLESS_PREFIXES)

    async def tenant(self, credentials: Credentials) -> str:
        """The caller in the store; "": the guard's own tenant, for all who send no credentials."""
        if credentials:
            return f"caller {derive('caller', *credentials, secret=await self._key())[:32]}"
        if self._one_caller:
            return ""
        raise NoCaller(
            "Nothing in this call says who makes it, so its result could be shown to another"
            " caller. Nothing was sent. Send a credential, use a session, or"
            f" {self._all_one} if all who reach it are one"
        )

    async def principal(self, token: Any) -> str:
        """Whom a token stands for. Subjects are per issuer; clients without may have many users."""
        client_id, subject, issuer = token.client_id, token.subject, (token.claims or {}).get("iss")
        if subject:
            return _words(client_id, subject, *([] if issuer is None else [issuer]))
        return _words(client_id, "", derive("token", token.token, secret=await self._key())[:32])

    async def _key(self) -> bytes:
        if not self._secret:
            self._secret = await self._kept()
        return self._secret

    async def _kept(self) -> bytes:
        """The key of this store, made by the process that asks first."""
        made = secrets.token_bytes(32)
        cell: Cell | None = await self._store.aapply(ReadCell(CELL))
        while cell is not None:
            if cell.value:
                return cell.value
            cell = await self._store.aapply(WriteCell(CELL, cell.revision, made, KEPT_S))
        return made


def _words(*parts: Any) -> str:
    """As one text that no other parts read like."""
    return " ".join(str(part).replace("%", "%25").replace(" ", "%20") for part in parts)
