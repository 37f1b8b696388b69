"""What a call leaves on its record about attempts that failed: evidence as data, for the person
who looks after it later.

An entry is written when the record already says what is true: the state first, then why. So it
may be missing after a crash, and nothing depends on it. The note says what kind of entry it is,
in the clear; what an error said is in the outcome, which a keyring seals. An error that is the
outcome itself (a definite failure) carries the same facts there, and costs no write of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from effectonce._core.classification.verdicts import Verdict
from effectonce._core.codec import printable
from effectonce._core.ops import Attest
from effectonce._core.record import GAVE_UP, REDRIVEN, SAYS_NO_RESULT, TRIED
from effectonce._core.resolved import resolved

MESSAGE_MAX = 1000
UNREADABLE = "what it said cannot be read"
_ATTEMPT, _ASKED = b"v1 attempt ", b"v1 asked "
KEY_UNREAD = (
    "; the tool declares downstream='key' and did not read its key, so a repeat would not be"
    " recognised"
)
OUTSIDE = (
    "; the tool declares downstream='transaction' and did not use its connection, so the rollback"
    " undid nothing"
)


class FailedAttempt(Struct, frozen=True, omit_defaults=True):
    """How one attempt ended: the error, and what it was taken to mean."""

    number: int  # within its call, from 1; 0: the call gave up without another
    error: str  # the type of it
    message: str = ""
    bucket: str = ""
    certainty: str = ""
    why: str = ""  # it was taken to mean that
    retry_after_s: float | None = None
    gave_up: str | None = None  # why there was no other attempt; None: there was to be one
    at: float = 0.0  # by the store's clock
    basis: str = ""  # what the verdict rests on: see `Basis`


class RedriveRequest(Struct, frozen=True):
    """A person or a program asked for a dead letter again."""

    by: str
    reason: str
    at: float = 0.0


def failed_attempt(
    number: int, error: BaseException, verdict: Verdict, gave_up: str | None = None
) -> FailedAttempt:
    """What is known about an attempt that ended with *error*."""
    return FailedAttempt(
        number,
        printable(type(error).__qualname__),
        printable(error)[:MESSAGE_MAX],
        str(verdict.bucket),
        str(verdict.certainty),
        printable(verdict.why),
        verdict.retry_after_s,
        # a `Why` has a word of its own, which is not stored
        None if gave_up is None else str(gave_up),
        basis=str(verdict.basis),
    )


def left(key: str, attempt: FailedAttempt) -> Attest:
    """The write that leaves it on the record."""
    note = TRIED if attempt.gave_up is None else GAVE_UP
    return Attest(key, note, _ATTEMPT + msgspec.json.encode(attempt))


def asked_again(key: str, by: str, reason: str) -> Attest:
    """The write that says who asked for it again."""
    return Attest(key, REDRIVEN, _ASKED + msgspec.json.encode(RedriveRequest(by, reason)))


def read_entry(at: float, note: str, outcome: bytes) -> FailedAttempt | RedriveRequest | None:
    """None: a result or a note. An unreadable entry still says when, and whether a call gave up."""
    if note not in SAYS_NO_RESULT:
        return None
    try:
        if outcome.startswith(_ASKED):
            asked = msgspec.json.decode(outcome[len(_ASKED) :], type=RedriveRequest)
            return RedriveRequest(asked.by, asked.reason, at)
        attempt = msgspec.json.decode(outcome.removeprefix(_ATTEMPT), type=FailedAttempt)
        return FailedAttempt(**(asdict(attempt) | {"at": at}))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        if note == REDRIVEN:
            return RedriveRequest("", UNREADABLE, at)
        return FailedAttempt(
            0, "", UNREADABLE, gave_up=UNREADABLE if note == GAVE_UP else None, at=at
        )


def in_the_outcome(attempt: FailedAttempt) -> dict[str, Any]:
    """The facts that a stored failure carries beside its type and message."""
    facts = asdict(attempt)
    return {name: facts[name] for name in ("number", "bucket", "certainty", "why", "basis")}


def read_failure(at: float, content: Mapping[str, Any]) -> FailedAttempt:
    """The last attempt of a definite failure, from its outcome. Older releases wrote no verdict."""
    known = {name: content[name] for name in FailedAttempt.__struct_fields__ if name in content}
    return FailedAttempt(**({"number": 0, "error": content.get("type", "")} | known | {"at": at}))


resolved(RedriveRequest, FailedAttempt)
