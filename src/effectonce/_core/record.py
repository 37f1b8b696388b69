"""What is known about one effect, as data: what was asked for, the state it is in, and what it
came to.

A record changes by the rules of `rules.py` and by nothing else.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf

from msgspec import Struct

from effectonce._core.guarantees import Terms

# Notes of evidence that says nothing about a result.
TRIED = "an attempt failed"
GAVE_UP = "the call gave up"  # after the attempt of this entry; number 0: after those before it
REDRIVEN = "asked for again"
ASKED_BY = "approval was asked for"  # the outcome is the name of who asks, if it is known
APPROVED = "approved"
PROBE = "probe"  # settled it
SAYS_NO_RESULT = frozenset({TRIED, GAVE_UP, REDRIVEN, ASKED_BY, APPROVED})


class Request(Struct, frozen=True):
    """One effect as it is asked for: what identifies it, what it asks, and on which terms."""

    key: str
    fingerprint: str
    terms: Terms
    tenant: str
    scope: str = ""
    step: str = ""
    arguments: bytes = b""
    latch: str = ""  # of effects that share it, only one may be sent without an outcome; "" = none
    after: str = ""  # the key that must have an outcome first; "" = none


class State(StrEnum):
    ABSENT = "absent"  # never stored: where a record comes from and where a forgotten one goes
    CLAIMED = "claimed"
    DISPATCHED = "dispatched"
    COMPLETED = "completed"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    TOMBSTONE = "tombstone"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.TOMBSTONE})


class Evidence(Struct, frozen=True):
    """What a worker or a person knew about an effect when it could not change the record."""

    at: float
    note: str
    outcome: bytes

    @property
    def is_result(self) -> bool:
        """Does it say what came of the effect? Then nothing makes it go."""
        return self.outcome != b"" and self.note not in SAYS_NO_RESULT


class Record(Struct, frozen=True):
    request: Request
    state: State
    epoch: int  # +1 at every change of owner, and at every send taken back
    token: str  # the owner's, "" = it has no owner
    lease_until: float
    created_at: float
    sends: int = 0
    dtoken: str = ""  # token of the last dispatch
    first_dispatch_at: float = 0.0
    sent_until: float = 0.0  # when the last sender's lease ends; 0 = nothing is on its way
    outcome: bytes = b""
    decided_at: float = 0.0  # when the outcome, or the doubt, was written
    dedup_until: float = inf
    settled_by: str = ""
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()


class Scene(Struct, frozen=True):
    """Everything outside the record that a rule may look at."""

    now: float  # the store's clock
    # another effect of the same latch that was sent and has no outcome yet
    rival: Record | None = None
    predecessor: Record | None = None  # the effect that must come before this one
    steady_since: float = -inf  # since when the clock is known to have made no step
    put_back_s: float = 0.0  # how far it is known to be back from where it was, at most
    sent_before: float = -inf  # what was sent later was sent since
    of_another_boot: float = inf  # what was sent later was sent since the machine has been up
