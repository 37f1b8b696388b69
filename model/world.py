"""One moment of the model, what may go wrong in it, and what must never be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from effectonce._core.call import GuardedCall
from effectonce._core.classification.classify import Bucket, Certainty, Verdict
from effectonce._core.guarantees import Terms
from effectonce._core.rules import RULES, TransitionRule
from flows import IDLE

# How a worker's request is doing. From FIRST_RESULT on: it was answered with result number `net
# - FIRST_RESULT + 1`.
SILENT, SENT, REFUSED, THROTTLED, FIRST_RESULT = range(5)
# what the downstream keeps under our key; else the number of a result
NOTHING_REMEMBERED, REFUSAL_REMEMBERED = 0, -1

TOLD_FIRST, TOLD_OTHER, TOLD_RECORDED, TOLD_FAILED = 1, 2, 4, 8  # what callers were told so far

NOT_SENT, TIMED_OUT, REJECTED, TRY_LATER = (
    OSError("refused"),
    TimeoutError("timed out"),
    ValueError("no"),
    OSError("busy"),
)
CANCELLED, UNREACHABLE = KeyboardInterrupt(), ConnectionError("no answer from the store")
VERDICTS = {
    NOT_SENT: Verdict(Bucket.UNREACHABLE, Certainty.NOT_SENT, "nothing left"),
    TIMED_OUT: Verdict(Bucket.NO_ANSWER, Certainty.AMBIGUOUS, "nobody knows"),
    REJECTED: Verdict(Bucket.DECLINED, Certainty.REJECTED, "refused for good"),
    TRY_LATER: Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED, "not now"),
    CANCELLED: Verdict(Bucket.CANCELLED, Certainty.AMBIGUOUS, "cancelled while it ran"),
}

DUPLICATE = "the effect happened twice"
PHANTOM = "completed, but there was no effect"
TWO_RESULTS = "two callers were told different results"
FALSE_FAILURE = "a caller was told that it failed, and the effect happened"
DISAGREE = "one caller was told success, another failure"
LOST_RESULT = "a caller was told a recorded result, and the record does not have it"
FALSE_NOTHING = "a caller was told that nothing was sent, and the effect had happened"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to explore: the terms of a tool, how much may go on at once, and which
    misfortunes there are.
    """

    name: str
    terms: Terms
    rules: tuple[TransitionRule, ...] = RULES
    flow: type[GuardedCall] = GuardedCall
    separate_dispatch: bool = False
    has_probe: bool = False
    attempts: int = 2  # of one call
    workers: int = 2
    owners: int = 3  # how often somebody may take the record: calls are not bounded otherwise
    cuts: int = 0  # store writes whose answer is lost
    cancels: int = 0
    closings: int = 0  # ends of the window in which the key is honoured
    losses: int = 0  # times the store forgets the record
    throttles: bool = False  # the downstream may answer "not now"
    ages: bool = False  # the window in which the request may be sent again ends
    forgets_early: bool = False  # the downstream forgets our key although it promised not to
    person: bool = False  # somebody who knows the truth settles doubts
    expect: str = ""  # the violation that must be found; "" = none


class Worker(NamedTuple):
    pose: int = IDLE
    net: int = SILENT
    risky: bool = False  # a request of this call went out and no answer came back


class World(NamedTuple):
    record: int
    workers: tuple[Worker, ...]
    owners: int
    cuts: int
    cancels: int
    closings: int
    losses: int
    requests: int = 0  # on their way, with nobody waiting for the answer
    writes: tuple[int, ...] = ()  # store writes on their way, with nobody waiting for the answer
    effects: int = 0
    memory: int = NOTHING_REMEMBERED
    told: int = 0
    flaw: str = ""
