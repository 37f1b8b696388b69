"""What a probe answered, in words, where it did not settle the doubt."""

from __future__ import annotations

from effectonce._core.codec import describe_error, printable
from effectonce._core.ops import Answer, CannotTell, NotFound, NotStarted, Ok, Raised


def why_still_in_doubt(answer: Answer) -> str:
    """Why a doubt stays one."""
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
