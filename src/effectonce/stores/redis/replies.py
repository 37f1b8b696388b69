"""What the server's replies mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from effectonce._core.ops import Cell, Recorded
from effectonce._core.record import Request
from effectonce.stores._roundtrip import SeenRecord
from effectonce.stores.redis import records
from effectonce.stores.redis.url import Address


def node_address(node: Sequence[Any], seed: Address) -> Address:
    return (node[0].decode() if node[0] else seed[0], node[1])


def born(request: Request, reply: Any) -> Recorded | SeenRecord | None:
    if reply == 1:
        return None
    known = (
        None
        if reply[1] is None
        else records.recorded(reply[1], request.fingerprint, records.number(reply[0]))
    )
    return known or seen_record(request.key, "", reply)


def cell_written(reply: Any) -> Cell | None:
    return None if reply == 1 else records.read_cell(reply)


def seen_record(key: str, after: str, reply: Sequence[Any]) -> SeenRecord:
    now, written, holder, rival, *predecessor = reply
    record, revision = (None, 0) if written is None else records.read(key, written)
    return SeenRecord(
        records.number(now),
        record,
        revision,
        None if rival is None else records.read(holder.decode(), rival)[0],
        (
            records.read(after, predecessor[0])[0]
            if predecessor and predecessor[0] is not None
            else None
        ),
    )
