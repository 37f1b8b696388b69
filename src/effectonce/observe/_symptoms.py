"""Calls that should have been one: the symptoms of a key that changes between attempts. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from effectonce.observe._hash_chain import Entry, began_at

_CALL_ID = re.compile(r"^(call|toolu|tooluse|chatcmpl|run|resp|msg)[_-]", re.IGNORECASE)
_RANDOM = re.compile(
    r"^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$|^[0-9a-f]{16,}$|^\d{10,}(\.\d+)?$",
    re.IGNORECASE,
)
_RUN = re.compile(r"^.+ eff_[0-9a-f]{12}$")  # the scope of a step of a workflow


class Symptom(Struct, frozen=True):
    """Two effects that were probably meant to be one."""

    what: str  # same_arguments, one_argument_differs, around_a_deploy
    tool: str
    effects: tuple[str, str]  # their references
    at: float
    apart_s: float
    differs: str  # step, scope, tenant, ordinal, or the name of an argument
    likely: str  # in a sentence


def symptoms(reserved: Iterable[Entry], within_s: float, deploy_s: float) -> list[Symptom]:
    """Look at every reserved effect, by time. Only those that could be two of one are compared."""
    begun: dict[str, float] = {}
    alike: dict[Alike, list[Entry]] = defaultdict(list)
    known: set[str] = set()  # the first entry of an effect counts; later ones go on with it
    found: list[Symptom] = []
    for entry in reserved:
        begun.setdefault(entry.stream, began_at(entry.stream) or entry.at)
        if entry.effect in known:
            continue
        known.add(entry.effect)
        fresh = entry.at - begun[entry.stream] <= deploy_s
        reach_s = max(within_s, deploy_s) if fresh else within_s
        near = [
            symptom
            for kind in _looks_for(entry)
            if (symptom := _nearest(alike.get(kind, []), entry, within_s, reach_s, fresh=fresh))
            is not None
        ]
        if near:  # the nearest one says it all
            found.append(min(near, key=lambda symptom: symptom.apart_s))
        for kind in _found_by(entry):
            alike[kind].append(entry)
    return found


def _nearest(
    others: list[Entry], entry: Entry, within_s: float, reach_s: float, *, fresh: bool
) -> Symptom | None:
    for other in reversed(others):
        if entry.at - other.at > reach_s:
            return None
        if other.stream == entry.stream and entry.at - other.at > within_s:
            continue
        symptom = _compared(other, entry, around=fresh and other.stream != entry.stream)
        if symptom is not None:
            return symptom
    return None


Alike = tuple[object, ...]


def _looks_for(entry: Entry) -> Iterator[Alike]:
    """Where to find effects to compare: the same request, or in one place all arguments but one."""
    asked = entry.tool, entry.fingerprint
    yield "outside a run", *asked
    yield ("in this run", *asked, entry.scope) if _RUN.match(entry.scope) else ("in a run", *asked)
    yield from _all_but_one(entry)


def _found_by(entry: Entry) -> Iterator[Alike]:
    asked = entry.tool, entry.fingerprint
    if _RUN.match(entry.scope):
        yield "in a run", *asked
        yield "in this run", *asked, entry.scope
    else:
        yield "outside a run", *asked
    yield from _all_but_one(entry)


def _all_but_one(entry: Entry) -> Iterator[Alike]:
    arguments = sorted(entry.arguments.items())
    if len(arguments) > 1:
        for name, _ in arguments:
            others = tuple(each for each in arguments if each[0] != name)
            yield entry.tool, entry.tenant, entry.scope, entry.step, name, others


def _compared(a: Entry, b: Entry, *, around: bool) -> Symptom | None:
    if a.scope != b.scope and _RUN.match(a.scope) and _RUN.match(b.scope):
        return None  # steps of two runs: if these should have been one, their runs tell
    if a.fingerprint == b.fingerprint:
        what, (differs, likely) = "around_a_deploy" if around else "same_arguments", _where(a, b)
        if around:
            likely = f"A process that had just started did it again under another key. {likely}"
    else:
        what, differs = "one_argument_differs", _one_that_differs(a, b)
        if not differs:
            return None
        likely = (
            f"Only the argument {differs!r} differs, in one place. If it changes with every"
            f" attempt, declare volatile=[{differs!r}]."
        )
    return Symptom(what, b.tool, (a.effect, b.effect), b.at, b.at - a.at, differs, likely)


def _one_that_differs(a: Entry, b: Entry) -> str:
    """The one argument that tells two calls apart; "" if not exactly one, or not of one place."""
    one_place = (a.tenant, a.scope, a.step) == (b.tenant, b.scope, b.step)
    if not one_place or a.arguments.keys() != b.arguments.keys():
        return ""
    names = [name for name, digest in a.arguments.items() if b.arguments[name] != digest]
    return names[0] if len(names) == 1 and len(a.arguments) > 1 else ""


def _where(a: Entry, b: Entry) -> tuple[str, str]:
    """What differs between two places that asked for the same, and what that usually means."""
    if a.tenant != b.tenant:
        return "tenant", (
            "The tenant differs: two customers may well ask for the same. If it is one, name it the"
            " same."
        )
    if a.scope != b.scope:
        if _RANDOM.match(b.scope) or _CALL_ID.match(b.scope):
            return "scope", (
                "The scope looks like the id of one run. Use what stays: the conversation, the"
                " order, the workflow id."
            )
        return "scope", (
            "The scope differs. If it is one conversation or workflow, it must have one name."
        )
    if a.step == b.step:
        return "ordinal", (
            "Same place, same arguments: the model asked again after it was shown the result, or"
            " `delivered` says so wrongly."
        )
    if _CALL_ID.match(b.step):
        return "step", (
            "The step looks like a tool_call_id, which is another one whenever the model decides"
            " again. Name the step."
        )
    if _RANDOM.match(b.step):
        return "step", (
            "The step looks random or like a time: made anew for every attempt. Make it before the"
            " first one, and keep it."
        )
    return "step", (
        "The step differs. A step id that counts attempts or loops of a retry makes every attempt a"
        " new effect."
    )
