"""What it costs to canonicalise and hash a request, beside the reference package and beside ways
that are not exact.

python bench/canonical.py [--quick] [--json]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import orjson
import rfc8785
from _paired import Goal, Row, averaged, machine, options, report, speedup, take_turns

from effectonce._core.canonical import canonical, fingerprint


def document(lines: int) -> dict[str, Any]:
    """The arguments of a realistic tool call: ids, integers, nested lists, a few floats, some
    text.
    """
    return {
        "order_id": "ord_8f14e45fceea167a",
        "customer": {"id": 48213, "name": "Zoë Brandstätter", "vip": False, "referrer": None},
        "items": [
            {
                "sku": f"SKU-{n:04d}",
                "quantity": n % 7 + 1,
                "cents": 1999 + 13 * n,
                "weight_kg": 0.35 + n / 8 + 0.01,
                "tags": ["a", "b"],
            }
            for n in range(lines)
        ],
        "route": [[52, 13], [48, 11], [47, 8]],
        "note": (
            "The parcel arrived damaged; the customer asks for the whole amount back on the same"
            " card, please. " * (lines // 5)
        ),
        "currency": "eur",
    }


def contenders(doc: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    return {
        "ours": lambda: fingerprint(canonical(doc)),
        "rfc8785": lambda: hashlib.sha256(rfc8785.dumps(doc)).hexdigest(),
        "json.dumps": (
            lambda: hashlib.sha256(
                json.dumps(doc, sort_keys=True, separators=(",", ":")).encode()
            ).hexdigest()
        ),
        "orjson": (
            lambda: hashlib.sha256(orjson.dumps(doc, option=orjson.OPT_SORT_KEYS)).hexdigest()
        ),
    }


def rows_of(size: str, doc: dict[str, Any], slices: int, ops: int) -> list[Row]:
    assert canonical(doc) == rfc8785.dumps(doc)
    hashers = contenders(doc)
    seconds = take_turns(
        {name: lambda op=op: averaged(op, ops) for name, op in hashers.items()}, slices
    )
    goal = Goal(">=", 12) if size == "1 kB" else None
    return [
        speedup(f"{size}, beside rfc8785", seconds["ours"], seconds["rfc8785"], goal),
        speedup(f"{size}, beside json.dumps (not exact)", seconds["ours"], seconds["json.dumps"]),
        speedup(f"{size}, beside orjson (not exact)", seconds["ours"], seconds["orjson"]),
    ]


def main() -> None:
    chosen = options(__doc__)
    slices, ops = (2, 20) if chosen.quick else (60, 50)
    small, large = document(9), document(94)
    sizes = {"documents": f"{len(canonical(small))} and {len(canonical(large))} bytes"}
    rows = rows_of("1 kB", small, slices, ops) + rows_of("10 kB", large, slices, max(ops // 5, 5))
    report(rows, chosen, machine() | sizes)


if __name__ == "__main__":
    main()
