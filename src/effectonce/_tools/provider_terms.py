"""What a provider's file says, in the words of a contract: decided once, when a tool is declared.

    downstream   "key" if a repeat under the key makes no second effect, with the provider's window
                 and what it stores; otherwise "none"
    sent_key     the shape of its keys, the header that they go in, and what its answers about a
                 key mean

What a user declares beside it may be stricter. What promises more than the provider does is
refused, with the page that says so.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from effectonce._core.classification.classify import Rule
from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.guarantees import Capability
from effectonce._core.key_shapes import DIGITS_AND_LETTERS, MOST, KeyShape, SentKey, shaped_key
from effectonce._text import span
from effectonce.errors import ContractViolation
from effectonce.policy import Downstream

if TYPE_CHECKING:
    from effectonce._core.classification.signals import Signals
    from effectonce.providers import Fact, Provider

# for a key whose window is not published: the shortest that is, is three times as long
UNPUBLISHED_S = 300.0
SAFE_REPEATS = frozenset(
    {"replay", "conflict", "conflict_with_id", "latest_status", "existing_object"}
)
KEEPS_REFUSALS = frozenset({"all", "refusals too"})
# what these say is mostly about the request, and not about its key
ABOUT_REQUESTS = frozenset({400, 422})
_CODE = re.compile(r"[A-Z][A-Z0-9_]+")
_ANY_KEY = "0" * 40  # of an effect


class ProviderTerms(Struct, frozen=True):
    """What `Contract` needs to know about a provider."""

    provider: str
    downstream: Downstream
    sent_key: SentKey | None = None
    rules: tuple[Rule, ...] = ()


def terms_of(name: str | None, declared: str | Downstream | None) -> ProviderTerms:
    """What a tool says about its downstream, with or without naming its provider."""
    if name is None:
        return ProviderTerms("", Downstream.of("none" if declared is None else declared))
    if not isinstance(name, str):
        raise ContractViolation(f"provider={name!r}: give a name, such as provider='stripe.v1'")
    from effectonce.providers import provider

    return terms_from(provider(name), declared)


def terms_from(facts: Provider, declared: str | Downstream | None) -> ProviderTerms:
    """The same for a provider that was read."""
    downstream = _offered(facts) if declared is None else _checked(facts, declared)
    rules = _rules(facts)
    if facts.key.where == "none":
        return ProviderTerms(facts.name, downstream, None, rules)
    header = facts.key.name if facts.key.where == "header" else None
    return ProviderTerms(facts.name, downstream, SentKey(_shape(facts), header or "", rules), rules)


# ---------------------------------------------------------------- downstream


def _offered(facts: Provider) -> Downstream:
    stated = not facts.facts.key.unverified and not facts.facts.repeat.unverified
    return _key(facts) if stated and facts.repeat in SAFE_REPEATS else Downstream.none()


def _key(facts: Provider) -> Downstream:
    window_s = published_window_s(facts)
    return Downstream.key(
        window=UNPUBLISHED_S if window_s is None else window_s,
        stores_rejections=facts.stored in KEEPS_REFUSALS and not facts.facts.stored.unverified,
    )


def published_window_s(facts: Provider) -> float | None:
    """How long a key counts, if a page states it."""
    if facts.window_s is None or facts.facts.window_s.unverified:
        return None
    return inf if facts.window_s == "no end" else float(facts.window_s)


def _checked(facts: Provider, declared: str | Downstream) -> Downstream:
    """What a tool declares, if the provider does not promise less."""
    given = Downstream.of(declared)
    match given.capability:
        case Capability.TRANSACTION:
            _refuse(facts, "it is an API, and writes nothing in your transaction", given)
        case Capability.KEY:
            return _checked_key(facts, given, by_name=not isinstance(declared, Downstream))
        case Capability.PROBE:
            _check_delay(facts, given)
        case Capability.NONE:
            pass
    return given


def _checked_key(facts: Provider, given: Downstream, *, by_name: bool) -> Downstream:
    if facts.key.where == "none" or facts.repeat == "runs_again":
        why = f"it takes no key, and a repeat is another effect{_page(facts.facts.repeat)}"
        _refuse(facts, why, given)
    if by_name:
        return _key(facts)
    window_s = published_window_s(facts)
    if window_s is not None and given.window_s > window_s:
        why = (
            f"it honours a key for {span(window_s)}{_page(facts.facts.window_s)}, and not"
            f" for {span(given.window_s)}"
        )
        _refuse(facts, why, given)
    if given.stores_rejections and facts.stored not in {*KEEPS_REFUSALS, None}:
        why = f"it does not keep refusals, but {facts.stored}{_page(facts.facts.stored)}"
        _refuse(facts, why, given)
    return given


def _check_delay(facts: Provider, given: Downstream) -> None:
    lag_s = None if facts.probe is None else facts.probe.delay_s
    if given.delay_s is not None and lag_s is not None and given.delay_s < lag_s:
        why = (
            f"what it is asked may lag {span(lag_s)} behind{_page(facts.facts.probe)}, and delay"
            f" is {span(given.delay_s)}"
        )
        _refuse(facts, why, given)


def _refuse(facts: Provider, why: str, given: Downstream) -> None:
    raise ContractViolation(
        f"provider={facts.name!r} and downstream={str(given.capability)!r} contradict each other:"
        f" {facts.title}: {why}.",
        corrective_action=(
            "Leave out downstream= to get what the provider offers, or declare less. All that is"
            f" known: effectonce provider show {facts.name}"
        ),
    )


def _page(fact: Fact) -> str:
    return "" if fact.link is None else f" ({fact.link}, read on {fact.date})"


# ---------------------------------------------------------------- the key


def _shape(facts: Provider) -> KeyShape:
    """The shape that fits, checked with a key."""
    key = facts.key
    try:
        shape = KeyShape("uuid") if key.form == "uuid" else _plain(facts)
    except ValueError as error:
        raise _unfit(facts, str(error)) from None
    if not _accepts(facts, shaped_key(shape, _ANY_KEY, facts.name)):
        lengths = f"{key.length_min or 1} to {key.length_max or MOST} characters"
        raise _unfit(facts, f"it takes {lengths}, {key.pattern or 'of any kind'}.")
    return shape


def _unfit(facts: Provider, why: str) -> ContractViolation:
    return ContractViolation(
        f"no key fits provider={facts.name!r}{_page(facts.facts.key)}: {why}",
        corrective_action="Leave out provider=, and send a key of your own.",
    )


def _plain(facts: Provider) -> KeyShape:
    key, length = facts.key, facts.key.length_min or 1
    usable = [
        each
        for each in DIGITS_AND_LETTERS
        if key.pattern is None or re.fullmatch(key.pattern, each * length)
    ]
    most = MOST if key.length_max is None else min(key.length_max, MOST)
    return KeyShape("plain", length, most, "".join(usable))


def _accepts(facts: Provider, key: str) -> bool:
    accepted = facts.key
    return (accepted.length_min or 0) <= len(key) <= (accepted.length_max or MOST) and (
        accepted.pattern is None or re.fullmatch(accepted.pattern, key) is not None
    )


# ---------------------------------------------------------------- its answers


class KeyAnswer(Struct, frozen=True):
    """Is an error this answer of the provider about the key?"""

    provider: str
    status: int | None
    code: str | None

    def __call__(self, error: Any) -> bool:
        from effectonce._core.classification.signals import chain, read

        return any(self._is(read(link.thing)) for link in chain(error) if link.trusted)

    def _is(self, seen: Signals) -> bool:
        if self.status is not None and seen.status != self.status:
            return False
        if self.code is not None and not (self.code in seen.codes or self.code in seen.text):
            return False
        if self.status not in ABOUT_REQUESTS:
            return True
        return any("idempot" in each.lower() for each in (self.code or "", seen.text, *seen.codes))

    def __str__(self) -> str:
        parts = (self.provider, self.status, self.code)
        return " ".join(str(part) for part in parts if part is not None)


def _rules(facts: Provider) -> tuple[Rule, ...]:
    """Rows of the file first. None of them makes anything certain by itself: a tool may have made
    another request before. So what is refused is left to the tables.
    """
    known: dict[KeyAnswer, Verdict] = {}
    for row in facts.errors:
        if row.says != "refused":
            answer = KeyAnswer(facts.name, row.status, row.code)
            known.setdefault(answer, _verdict(facts, row.says, row.meaning))
    for given, says, meaning in (
        (facts.mismatch, "mismatch", "the key was used with another request"),
        (facts.in_flight, "in flight", "a request with this key is still running"),
    ):
        status = given if isinstance(given, int) else None
        code = given if isinstance(given, str) and _CODE.fullmatch(given) else None
        if (status, code) != (None, None):
            known.setdefault(KeyAnswer(facts.name, status, code), _verdict(facts, says, meaning))
    return tuple(Rule(answer, verdict) for answer, verdict in known.items())


def _verdict(facts: Provider, says: str, meaning: str) -> Verdict:
    why = f"{facts.title}: {meaning}"
    match says:
        case "in flight":
            return Verdict(Bucket.CONFLICT_IN_FLIGHT, Certainty.AMBIGUOUS, why)
        case "unknown":
            return Verdict(Bucket.SERVER_ERROR, Certainty.AMBIGUOUS, why)
        case "done before" if facts.stored == "the object" and not facts.facts.stored.unverified:
            # Nothing but what was created is kept: so the answer is not about a request that
            # failed.
            return Verdict(Bucket.CONFLICT, Certainty.ACTED, why)
        case _:
            return Verdict(Bucket.CONFLICT, Certainty.AMBIGUOUS, why, retry=False)
