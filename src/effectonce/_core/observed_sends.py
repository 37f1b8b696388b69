"""What was seen to leave during an attempt, and what an error then says about the effect.

An error speaks about the request that raised it. What else a tool sent is seen by its protected
clients: each request that may change something is a `Sighting`, with how it ended. The table,
read by `attested`:

| seen                             | it sends only through them      | it does not say so          |
|----------------------------------|---------------------------------|-----------------------------|
| no request left                  | nothing was sent                | a final refusal is recorded |
| each was refused                 | refused, as the answer says     | a final refusal is recorded |
| one answered with success, alone | done, its result is unavailable | the same                    |
| one refused as done before under | done, its result is unavailable | the same                    |
| our key, alone, and sent before  |                                 |                             |
| anything else                    | in doubt                        | in doubt                    |

The right column holds only what can never be sent again: a recorded refusal and a recorded
success make no second effect, whatever else the tool did. "Nothing was sent" would, so it needs
the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from effectonce._core.classification.verdicts import SURE, Basis, Bucket, Certainty, Scope, Verdict
from effectonce._core.safe_access import get


class Sight(StrEnum):
    """How the requests of one attempt ended, taken together."""

    NOTHING = "nothing"
    REFUSED = "refused"
    ANSWERED = "answered"
    DONE_BEFORE = "done before"  # one was refused: something was created under its key
    UNCLEAR = "unclear"


class Sighting:
    """One request that may change something. Until its end is known, it may have landed."""

    __slots__ = ("answered", "look", "repeated", "request", "verdict")

    def __init__(self, request: str) -> None:
        self.request = request  # "POST api.example.com"
        self.answered = False  # with success
        self.repeated = False  # it left before within this attempt, and may have landed
        self.verdict: Verdict | None = None  # how it ended otherwise
        # fills these in, where it is known only when it is asked
        self.look: Callable[[], object] = _known


def _known() -> None:
    """All that is known about it was noted when it was."""


class Seen(Struct, frozen=True):
    """What is known about the requests of one attempt when it ended."""

    sight: Sight
    whole: bool = False  # no request can have gone past those that were seen
    request: str = ""  # the one that counts
    refusal: Verdict | None = None
    repeated: bool = False  # it left before within this attempt, and may have landed


def seen(sightings: Sequence[Sighting], *, whole: bool, alone: bool = True) -> Seen:
    """Sum up an attempt's requests. *alone*: no other attempt of the call is known to have sent."""
    for one in sightings:
        one.look()
    left = [
        one
        for one in sightings
        if one.verdict is None or one.verdict.certainty is not Certainty.NOT_SENT
    ]
    if not left:
        return Seen(Sight.NOTHING, whole)
    last = left[-1]
    if len(left) == 1 and last.answered and all(one is last or _moved(one) for one in sightings):
        return Seen(Sight.ANSWERED, whole, last.request)
    if all(one.verdict is not None and one.verdict.certainty is Certainty.REJECTED for one in left):
        return Seen(Sight.REFUSED, whole, last.request, last.verdict)
    if alone and len(left) == 1 and last.verdict is not None and last.verdict.done_before:
        return Seen(Sight.DONE_BEFORE, whole, last.request, last.verdict, last.repeated)
    return Seen(Sight.UNCLEAR, whole, last.request)


def _moved(sighting: Sighting) -> bool:
    """Was it made at another place? What could not leave is not done, whatever else was."""
    return sighting.verdict is not None and sighting.verdict.bucket is Bucket.OK


def attested(
    verdict: Verdict, seen: Seen | None, *, repeatable: bool, sent_before: bool = False
) -> Verdict:
    """What an error says about the effect, beside what was seen. See the table above.

    *sent_before*: an attempt before this one, of this process or another, may have landed.
    """
    if seen is None or verdict.certainty in SURE:
        return verdict
    match seen:
        case Seen(Sight.NOTHING, whole=True):
            why = f"no request had left ({verdict.why})"
            return verdict.but(
                certainty=Certainty.NOT_SENT,
                retry=verdict.retryable,
                why=why,
                basis=Basis.WITNESSED,
            )
        case Seen(Sight.NOTHING | Sight.DONE_BEFORE, repeated=repeated) if verdict.done_before:
            # on the first send, it cannot be about us
            ours = repeatable and (sent_before or repeated)
            return verdict.but(basis=Basis.WITNESSED) if ours else verdict
        case Seen(Sight.NOTHING):
            return _recorded(verdict.of_request, Basis.ERROR, verdict, repeatable=repeatable)
        case Seen(Sight.REFUSED, whole=True, refusal=Verdict() as refusal):
            return refusal.but(basis=Basis.WITNESSED)
        case Seen(Sight.REFUSED, refusal=refusal):
            return _recorded(refusal, Basis.WITNESSED, verdict, repeatable=repeatable)
        case Seen(Sight.ANSWERED, request=request) if not repeatable:
            why = f"{request} was answered with success, and then the tool failed"
            return verdict.but(certainty=Certainty.ACTED, why=why, basis=Basis.WITNESSED)
        case _:
            return verdict


def of_another(error: BaseException, key: str) -> bool:
    """Did a guarded call inside the tool fail with it? That says nothing about *key*'s effect."""
    return get(error, "effectonce_of") not in (None, key)


def of_attempt(
    verdict: Verdict,
    seen: Seen | None,
    *,
    in_transaction: bool,
    repeatable: bool,
    sent_before: bool,
) -> Verdict:
    """What the error of an attempt, judged by itself, says about the effect."""
    if not in_transaction:
        return attested(verdict, seen, repeatable=repeatable, sent_before=sent_before)
    if verdict.certainty is Certainty.REJECTED:
        return verdict
    # rolled back, whatever the error
    return verdict.but(certainty=Certainty.NOT_SENT, retry=verdict.retryable)


def _recorded(
    refusal: Verdict | None, basis: Basis, otherwise: Verdict, *, repeatable: bool
) -> Verdict:
    """A refusal to record for good. One that may be lifted: only if the effect is unrepeatable."""
    if refusal is None or refusal.certainty is not Certainty.REJECTED or refusal.retryable:
        return otherwise
    if refusal.scope is not Scope.REQUEST and repeatable:
        return otherwise
    return refusal.but(scope=Scope.REQUEST, basis=basis)
