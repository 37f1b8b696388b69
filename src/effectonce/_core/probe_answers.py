"""What a probe answered, in words, where that does not say whether it happened."""

from __future__ import annotations

from collections.abc import Callable

from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.codec import describe_error, printable
from effectonce._core.ops import Answer, CannotTell, NotFound, NotStarted, Ok, Raised
from effectonce._core.retry_state import StopReason
from effectonce._core.safe_access import get

LATER = Verdict(Bucket.UNKNOWN, Certainty.NOT_SENT, "nothing was sent", retry=True)


def in_vain(
    answer: Answer, classify: Callable[[BaseException], Verdict]
) -> tuple[BaseException, Verdict]:
    """What it counts as, where nothing was sent yet. One that cannot be read never says more."""
    match answer:
        case Raised(error) | NotStarted(error):
            return error, classify(error).but(certainty=Certainty.NOT_SENT)
        case Ok(CannotTell(reason)):
            return LookupError(reason), LATER
        case Ok():
            return TypeError(why_unsettled(answer)), LATER.but(retry=False)


def unusable(answer: Answer) -> bool:
    """Is it a fault of the probe's, which stays?"""
    match answer:
        case Raised(error) | NotStarted(error):
            return bool(get(error, "code") == "CONTRACT_VIOLATION")
        case Ok(value):
            return not isinstance(value, CannotTell)


def why_unsettled(answer: Answer) -> str:
    """Why it is not known whether it happened."""
    match answer:
        case Ok(NotFound()):
            return "the probe did not find it, which is no proof while it may still land"
        case Ok(CannotTell(reason)):
            return f"the probe could not tell ({reason})" if reason else "the probe could not tell"
        case Ok(value):
            return (
                f"the probe returned {type(value).__name__} instead of Found, NotFound or"
                " CannotTell"
            )
        case Raised(error) | NotStarted(error):
            return f"the probe failed ({describe_error(type(error).__name__, printable(error))})"


def why_given_up(why: str, answer: Answer | None) -> str:
    """Why there was no other attempt, and what the probe answered, if it was asked."""
    if answer is None:
        return why
    both = f"{why}; {why_unsettled(answer)}"
    return StopReason(why.word, both) if isinstance(why, StopReason) else both


def interruption(answer: Answer | None) -> BaseException | None:
    """What interrupted the probe, or kept it from being asked."""
    match answer:
        case Raised(error) | NotStarted(error) if not isinstance(error, Exception):
            return error
        case _:
            return None
