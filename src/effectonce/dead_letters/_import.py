"""Take a letter from a file into a store by ordinary ops: only what the table allows is written."""

from __future__ import annotations

from effectonce._core.guarantees import Capability
from effectonce._core.ops import Attest, Busy, Claim, Doubt, Early, Find, Flow, Held, Latched
from effectonce._core.record import Record, State
from effectonce.dead_letters._file import BadLine, Carried
from effectonce.dead_letters._letter import OPEN, looked_up
from effectonce.dead_letters._redriving import in_the_way

IMPORT_LEASE_S = 30.0  # no worker takes what is to be in doubt before it is


def taken(carried: Carried, token: str) -> Flow[bool]:
    """Make the record of a letter, or finish a killed import. False: there was nothing to do.

    The token is made of the line, so that the same line finds its own record again, and leaves
    one alone that has moved on since.
    """
    record, now = yield from looked_up(carried.key)
    new = record is None
    if record is None:
        record = yield from _born(carried, token, now)
    elif record.request.fingerprint != carried.fingerprint:
        raise BadLine("its key is taken by another request in this store; nothing was changed")
    elif token not in (record.token, record.dtoken) or record.state not in OPEN:
        return False
    if carried.state is State.IN_DOUBT and record.state is State.DISPATCHED:
        yield from Doubt(carried.key, token, record.epoch, carried.reason)
        new = True
    for entry in carried.evidence:
        if entry not in record.evidence:
            yield from Attest(carried.key, entry.note, entry.outcome, entry.at)
            new = True
    return new


def _born(carried: Carried, token: str, now: float) -> Flow[Record]:
    request = carried.request(now)
    sent = carried.sends > 0 and request.terms.downstream is not Capability.TRANSACTION
    lease_s = IMPORT_LEASE_S if carried.state is State.IN_DOUBT else 0.0
    reply = yield from Claim(request, token, lease_s, dispatch=sent)
    if not isinstance(reply, Held):
        why = "another process has made it meanwhile"
        if isinstance(reply, Busy | Latched | Early):
            why = in_the_way(reply)
        raise BadLine(f"{why}; nothing was changed")
    record = yield from Find(carried.key)
    assert record is not None
    return record
