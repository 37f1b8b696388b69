"""How a call ends, as values. What is returned or raised for each is in `outcome.py`."""

from __future__ import annotations

from typing import Any, TypeAlias, final

from msgspec import Struct

from effectonce._core.ops import (
    Busy,
    Doubtful,
    Early,
    KeyExpired,
    Latched,
    Mismatch,
    Recorded,
    Unapproved,
    Unavailable,
)


class Fresh(Struct, frozen=True):
    """This call ran the tool, or its probe found the result."""

    value: Any
    recorded: bool = True
    settled_by: str = ""
    outcome: bytes = b""  # as it was stored, b"" if it was not
    sends: int = 1  # how often it may have been sent, by all callers
    doubt_s: float | None = None  # the probe ended a doubt that was open so long


class Done(Struct, frozen=True):
    """It happened, and the tool failed after that: its result is lost."""

    error: BaseException
    why: str
    recorded: bool = True


class Replay(Struct, frozen=True):
    recorded: Recorded
    coalesced: bool  # it was in flight when we came and we waited for it


class Rejection(Struct, frozen=True):
    """The tool's own definite failure, stored."""

    error: BaseException


class NothingSent(Struct, frozen=True):
    """The tool failed and certainly had no effect. Nothing is stored: the key is free again."""

    error: BaseException
    attempts: int
    exhausted: bool
    retry_after_s: float | None = None  # what the downstream asked for
    why: str = ""  # there is no other attempt


class Exhausted(Struct, frozen=True):
    """It may have happened. Asking again is safe: the same request is sent under the same key."""

    error: BaseException
    attempts: int
    retry_after_s: float | None = None
    why: str = ""


class OutOfPatience(Struct, frozen=True):
    """The turn has spent what it may, or the time is over. This call sent nothing."""

    why: str
    of_turn: bool = True


class OverLimit(Struct, frozen=True):
    """An allowance has less left than this call would spend. Nothing was sent."""

    allowance: str
    subject: str
    unit: str
    amount: int
    limit: int
    left: int
    refills_s: float | None  # until there is enough; None: never, it is above the limit


class Unmet(Struct, frozen=True):
    """What the call rests on does not hold. Nothing was sent."""

    stored: bool  # it failed for good; else nothing was written down, and no person was asked


class Undetermined(Struct, frozen=True):
    """Before the first send the probe has to say whether it has happened, and did not. Nothing
    was sent.
    """

    reason: str
    error: BaseException | None = None  # of the probe
    unusable: bool = False  # it will never say more
    why: str = ""  # it is not asked again
    attempts: int = 0
    retry_after_s: float | None = None


class Lost(Struct, frozen=True):
    """It may have happened, and nobody can know: in doubt."""

    error: BaseException
    reason: str


class Fenced(Struct, frozen=True):
    """The tool ran, but another worker owns the record by now. What we know is kept as evidence."""

    value: Any


@final
class Again(Struct, frozen=True):
    """No ending: the record changed meanwhile. Start from the claim."""


Ending: TypeAlias = (
    Fresh
    | Done
    | Replay
    | Rejection
    | NothingSent
    | Exhausted
    | OutOfPatience
    | OverLimit
    | Undetermined
    | Unmet
    | Lost
    | Fenced
    | Busy
    | Mismatch
    | Doubtful
    | KeyExpired
    | Latched
    | Early
    | Unapproved
    | Unavailable
)


class RecordTaken(RuntimeError):
    """What a transaction did was rolled back, because its record was not its own any more."""


def robbed(attempts: int, why: str, *, sent_before: bool) -> Ending:
    """No run could write its record: the effect is still to be had, but nothing may run again."""
    error = RecordTaken(
        "its record could not be completed with it: another caller had taken the record meanwhile,"
        " or it was begun under another contract"
    )
    if sent_before:
        return Exhausted(error, attempts, why=why)
    return NothingSent(error, attempts, exhausted=True, why=why)
