"""What an API promises about its keys, as data: the draft's rules, and Stripe's two.

A profile is changed with `dataclasses.replace`: `replace(IETF, strict=False)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType

from effectonce._core.guarantees import DAY_S, TOMBSTONE_S
from effectonce.errors import (
    Conflict,
    ContractViolation,
    Expired,
    InDoubt,
    InFlight,
    ReplayedFailure,
    ResultUnavailable,
)
from effectonce.errors import StoreUnavailable as _StoreUnavailable
from effectonce.policy import Downstream


class Trouble(StrEnum):
    """Why the middleware answers, not the app. The value is the `code` for clients to branch on."""

    KEY_MISSING = "KEY_MISSING"
    KEY_MALFORMED = "KEY_MALFORMED"
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED"
    NOT_ALLOWED = "NOT_ALLOWED"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    BODY_TOO_SLOW = "BODY_TOO_SLOW"
    OVER_QUOTA = "OVER_QUOTA"
    CONFLICT = Conflict.code
    IN_FLIGHT = InFlight.code
    IN_DOUBT = InDoubt.code
    EXPIRED = Expired.code
    RESULT_GONE = ResultUnavailable.code
    FAILED = ReplayedFailure.code
    STORE_UNAVAILABLE = _StoreUnavailable.code


class Style(StrEnum):
    """How the middleware's own answers are written."""

    PROBLEM = "application/problem+json"  # RFC 9457
    STRIPE = "application/json"  # {"error": {"type", "code", "message"}}


STATUS: Mapping[Trouble, int] = MappingProxyType(
    {
        Trouble.KEY_MISSING: 400,
        Trouble.KEY_MALFORMED: 400,
        Trouble.NOT_AUTHENTICATED: 401,
        Trouble.NOT_ALLOWED: 403,
        Trouble.BODY_TOO_LARGE: 413,
        Trouble.BODY_TOO_SLOW: 408,
        Trouble.OVER_QUOTA: 429,
        Trouble.CONFLICT: 422,
        Trouble.IN_FLIGHT: 409,
        Trouble.IN_DOUBT: 500,
        Trouble.EXPIRED: 410,
        Trouble.RESULT_GONE: 410,
        Trouble.FAILED: 410,
        Trouble.STORE_UNAVAILABLE: 503,
    }
)
_STATUSES = frozenset(HTTPStatus)
# An app that answers with one of these has done nothing: the same request under the same key
# runs again.
NOT_STORED = frozenset({401, 403, 404, 405, 413, 415, 422, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rules of an API: who must send a key and how it looks, how long it is honoured, and
    what becomes of errors.

    A status of *not_stored* says that nothing was done. After a 5xx, or an app that raises, it
    is unknown what was done: with *stores_5xx* that answer is the outcome, and it is replayed;
    otherwise the *downstream* decides, `none` puts it in doubt and `key` lets the next request
    run it again.
    """

    name: str
    required: bool = True
    strict: bool = True  # only a quoted string, as the draft has it
    length_min: int = 16
    length_max: int = 255
    bits_min: float = 40.0
    window_s: float = 7 * DAY_S
    tombstone_s: float = TOMBSTONE_S
    wait_s: float = 0.0  # how long to wait for the same request that is in flight
    retry_after_s: int = 1
    style: Style = Style.PROBLEM
    status: Mapping[Trouble, int] = field(default_factory=lambda: STATUS)
    not_stored: frozenset[int] = NOT_STORED
    stores_5xx: bool = False
    downstream: Downstream = field(default_factory=Downstream.none)

    def __post_init__(self) -> None:
        missing = sorted(set(Trouble) - set(self.status))
        if missing:
            raise ContractViolation(
                f"profile {self.name}: status says nothing about {', '.join(missing)}"
            )
        strange = sorted(
            status for status in self.status.values() if status < 400 or status not in _STATUSES
        )
        if strange:
            raise ContractViolation(f"profile {self.name}: {strange[0]} is no status of an error")
        if not 1 <= self.length_min <= self.length_max:
            raise ContractViolation(f"profile {self.name}: need 1 <= length_min <= length_max")
        if self.wait_s < 0 or self.retry_after_s < 1:
            raise ContractViolation(
                f"profile {self.name}: wait_s cannot be negative, and retry_after_s is at least 1"
            )


IETF = Profile(name="ietf")
STRIPE_V1 = Profile(
    name="stripe_v1",
    required=False,
    strict=False,
    length_min=1,
    bits_min=0.0,
    window_s=DAY_S,
    style=Style.STRIPE,
    status=MappingProxyType({**STATUS, Trouble.CONFLICT: 400}),
    not_stored=NOT_STORED | {400},
    stores_5xx=True,
)
STRIPE_V2 = replace(
    STRIPE_V1,
    name="stripe_v2",
    window_s=30 * DAY_S,
    stores_5xx=False,
    downstream=Downstream.key(window=30 * DAY_S),
)
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {profile.name: profile for profile in (IETF, STRIPE_V1, STRIPE_V2)}
)


def profile_of(profile: str | Profile) -> Profile:
    if isinstance(profile, Profile):
        return profile
    if profile not in PROFILES:
        raise ContractViolation(
            f"profile={profile!r}: choose one of {', '.join(PROFILES)}, or give a Profile"
        )
    return PROFILES[profile]
