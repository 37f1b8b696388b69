"""What an error says about the effect: certainty first, then whether another attempt makes sense.

What an error says, it says about the request that raised it. It speaks about the effect only if
the tool makes one request and no more: the connection that was refused may be the tool's second
request, or an SDK's own retry after a time-out. So in a guarded call nothing is inferred from
the error alone, unless the tool says `one_request=True`. What a tool declares itself
(`not_sent=`, `rejected=`, rules, `NotSent`, `Rejected`) is taken at its word. What the error
says about its own request is kept beside it (`of_request`), for `witness.py`, which knows what
else was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from effectonce._core.classification.verdicts import (
    UNKNOWN,
    Basis,
    Bucket,
    Certainty,
    Scope,
    Verdict,
)
from effectonce._core.safe_access import attempt, get

__all__ = [
    "UNKNOWN",
    "Bucket",
    "Certainty",
    "Classifier",
    "Rule",
    "Rules",
    "Scope",
    "Verdict",
    "classifier",
    "classify",
]

OURS = "effectonce"  # what a verdict of our own errors matched
READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
REPEATABLE_METHODS = READS | {"PUT", "DELETE"}  # RFC 9110: idempotent
Classifier = Callable[[BaseException], Verdict]


class Rule(Struct, frozen=True):
    """What you know better: errors like *when* mean *then*.

    *when* is an exception type, `"package.ClassName"` or a pair of both, an HTTP status, an
    error code, or a function of the error. *then* is a `Verdict`, or a `Bucket` if that is all
    that is to be said: the certainty is then ambiguous.
    """

    when: Any
    then: Verdict | Bucket

    def __post_init__(self) -> None:
        pair = (
            isinstance(self.when, tuple)
            and len(self.when) == 2
            and all(isinstance(part, str) for part in self.when)
        )
        if not (pair or isinstance(self.when, str | int) or callable(self.when)):
            raise TypeError(
                f"Rule(when={self.when!r}): give an exception type, 'package.Name', a status, a"
                " code or a function"
            )
        if not isinstance(self.then, Verdict | Bucket):
            raise TypeError(f"Rule(then={self.then!r}): give a Verdict or a Bucket")

    @property
    def verdict(self) -> Verdict:
        given = (
            Verdict(self.then, Certainty.AMBIGUOUS) if isinstance(self.then, Bucket) else self.then
        )
        return given.but(why=given.why or "a rule says so", matched=f"rule: {_shown(self.when)}")


Rules: TypeAlias = "Iterable[Rule] | Mapping[Any, Verdict | Bucket]"


def as_rules(rules: Rules) -> tuple[Rule, ...]:
    """Rules as they are written: a list, or a mapping from *when* to *then*."""
    made: list[Any] = (
        [Rule(when, then) for when, then in rules.items()]
        if isinstance(rules, Mapping)
        else _listed(rules)
    )
    if not all(isinstance(rule, Rule) for rule in made):
        raise TypeError(f"rules={rules!r}: give Rule(when=..., then=...) in a list, or a mapping")
    return tuple(made)


def _listed(rules: Any) -> list[Any]:
    return list(rules) if isinstance(rules, Iterable) else [None]


def classify(error_or_response: Any, *, now: float | None = None, rules: Rules = ()) -> Verdict:
    """What does this error, or response, mean? Never raises; what is not known is ambiguous and
    not retried.

    *now* is the time in seconds since 1970: a `Retry-After` may be a date. Without it, the date
    of the response itself is used. Of the *rules*, the first that matches wins over the tables.
    """
    made = as_rules(rules)
    try:
        ruled = _by_rules(error_or_response, made, now) if made else None
        return _by_tables(error_or_response, now) if ruled is None else ruled
    except Exception:  # noqa: BLE001  # an object that fights back: nothing is known about it
        return UNKNOWN


def _by_tables(thing: Any, now: float | None) -> Verdict:
    # Late: the tables are read when the first error is, not when effectonce is imported.
    from effectonce._core.classification.matching import judge

    return judge(thing, now)


def _by_rules(thing: Any, rules: tuple[Rule, ...], now: float | None) -> Verdict | None:
    from effectonce._core.classification.matching import delay_asked, word_from_below
    from effectonce._core.classification.signals import chain, read

    links = [(link, read(link.thing)) for link in chain(thing)]
    seen = [(link.thing, signals) for link, signals in links if link.trusted]
    for rule in rules:
        match rule.when:
            case type() as wanted:
                hit = any(isinstance(one, wanted) for one, _ in seen)
            case (package, name):
                hit = any(f"{package}.{name}" in signals.classes for _, signals in seen)
            case int() as status:
                hit = any(signals.status == status for _, signals in seen)
            case str() as named:
                hit = any(named in signals.classes or named in signals.codes for _, signals in seen)
            case asked:
                hit = bool(attempt(asked, thing))
        if hit:
            every = [signals for _, signals in links]
            verdict = rule.verdict
            if verdict.retry_after_s is None:
                verdict = verdict.but(retry_after_s=delay_asked(every, now))
            return word_from_below(verdict, every)
    return None


def _shown(when: Any) -> str:
    if isinstance(when, tuple):
        return ".".join(when)
    return str(getattr(when, "__qualname__", when))


def classifier(
    not_sent: tuple[type[BaseException], ...],
    rejected: tuple[type[BaseException], ...],
    *,
    rules: tuple[Rule, ...] = (),
    one_request: bool = False,
    wall_clock: Callable[[], float] | None = None,
) -> Classifier:
    """A classifier that knows what one tool declares about its own exceptions, and the tables."""

    def verdict_of(error: BaseException) -> Verdict:
        declared = get(error, "effectonce_verdict")
        if isinstance(declared, Verdict):
            # A breaker, and a retry that gave up, speak for one of the tool's requests; the tool
            # itself speaks for the effect. A read that it makes speaks for itself alone.
            whole = one_request or (
                declared.matched != OURS and get(error, "effectonce_read") is not True
            )
            is_read = get(error, "effectonce_read") is True
            return (
                declared.but(basis=Basis.DECLARED)
                if whole
                else _about_one_of_many(declared, is_read=is_read)
            )
        verdict = classify(error, now=None if wall_clock is None else wall_clock(), rules=rules)
        if verdict.matched.startswith("rule: "):
            if verdict.done_before and _answered_method(error) in REPEATABLE_METHODS:
                verdict = verdict.but(certainty=Certainty.AMBIGUOUS)  # no key went with it
            return verdict.but(basis=Basis.DECLARED)
        if isinstance(error, not_sent) and not attempt(_unsure, error):
            why = "declared by the tool as raised before anything is sent"
            return verdict.but(
                certainty=Certainty.NOT_SENT, retry=verdict.retryable, why=why, basis=Basis.DECLARED
            )
        if isinstance(error, rejected) and not attempt(_unsure, error):
            why, delay_s = "declared by the tool as a definite refusal", verdict.retry_after_s
            refused = Verdict(
                verdict.bucket,
                Certainty.REJECTED,
                why,
                delay_s,
                Scope.REQUEST,
                retry=False,
                matched=verdict.matched,
            )
            return refused.but(basis=Basis.DECLARED)
        if one_request:
            return (
                verdict
                if verdict.certainty is Certainty.AMBIGUOUS
                else verdict.but(basis=Basis.DECLARED)
            )
        # a request that changes nothing says nothing about the one that does
        return _about_one_of_many(verdict, is_read=_answered_method(error) in READS)

    return verdict_of


def _unsure(error: BaseException) -> bool:
    """Does a layer below say an attempt may have landed? A tool's declaration covers only one."""
    from effectonce._core.classification.signals import chain, read

    return any(read(link.thing).unsure for link in chain(error))


def _about_one_of_many(verdict: Verdict, *, is_read: bool) -> Verdict:
    """The tool may have made another request before the one that this is about."""
    if verdict.certainty is Certainty.AMBIGUOUS:
        return verdict
    why, of_request = (
        f"{verdict.why}: an earlier request may have left",
        None if is_read else verdict,
    )
    return verdict.but(
        certainty=Certainty.AMBIGUOUS, retry=verdict.retryable, why=why, of_request=of_request
    )


def _answered_method(error: BaseException) -> Any:
    """The method of the request that it is about, if it says so."""
    from effectonce._core.classification.signals import chain

    methods = (_method_of(link.thing) for link in chain(error))
    # of the last one: others were dealt with
    return next((method for method in methods if method is not None), None)


def _method_of(error: Any) -> Any:
    requests = (
        get(error, "request"),
        get(get(error, "response"), "request"),
        get(error, "request_info"),
    )
    return next(
        (method for request in requests if isinstance(method := get(request, "method"), str)), None
    )
