"""What to do about an error: bucket, certainty, and whether the call may be repeated, decide. A
table, read from the top.

Two questions come before the bucket. Did it certainly have no effect? Then nothing forbids
another attempt. If not: may the same request be sent again, because it is a read, or idempotent,
or under a key that the downstream honours? Only then does it matter whether another attempt
could go better.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from msgspec import Struct

from effectonce._core.classification.verdicts import SURE, Bucket, Verdict


class Action(StrEnum):
    """What to do next."""

    RETRY = "retry"  # nothing happened: try again after a delay
    RESEND = "resend"  # it may have happened: send the same request under the same key
    RECONCILE = "reconcile"  # it may have happened: ask the probe
    ESCALATE = "escalate"  # a person has to look, or to pay
    REPLAN = "replan"  # tell the model at once: another prompt, another way
    REPAIR = "repair"  # tell the model what was wrong with its answer, once per turn
    SHORTEN = "shorten"  # send less context, or fail
    HAND_BACK = "hand_back"  # not now: the caller may come again later
    LET_THROUGH = "let_through"  # not an error: the caller's own wish, or a framework's way to stop
    FAIL = "fail"  # the same request would fail again


class DecisionRow(Struct, frozen=True):
    """Errors like this, in calls like this: do that. None: it does not matter."""

    action: Action
    why: str
    buckets: frozenset[Bucket] | None = None
    certain: bool | None = None  # the error proves that it had no effect
    # a read, idempotent, in a transaction, or under a key that the downstream honours
    repeatable: bool | None = None
    probe: bool | None = None
    worthwhile: bool | None = None  # another attempt could go better
    delay: bool | None = None  # the downstream says how long to wait


# Whatever a table or a rule says: the same request fails again.
NEVER = frozenset(
    {
        Bucket.AUTH,
        Bucket.NOT_FOUND,
        Bucket.SCHEMA,
        Bucket.CONTENT_POLICY,
        Bucket.DECLINED,
        Bucket.CONFIG,
    }
)
_NO_ERROR = frozenset({Bucket.OK, Bucket.CONTROL_FLOW, Bucket.CANCELLED})
GATE: tuple[DecisionRow, ...] = (
    DecisionRow(
        Action.RECONCILE,
        "it may have happened: the probe can tell",
        certain=False,
        repeatable=False,
        probe=True,
    ),
    DecisionRow(
        Action.ESCALATE,
        "it may have happened, and nobody can know",
        certain=False,
        repeatable=False,
        probe=False,
    ),
    DecisionRow(Action.LET_THROUGH, "it is not an error", _NO_ERROR),
    DecisionRow(
        Action.HAND_BACK,
        "the breaker is open: nothing was sent, and no attempt is spent",
        frozenset({Bucket.CIRCUIT_OPEN}),
    ),
    DecisionRow(
        Action.REPAIR,
        "the answer cannot be used: say what was wrong with it, once per turn",
        frozenset({Bucket.PARSE}),
    ),
    DecisionRow(
        Action.SHORTEN, "it is too long: send less, or fail", frozenset({Bucket.CONTEXT_LENGTH})
    ),
    DecisionRow(
        Action.REPLAN,
        "the tool reported to the model what went wrong: let it find another way",
        frozenset({Bucket.TOOL_ERROR}),
    ),
    DecisionRow(
        Action.HAND_BACK,
        "it is used up until the time that they name",
        frozenset({Bucket.QUOTA}),
        delay=True,
    ),
    DecisionRow(
        Action.ESCALATE, "it is used up: a person must pay, or wait", frozenset({Bucket.QUOTA})
    ),
    DecisionRow(Action.FAIL, "the same request would fail again", NEVER),
    DecisionRow(Action.RETRY, "it had no effect, and may go better", certain=True, worthwhile=True),
    DecisionRow(
        Action.RESEND,
        "it may have happened, and the same request does no harm",
        certain=False,
        repeatable=True,
        worthwhile=True,
    ),
    DecisionRow(Action.FAIL, "nothing says that another attempt would go better"),
)
GOES_ON = frozenset({Action.RETRY, Action.RESEND})


def gate(verdict: Verdict, *, repeatable: bool, probe: bool = False) -> DecisionRow:
    """The first row that fits."""
    certain = verdict.certainty in SURE
    return _first(
        verdict.bucket,
        certain,
        repeatable,
        probe,
        verdict.retryable,
        verdict.retry_after_s is not None,
    )


@cache  # a few hundred questions are all there are
def _first(
    bucket: Bucket,
    certain: bool,  # noqa: FBT001
    repeatable: bool,  # noqa: FBT001
    probe: bool,  # noqa: FBT001
    worthwhile: bool,  # noqa: FBT001
    delay: bool,  # noqa: FBT001
) -> DecisionRow:  # noqa: FBT001, RUF100
    facts = {
        "certain": certain,
        "repeatable": repeatable,
        "probe": probe,
        "worthwhile": worthwhile,
        "delay": delay,
    }
    return next(row for row in GATE if _fits(row, bucket, facts))


def _fits(row: DecisionRow, bucket: Bucket, facts: dict[str, bool]) -> bool:
    if row.buckets is not None and bucket not in row.buckets:
        return False
    return all(getattr(row, name) in (None, fact) for name, fact in facts.items())
