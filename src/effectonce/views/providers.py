"""A provider in words: what it does with a repeat, and which page says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from effectonce.providers import Fact, Provider

UNKNOWN = "unknown"
FIELDS = {
    "key": "key",
    "window_s": "window",
    "stored": "stored",
    "repeat": "repeat",
    "mismatch": "mismatch",
    "in_flight": "in flight",
    "probe": "probe",
    "errors": "errors",
}
REPEATS = {
    "replay": "the first answer",
    "conflict": "a refusal",
    "conflict_with_id": "a refusal with the id",
    "latest_status": "the newest status",
    "existing_object": "what exists",
    "runs_again": "another effect",
    None: UNKNOWN,
}
STORES = {
    "all": "every answer, server errors included",
    "refusals too": "successes and refusals",
    "successes": "successes only",
    "the object": "what was created, under its key",
    "nothing": "nothing",
    None: UNKNOWN,
}


def key_place(provider: Provider) -> str:
    """Where the key goes."""
    key = provider.key
    return "none" if key.name is None else f"{key.where} {key.name}"


def key_shape(provider: Provider) -> str:
    """Which keys are accepted, as far as that is known."""
    key = provider.key
    if key.where == "none":
        return ""
    shape = [_lengths(key.length_min, key.length_max)]
    shape += [key.pattern or "", "a UUID fits" if key.form == "uuid" else ""]
    shape += [{True: "required", False: "optional", None: ""}[key.required]]
    return ", ".join(part for part in shape if part)


def window(provider: Provider) -> str:
    """How long a key counts."""
    from effectonce._text import span  # noqa: PLC0415  # with the first provider

    match provider.window_s:
        case None:
            return UNKNOWN
        case int(length_s):
            return span(length_s)
        case endless:
            return endless


def overview(provider: Provider) -> tuple[str, str, str]:
    """The key, the window and what a repeat gets, in brief. What no page states has a `?`."""
    facts = provider.facts
    return (
        _marked(key_place(provider), facts.key),
        "-" if provider.key.where == "none" else _marked(window(provider), facts.window_s),
        _marked(REPEATS[provider.repeat], facts.repeat),
    )


def answers(provider: Provider) -> list[tuple[str, str, str]]:
    """Every field about repeats that says something: name in a file, label, and value in words."""
    key = ": ".join(part for part in (key_place(provider), key_shape(provider)) if part)
    probe = provider.probe
    rows = [
        ("key", "key", key),
        ("window_s", "window", window(provider)),
        ("stored", "stored", STORES[provider.stored]),
        ("repeat", "a repeat gets", REPEATS[provider.repeat]),
        ("mismatch", "another request", _answer(provider.mismatch)),
        ("in_flight", "in flight", _answer(provider.in_flight)),
        ("probe", "ask by", UNKNOWN if probe is None else probe.by),
    ]
    if probe is not None:
        proof = _not_found(proof=probe.not_found_is_proof, delay_s=probe.delay_s)
        rows.append(("", "not found", proof))
    for error in provider.errors:
        name = " ".join(str(part) for part in (error.status, error.code) if part is not None)
        rows.append(("errors", "error", f"{name}: {error.meaning}"))
    return rows


def remark(fact: Fact) -> str:
    """What has to be said beside a value: that no page states it, or what else the page says."""
    parts = ("unverified" if fact.unverified else "", fact.note or "")
    return ": ".join(part for part in parts if part)


def sources(provider: Provider) -> Iterator[tuple[str, dt.date, str]]:
    """Each page, the day on which it was read, and the fields that it is about."""
    from msgspec.structs import asdict  # noqa: PLC0415  # with the first provider

    pages: dict[tuple[str, dt.date], list[str]] = {}
    for name, fact in asdict(provider.facts).items():
        if not fact.unverified:
            pages.setdefault((fact.link, fact.date), []).append(FIELDS[name])
    for (link, day), names in pages.items():
        yield link, day, ", ".join(names)


def _marked(words: str, fact: Fact) -> str:
    if words == UNKNOWN:
        return "?"
    return f"{words} ?" if fact.unverified else words


def _lengths(shortest: int | None, longest: int | None) -> str:
    match shortest, longest:
        case None, None:
            return ""
        case None, _:
            return f"up to {longest} characters"
        case _, None:
            return f"at least {shortest} characters"
        case _:
            return f"{shortest} to {longest} characters"


def _answer(value: int | str | None) -> str:
    return UNKNOWN if value is None else str(value)


def _not_found(*, proof: bool, delay_s: int | None) -> str:
    from effectonce._text import span  # noqa: PLC0415  # with the first provider

    said = "is proof that it did not happen" if proof else "is no proof that it did not happen"
    return said if delay_s is None else f"{said}; the answer may lag {span(delay_s)} behind"
