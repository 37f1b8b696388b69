"""A service of your own that does nothing when it says that it cannot: the one-line rule for it."""

from __future__ import annotations

from typing import Any

from effectonce._core.classification.classify import Rule
from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict

REFUSED = Verdict(
    Bucket.OVERLOADED, Certainty.REJECTED, "declared as transient: nothing was done", retry=True
)


def transient(*when: Any) -> tuple[Rule, ...]:
    """Rules for answers that mean "nothing was done, try again": `rules=transient(503)`, for a
    service that you know.

    *when* is what a `Rule` takes: an HTTP status, an exception type, an error code. A call that
    gets such an answer is tried again, whatever its kind is.
    """
    if not when:
        raise TypeError(
            "transient(): name at least one status, exception type or error code, such as"
            " transient(503)"
        )
    return tuple(Rule(each, REFUSED) for each in when)
