"""The settings of a gateway: a TOML or JSON file, checked before anything listens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from effectonce._runtime.config_file import document
from effectonce.errors import ContractViolation
from effectonce.guard import Guard
from effectonce.http.client.keys import TOKEN
from effectonce.http.server.profiles import Profile, profile_of
from effectonce.http.server.quota import Quota
from effectonce.http.server.responses import Scope
from effectonce.http.server.routes import METHODS, Route
from effectonce.http.server.spooled_body import BODY_PIECE_S, BODY_S
from effectonce.policy import Downstream, Retry
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.budget import RetryBudget
from effectonce.stores._urls import shown
from effectonce.stores.keyring import Keyring

T = TypeVar("T")
MEBIBYTE = 1 << 20
TENANT = "effectonce.tenant"  # in a scope: whose request it is, found out once
TENANT_MAX = 200
# headers that are no name of anybody
SECRETS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests go, and what is known about it."""

    url: str
    key_header: str = "idempotency-key"  # in which it gets our key
    key_quoted: bool = False  # as a structured-field string, as the draft has it
    # for how long it replays what it did under a key; None: it does not
    honours_key_s: float | None = None
    connect_s: float = 5.0
    # at most this long until the answer begins, and between two pieces of it
    answer_s: float = 60.0
    connections: int = 100
    ca_file: str = ""  # who vouches for it, instead of the authorities that this machine trusts
    verify: bool = True
    # what X-Forwarded-* of the request say is handed on, and added to
    trust_forwarded: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        more = parts.query or parts.fragment or "@" in parts.netloc
        if parts.scheme not in ("http", "https") or not parts.hostname or more:
            raise ContractViolation(
                f"upstream url={shown(self.url)!r}: give http:// or https://, a host and perhaps a"
                " path. Credentials come with the requests."
            )
        if min(self.connect_s, self.answer_s, self.connections) <= 0:
            raise ContractViolation("upstream: connect_s, answer_s and connections are more than 0")
        if TOKEN.fullmatch(self.key_header) is None:
            raise ContractViolation(
                f"upstream key_header={self.key_header!r}: this cannot be the name of a header"
            )
        if self.honours_key_s is not None and self.honours_key_s <= 0:
            raise ContractViolation(
                f"upstream honours_key_s={self.honours_key_s}: leave it out if it does not honour"
                " keys"
            )


class TenantSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose request it is: by a header that a proxy sets, or a bearer token or `sha256:<hex>`."""

    header: str = ""
    tokens: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.header) is bool(self.tokens):
            raise ContractViolation(
                "tenants: give either header, the name of a header that only your own proxy can"
                " set, or tokens, bearer tokens and whose they are. Without them, two customers"
                " could be shown each other's responses."
            )
        if self.header.lower() in SECRETS:
            raise ContractViolation(
                f"tenants: {self.header} holds a secret, and the name of a tenant is stored and"
                " shown. Give tokens, or a header with a name."
            )
        if any(
            _lets_every_client_in(token) or not _DIGEST.fullmatch(_digest(token))
            for token in self.tokens
        ):
            raise ContractViolation(
                "tenants: one of the tokens is no token. It is a text that says something, or"
                " sha256: and 64 hexadecimal digits, not those of the empty text: a client that"
                " sends no token would be let in."
            )
        wrong = sorted(tenant for tenant in self.tokens.values() if not _usable(tenant))
        if wrong:
            raise ContractViolation(
                f"tenants: {wrong[0]!r} is no name of a tenant: 1 to {TENANT_MAX} visible"
                " characters"
            )


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a gateway. *retry*, *breaker*, *budget*, *quota*, *key* and *routes* hold
    parameters of the policies of that name.
    """

    upstream: UpstreamSettings
    hosts: list[str]
    tenants: TenantSettings
    store: str
    secret_file: str = ""
    # the variable of the environment that holds the keyring; none: what is stored is not sealed
    keys_env: str = ""
    # the day until which records from before encryption are read; none: they are not
    plaintext_until: str = ""
    # the folder for outcomes that could not be written to the store; none: among the user's state
    spool: str = ""
    profile: str = "ietf"
    key: dict[str, Any] = {}
    methods: list[str] = msgspec.field(default_factory=lambda: list(METHODS))
    routes: list[dict[str, Any]] = []
    headers: list[str] = []
    body_max: int = 10 * MEBIBYTE
    body_piece_s: float = BODY_PIECE_S
    body_s: float = BODY_S
    response_max: int = MEBIBYTE
    lease_s: float = 30.0
    docs: str = ""
    retry: dict[str, Any] = {}
    breaker: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    quota: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ContractViolation(
                "hosts is empty: name the hosts that this gateway speaks for, as clients write them"
            )
        wrong = [host for host in self.hosts if not host or set(host) & set("*/@ ")]
        if wrong:
            raise ContractViolation(
                f"hosts: {wrong[0]!r} is no host. Write api.example.com, or api.example.com:8443;"
                " there are no patterns."
            )
        if self.keys_env and not self.secret_file:
            raise ContractViolation(
                "keys_env needs secret_file, too: without a secret, keys and fingerprints are plain"
                " digests, from which what is sealed can be guessed."
            )

    # ------------------------------------------------------------ as policies

    def a_profile(self) -> Profile:
        """Whether a request may be sent again is up to the upstream, not to the profile."""
        given, honours_s = profile_of(self.profile), self.upstream.honours_key_s
        downstream = Downstream.none() if honours_s is None else Downstream.key(window=honours_s)
        made = _made("key", lambda **changes: replace(given, **_typed(changes, Profile)), self.key)
        return replace(made, downstream=downstream)

    def a_retry(self) -> Retry:
        return _made("retry", Retry, self.retry)

    def a_breaker(self) -> Breaker:
        return _made("breaker", Breaker, self.breaker)

    def a_budget(self, tenant: str) -> RetryBudget:
        given = {"name": "upstream"} | self.budget
        return _made("budget", RetryBudget, given | {"name": f"{given['name']}/{tenant}"})

    def a_quota(self) -> Quota | None:
        return _made("quota", Quota, self.quota) if self.quota else None

    def some_routes(self) -> list[Route] | None:
        """None: every request with one of the methods."""
        if any("downstream" in route for route in self.routes):
            raise ContractViolation(
                "routes: downstream is the same for all of them: say upstream.honours_key_s, or"
                " leave it out"
            )
        return [_made("routes", Route, route) for route in self.routes] or None

    def a_guard(self) -> Guard:
        keyring = None
        if self.keys_env:
            keyring = Keyring.from_env(self.keys_env, plaintext_until=self.plaintext_until)
        return Guard(self.store, secret=self.a_secret(), keyring=keyring, spool=self.spool or None)

    def a_secret(self) -> bytes:
        try:
            secret = Path(self.secret_file).read_bytes().strip() if self.secret_file else b""
        except OSError as error:
            why = f"secret_file={self.secret_file!r} cannot be read: {error}"
            raise ContractViolation(why) from None
        if self.secret_file and not secret:
            why = f"secret_file={self.secret_file!r} is empty: there is no secret in it"
            raise ContractViolation(why)
        return secret


def _typed(given: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """What a file says, as *kind* declares its fields: a file has no enumerations, and no sets."""
    hints = get_type_hints(kind)
    return {
        name: msgspec.convert(value, hints[name]) if name in hints else value
        for name, value in given.items()
    }


def _made(section: str, make: Callable[..., T], given: Mapping[str, Any]) -> T:
    try:
        return make(**given)
    except (TypeError, msgspec.ValidationError) as error:
        raise ContractViolation(f"[{section}] cannot be used: {error}") from None


def read_settings(
    path: str | None, given: Mapping[str, Any], default: Mapping[str, Any] | None = None
) -> Settings:
    """A file's settings, with *given* in their place, and *default* where neither says anything."""
    read = _over(default or {}, document(path, "settings"))
    try:
        return msgspec.convert(_over(read, given), Settings)
    except msgspec.ValidationError as error:
        # We say why a setting is refused; msgspec says where, and what is missing.
        where = f" in {path}" if path else ""
        raise ContractViolation(f"the settings{where} cannot be used: {error}") from None


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for name, value in above.items():
        under = made.get(name)
        made[name] = value
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            made[name] = _over(under, value)
    return made


class Tenants:
    """Says whose request it is; None: that is not known."""

    def __init__(self, settings: TenantSettings) -> None:
        self._header = (settings.header or "authorization").lower().encode()
        self._tokens = {_digest(token): tenant for token, tenant in settings.tokens.items()}

    def __call__(self, scope: Scope) -> str | None:
        values = [value for name, value in scope["headers"] if name == self._header]
        if len(values) != 1:
            return None
        line = values[0].decode("latin-1")
        if not self._tokens:
            return line if _usable(line) else None
        scheme, _, token = line.partition(" ")
        if scheme.lower() != "bearer":
            return None
        # Digests are compared, not tokens: how long it takes tells nothing about a token.
        return self._tokens.get(hashlib.sha256(token.strip().encode()).hexdigest())


def _usable(tenant: str) -> bool:
    return 0 < len(tenant) <= TENANT_MAX and tenant.isprintable() and tenant.strip() == tenant


_DIGEST = re.compile(r"[0-9a-f]{64}")


def _lets_every_client_in(token: str) -> bool:
    return token.strip() == "" or _digest(token) == hashlib.sha256(b"").hexdigest()


def _digest(token: str) -> str:
    kind, _, value = token.partition(":")
    return value.lower() if kind == "sha256" else hashlib.sha256(token.encode()).hexdigest()
