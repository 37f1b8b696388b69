"""What an error says about the effect: certainty first, then whether another attempt makes sense.

Certainty and retryability are two questions. An error that a tool declares as raised before it sends is harmless; a time-out is
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
    # Nothing is inferred to be "not sent": a tool may have made another request before the one that was refused.
    "ConnectionRefusedError": Verdict(Certainty.AMBIGUOUS, True, "a connection was refused: an earlier request may have left"),
    "gaierror": Verdict(Certainty.AMBIGUOUS, True, "a host name did not resolve: an earlier request may have left"),
    "TimeoutError": Verdict(Certainty.AMBIGUOUS, True, "it timed out: the request may have been carried out"),
    "ConnectionError": Verdict(Certainty.AMBIGUOUS, True, "the connection broke: the request may have been carried out"),
    "OSError": Verdict(Certainty.AMBIGUOUS, False, "an operating system error after the request may have left"),
}
UNKNOWN = Verdict(Certainty.AMBIGUOUS, False, "an unknown error after the request may have left")

Classifier = Callable[[BaseException], Verdict]


def classifier(not_sent: tuple[type[BaseException], ...], rejected: tuple[type[BaseException], ...]) -> Classifier:
    """A classifier that knows what one tool declares about its own exceptions, and the common table."""

    def classify(error: BaseException) -> Verdict:
        declared = getattr(error, "effectonce_verdict", None)
        if isinstance(declared, Verdict):
            return declared
        usual = next((_KNOWN[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in _KNOWN), UNKNOWN)
        if isinstance(error, not_sent):
            return Verdict(Certainty.NOT_SENT, usual.retryable, "declared by the tool as raised before anything is sent")
        if isinstance(error, rejected):
            return Verdict(Certainty.REJECTED, False, "declared by the tool as a definite refusal")
        return usual

    return classify
