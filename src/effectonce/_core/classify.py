"""What an error says about the effect: certainty first, then whether another attempt makes sense.

Certainty and retryability are two questions. A refused connection is worth another attempt *and* certainly sent nothing; a time-out is
worth another attempt and says nothing about the effect. What is not known to be harmless is ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct


class Certainty(StrEnum):
    NOT_SENT = "not_sent"  # nothing left this process
    REJECTED = "rejected"  # the downstream answered: it did not do it
    AMBIGUOUS = "ambiguous"  # it may or may not have happened


class Verdict(Struct, frozen=True):
    certainty: Certainty
    retryable: bool
    why: str
    retry_after_s: float | None = None


# By class name over the MRO, so that nothing is imported to classify it. First match wins.
_KNOWN: dict[str, Verdict] = {
    "ConnectionRefusedError": Verdict(Certainty.NOT_SENT, True, "the connection was refused before anything was sent"),
    "gaierror": Verdict(Certainty.NOT_SENT, True, "the host name did not resolve, so nothing was sent"),
    "TimeoutError": Verdict(Certainty.AMBIGUOUS, True, "it timed out: the request may have been carried out"),
    "ConnectionError": Verdict(Certainty.AMBIGUOUS, True, "the connection broke: the request may have been carried out"),
    "OSError": Verdict(Certainty.AMBIGUOUS, False, "an operating system error after the request may have left"),
}
_UNKNOWN = Verdict(Certainty.AMBIGUOUS, False, "an unknown error after the request may have left")

Classifier = Callable[[BaseException], Verdict]


def classifier(not_sent: tuple[type[BaseException], ...], rejected: tuple[type[BaseException], ...]) -> Classifier:
    """A classifier that knows what one tool declares about its own exceptions, and the common table."""

    def classify(error: BaseException) -> Verdict:
        declared = getattr(error, "effectonce_verdict", None)
        if isinstance(declared, Verdict):
            return declared
        if isinstance(error, not_sent):
            return Verdict(Certainty.NOT_SENT, False, "declared by the tool as raised before anything is sent")
        if isinstance(error, rejected):
            return Verdict(Certainty.REJECTED, False, "declared by the tool as a definite refusal")
        return next((_KNOWN[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in _KNOWN), _UNKNOWN)

    return classify
