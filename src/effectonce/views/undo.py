"""What is shown of an undo: on the effect that was undone, and on the undo itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from effectonce._core.effect_ref import EffectRef
from effectonce._core.record import Record, State
from effectonce._core.undo import UndoRequest, read_request, undoes
from effectonce.views.times import iso


def undo_request(record: Record) -> UndoRequest | None:
    """Who asked first for its undo; None: it was not asked for."""
    asked = (read_request(entry) for entry in record.evidence)
    return next((request for request in asked if request is not None), None)


def undo_data(record: Record, find: Callable[[str], Record | None]) -> dict[str, Any]:
    """`undo`: what became of its undo; `undoes`: the effect that it is the undo of."""
    request = undo_request(record)
    if request is None:
        return {"undo": None, "undoes": undoes(record)}
    found = find(request.key) if request.key else None
    asked = {
        "reference": EffectRef("", request.key).reference if request.key else None,
        "state": None if found is None else found.state,
        "asked_by": request.by,
        "reason": request.reason,
        "at": iso(request.at),
    }
    return {"undo": asked, "undoes": undoes(record)}


def undo_sentence(data: dict[str, Any]) -> str:
    """The same for people; "": there is no undo."""
    undo = data["undo"]
    if undo is None:
        return "" if data["undoes"] is None else f"It is the undo of {data['undoes']}."
    who = f"{undo['asked_by'] or 'a person'}: {undo['reason']}"
    if undo["state"] == State.COMPLETED:
        return f"It was undone by {undo['reference']}, asked for by {who}"
    stands = "not begun" if undo["state"] is None else undo["state"].replace("_", " ")
    name = f", {undo['reference']}," if undo["reference"] else ""
    return f"Its undo{name} is {stands}, asked for by {who}"
