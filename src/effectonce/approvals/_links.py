"""Links that let one person decide about one call: what they say, and how that is signed.

A link names no key, which stays unguessable, and holds for one key, one fingerprint, one approver
and a time. Who has it decides in that name, so it is sent to that person alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from msgspec import Struct

from effectonce._core.effect_ref import reference_of
from effectonce._core.keys import derive
from effectonce.errors import ContractViolation

# digits of a key that a link has beside its last 12: it is found at once, 64 bits stay unknown
BEGINNING_LENGTH = 12
PATH = "approve"  # below where the dashboard is


class ApprovalLink(Struct, frozen=True, kw_only=True):
    """What a link says."""

    approver: str
    fingerprint: str
    until: int  # by the store's clock, in seconds
    signature: str = ""

    def signed_by(self, secret: bytes, key: str) -> str:
        parts = ("approval link", key, self.fingerprint, self.approver, self.until)
        return derive(*parts, secret=secret)

    def is_of(self, secret: bytes, key: str) -> bool:
        """Was it made for this key by a guard with this secret, and not changed since?"""
        made = self.signed_by(secret, key)
        return secret != b"" and hmac.compare_digest(made.encode(), self.signature.encode())


def url_of(link: ApprovalLink, key: str, base_url: str, secret: bytes) -> str:
    """The address that a person opens."""
    if not base_url.startswith(("https://", "http://")):
        raise ContractViolation(f"base_url={base_url!r}: give the address of your dashboard")
    query = {
        "approver": link.approver,
        "until": str(link.until),
        "fingerprint": link.fingerprint,
        "signature": link.signed_by(secret, key),
    }
    shown = urlencode(query, safe="", quote_via=quote)
    return f"{base_url.rstrip('/')}/{PATH}/{link_of(key)}?{shown}"


def link_of(key: str) -> str:
    """How a link names an effect."""
    return f"{reference_of(key)}_{key[:BEGINNING_LENGTH]}"


def link_in(query: Mapping[str, str]) -> ApprovalLink | None:
    """What a URL says. None: it is no link of ours."""
    try:
        return ApprovalLink(
            approver=query["approver"],
            fingerprint=query["fingerprint"],
            until=int(query["until"]),
            signature=query["signature"],
        )
    except (KeyError, ValueError):
        return None
