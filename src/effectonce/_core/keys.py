"""How an effect gets its identity.

    scope   = tenant + conversation or workflow         owned by the runtime, never by the model
    intent  = tool + canonical(identity fields)         all arguments but the declared volatile ones
    place   = the step id | the ordinal | a business key | a number in a sequence
    key     = home + digest                             SHA-256 or HMAC over length-prefixed parts
    home    = a short digest of the scope or stream     what belongs together lies together: in one
                                                        shard, on one page

Nothing that changes from one attempt to the next may go in: a clock, a counter of attempts, a
random value, the id of one call. `check_stable` refuses what looks like one, with the reason
(`stability.py` knows the shapes); `Stable` is how a caller who knows better says so. Names of
what lives on (tenants, conversations, streams) may be random: they are made once, and kept.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from effectonce._core.canonical import VERSION, NotCanonical, canonical
from effectonce._core.stability import CLOCK, LASTING, UUID_, unstable_text

KEY_LENGTH = 40  # hexadecimal characters: 160 bits
REFERENCE_LENGTH = 12  # of them, at the end: enough to find an effect, not enough to forge its key
HOME_LENGTH = 8  # of them, shared by all effects of one conversation or stream
REST_LENGTH = KEY_LENGTH - HOME_LENGTH
_pack = msgspec.msgpack.Encoder().encode
_HEAD = f"effectonce {VERSION}"


class UnstableKey(ValueError):
    """This part changes from one attempt to the next, so a retry would not be recognised."""


class Stable(Struct, frozen=True):
    """A key part that looks random or dated, but is stored before any attempt and never changes."""

    value: str | int


Part: TypeAlias = str | int | date | Stable


# ---------------------------------------------------------------- places


class AtStep(Struct, frozen=True):
    """A named step of a conversation or workflow: the same call there is the same effect."""

    step: str


class AtOrdinal(Struct, frozen=True):
    """No step id: how many successful results for this intent the model has already been shown."""

    ordinal: int


class ByName(Struct, frozen=True):
    """A business key that a person can read, such as user_123 / weekly_email / 2025-W12."""

    parts: tuple[str, ...]


class InSequence(Struct, frozen=True):
    """Number *number* of a stream: whatever the tool and its arguments are."""

    stream: str
    number: int


class ByContent(Struct, frozen=True):
    """The request itself, for time-window dedup."""


Place: TypeAlias = AtStep | AtOrdinal | ByName | InSequence | ByContent


# ---------------------------------------------------------------- derivation


class Secret(bytes):
    """What makes keys unguessable. Callers may print a value that holds it: it hides itself."""

    def __repr__(self) -> str:
        return "<secret>" if self else "b''"

    __str__ = __repr__


def derive(*parts: str | bytes | int, secret: bytes = b"") -> str:
    """Digest typed, length-prefixed parts (MessagePack): no two lists of parts read alike."""
    return _digest(secret, parts)[:KEY_LENGTH]


def derive_number(*parts: str | bytes | int, secret: bytes = b"") -> int:
    """The same as a number of 512 bits, for a key that is written in another alphabet."""
    message = _pack((_HEAD, *parts))
    return int.from_bytes(
        hmac.digest(secret, message, "sha512") if secret else hashlib.sha512(message).digest()
    )


def _digest(secret: bytes, parts: tuple[str | bytes | int, ...]) -> str:
    message = _pack((_HEAD, *parts))
    return (
        hmac.digest(secret, message, "sha256").hex()
        if secret
        else hashlib.sha256(message).hexdigest()
    )


@lru_cache(maxsize=1024)  # a conversation has many calls
def _home(secret: bytes, *parts: str) -> str:
    return _digest(secret, ("home", *parts))[:HOME_LENGTH]


def _at_home(home: str, secret: bytes, *parts: str | bytes | int) -> str:
    message = _pack((_HEAD, *parts))  # as `_digest` has it: every call passes here twice
    return (
        home
        + (
            hmac.digest(secret, message, "sha256").hex()
            if secret
            else hashlib.sha256(message).hexdigest()
        )[:REST_LENGTH]
    )


def effect_key(
    tenant: str, scope: str, tool: str, intent: bytes, place: Place, secret: bytes = b""
) -> str:
    """The identity of one effect."""
    match place:
        case AtStep(step):
            return _at_home(
                _home(secret, tenant, scope), secret, tenant, "step", scope, step, tool, intent
            )
        case AtOrdinal(ordinal):
            return _at_home(
                _home(secret, tenant, scope),
                secret,
                tenant,
                "ordinal",
                scope,
                ordinal,
                tool,
                intent,
            )
        case ByName(parts):
            return derive(tenant, "name", tool, *parts, secret=secret)
        case InSequence(stream, number):
            return _at_home(
                _home(secret, tenant, "", stream), secret, tenant, "sequence", stream, number
            )
        case ByContent():
            return derive(tenant, "content", tool, intent, secret=secret)


def run_key(run: str, position: str, secret: bytes = b"") -> str:
    """The key of one step of a run, whatever the tool and its arguments are: so a change of
    either is noticed. It lies beside the run.
    """
    return _at_home(run[:HOME_LENGTH], secret, "run", run, position)


def undo_key(key: str, secret: bytes = b"") -> str:
    """The key of the undo of an effect: of that effect's key, and of nothing else."""
    return _at_home(key[:HOME_LENGTH], secret, "undo", key)


def downstream_key(key: str, tool: str, secret: bytes = b"") -> str:
    """The key to hand to the downstream: derived, stable, 43 characters, and it reveals nothing."""
    return "eo_" + derive("downstream", tool, key, secret=secret)


def request_key(downstream: str, method: str, path: str, ordinal: int | str) -> str:
    """The key of one of several requests of an effect: by where it goes, and by its number or
    its name among those that go there.

    The body is not in it: one with a time in it would be another request on every attempt. Nor
    is the host: another one may stand in.
    """
    return "eo_" + derive("request", downstream, method, path, ordinal)


def latch_key(tenant: str, scope: str, step: str | None, secret: bytes = b"") -> str:
    """What all calls of one step share; without a step id, all calls of the conversation."""
    return _at_home(
        _home(secret, tenant, scope),
        secret,
        tenant,
        "latch",
        scope,
        0 if step is None else 1,
        step or "",
    )


def content_key(
    *, model: str, messages: Iterable[Mapping[str, Any]], system: str = "", **parameters: Any
) -> str:
    """The identity of an LLM request: everything that changes the answer, and nothing that does
    not.

    Pass it as `key=` to a guarded LLM call, so that a re-run of the pipeline does not pay for
    the same answer twice.
    """
    document = {
        "model": model,
        "system": system,
        "messages": list(messages),
        "parameters": parameters,
    }
    return derive("content", canonical(document))


# ---------------------------------------------------------------- stability

_UNSTABLE_NAMES = {
    "a clock": ("now", "timestamp", "ts", "sent_at", "requested_at"),
    "a count of attempts": (
        "attempt",
        "attempts",
        "retry",
        "retries",
        "retry_count",
        "attempt_number",
        "try_number",
    ),
    "the id of one call": (
        "call_id",
        "tool_call_id",
        "tool_use_id",
        "request_id",
        "run_id",
        "trace_id",
        "span_id",
        "correlation_id",
    ),
    "a random value": ("nonce", "random", "salt", "uuid4"),
}
_UNSTABLE_NAME = {name: what for what, names in _UNSTABLE_NAMES.items() for name in names}


def check_stable(part: Part | UUID | datetime, where: str, *, lasting: bool = False) -> str:
    """Return *part* as text, or raise `UnstableKey` with the reason.

    *lasting*: it names what lives on, such as a conversation or a tenant. A random value does
    that as well as a name.
    """
    match part:
        case str():  # first, because nearly every part is one
            what = unstable_text(str(part))
        case Stable(value):
            return str(value)
        case datetime():
            what = CLOCK
        case UUID():
            what = UUID_ if part.version in (1, 4, 6, 7) else ""
        case int() | date() if not isinstance(part, bool):
            what = unstable_text(str(part))
        case _:
            raise TypeError(
                f"{where} must be made of strings, integers and dates, not {type(part).__name__}."
            )
    if what == "" or (lasting and what in LASTING):
        return str(part)
    raise UnstableKey(
        f"{where} contains {what} ({part!s:.60}). A key must be the same on every attempt, and safe"
        " to show. Use an id that was written down before the first attempt, or Stable(...) if"
        " this one was."
    )


_UNSTABLE_DEFAULTS = {
    "uuid1": "a random value",
    "uuid4": "a random value",
    "token_hex": "a random value",
    "token_urlsafe": "a random value",
    "time": "a clock",
    "time_ns": "a clock",
    "datetime.now": "a clock",
    "datetime.utcnow": "a clock",
}


def unstable_default(factory: object) -> str | None:
    """What a field gets by default, if that is new each time. Unknown for a user's own function."""
    return _UNSTABLE_DEFAULTS.get(getattr(factory, "__qualname__", ""))


def unstable_name(name: str) -> str | None:
    """What a field of this name usually holds, if that changes on every attempt."""
    return _UNSTABLE_NAME.get(name.lower())


# ---------------------------------------------------------------- explain


def _alike(mine: Any, theirs: Any) -> bool:
    try:
        return canonical(mine) == canonical(theirs)
    except NotCanonical:  # no data: a session that is volatile
        return mine is theirs


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a call has the key it has: what was hashed, what only has to match, what was stripped."""

    key: str
    tenant: str
    scope: str
    place: Place
    tool: str
    fingerprint: str
    hashed: Mapping[str, Any]  # in the key: another value is another effect
    matched: Mapping[str, Any]  # in the fingerprint only: another value is a conflict
    stripped: Mapping[str, Any]  # volatile: another value is the same call

    def differences(self, other: Explanation) -> tuple[str, ...]:
        """Why two calls do or do not share a key, one sentence per difference."""
        found = [
            f"{name} differs: {mine!r} and {theirs!r}, so these are two effects"
            for name, mine, theirs in (
                ("tenant", self.tenant, other.tenant),
                ("scope", self.scope, other.scope),
                ("place", self.place, other.place),
                ("tool", self.tool, other.tool),
            )
            if mine != theirs
        ]
        for mine, theirs, consequence in (
            (self.hashed, other.hashed, "so these are two effects"),
            (self.matched, other.matched, "so the second call is a conflict"),
            (self.stripped, other.stripped, "which is ignored: it is volatile"),
        ):
            found += [
                f"{name} differs: {mine.get(name)!r} and {theirs.get(name)!r}, {consequence}"
                for name in sorted(mine.keys() | theirs.keys())
                if not _alike(mine.get(name), theirs.get(name))
            ]
        return tuple(found) or ("nothing differs: this is the same call",)

    def __str__(self) -> str:
        def row(title: str, fields: Mapping[str, Any]) -> str:
            return f"{title:<9} " + (
                ", ".join(f"{name}={value!r}" for name, value in fields.items()) or "nothing"
            )

        head = (
            f"key {self.key}\ntool {self.tool}, tenant {self.tenant!r}, scope {self.scope!r}, place"
            f" {self.place}"
        )
        return "\n".join(
            (
                head,
                row("hashed", self.hashed),
                row("matched", self.matched),
                row("stripped", self.stripped),
            )
        )
