"""What a URL says about a Redis or Valkey server: where it is, who we are, what we ask of it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import asdict

from effectonce.errors import ContractViolation
from effectonce.stores._urls import safe_message, shown

Address: TypeAlias = tuple[str, int]  # a unix socket has the port 0
SCHEMES = ("redis", "rediss", "valkey", "valkeys", "redis+unix", "redis+cluster", "rediss+cluster")
_DEFAULT_PORT = 6379
_YES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Target(Struct, frozen=True, kw_only=True):
    """Everything that a connection needs to know."""

    address: Address
    username: str = ""
    password: str = ""
    db: int = 0
    tls: ssl.SSLContext | None = None
    cluster: bool = False

    def at(self, address: Address) -> Target:
        """The same on another node."""
        return Target(**(asdict(self) | {"address": address}))

    def __str__(self) -> str:
        host, port = self.address
        return f"redis at {host}:{port}" if port else f"redis at {host}"


def parse(url: str) -> tuple[Target, dict[str, Any]]:
    """The target that *url* names, and the store's options that stand behind its question mark."""
    try:
        parts = urlsplit(url)
        query = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
        target = _target(parts, query)
        options = {name: _OPTIONS[name](value) for name, value in query.items()}
    except (KeyError, OSError, ValueError) as error:
        raise ContractViolation(
            f"{shown(url)!r} is not the URL of a Redis or Valkey store"
            f" ({safe_message(error, url)}). Write redis://user:password@host:6379/0, rediss:// for"
            " TLS, redis+unix:///path/of/socket, redis+cluster://host:6379; options:"
            f" {', '.join((*_OPTIONS, *_TARGET))}."
        ) from None  # the cause quotes the URL
    return target, options


def _target(parts: SplitResult, query: dict[str, str]) -> Target:
    if parts.scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {parts.scheme!r}")
    path = unquote(parts.path)
    unix = parts.scheme == "redis+unix"
    mine = {name: query.pop(name) for name in _TARGET if name in query}
    db = mine.get("db", "0") if unix else path.strip("/") or mine.get("db", "0")
    target = Target(
        address=(path, 0) if unix else (parts.hostname or "localhost", parts.port or _DEFAULT_PORT),
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        db=int(db),
        tls=_tls(mine) if parts.scheme in ("rediss", "valkeys", "rediss+cluster") else None,
        cluster=parts.scheme.endswith("+cluster") or _YES[mine.get("cluster", "no")],
    )
    if target.cluster and target.db:
        raise ValueError("a cluster has only database 0")
    return target


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    return context


_TARGET = ("db", "cluster", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "prefix": str,
    "replicas": int,
    "timeout_s": float,
    "connections": int,
}
