"""What every store behind a wire shares: decide by the table, swap, and start again if somebody
was faster.
"""

import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import Scene, State
from effectonce._core.transitions import transition
from effectonce._drivers import drive
from effectonce.stores._roundtrip import PATIENCE, CompareAndSwap, SeenRecord, answer, decide_once
from effectonce.testing.conformance.bench import request

RECORD = transition(None, ops.Claim(request(), "t", 30.0, dispatch=True), Scene(1.0)).after
COMPLETE = ops.Complete("k", "t", 1, b"done")


def wire(seen, *, swaps):
    """A backend whose record is always *seen*, and that swaps or does not."""
    return lambda exchange: swaps if isinstance(exchange, CompareAndSwap) else seen


def test_a_record_that_never_keeps_still_is_given_up():
    with pytest.raises(StoreUnavailable, match=f"changed {PATIENCE} times"):
        drive(answer(ops.Renew("k", "t", 1, 30.0)), wire(SeenRecord(2.0, RECORD, 1), swaps=False))


@pytest.mark.parametrize(
    ("record", "swaps", "reply"),
    [
        (RECORD, True, ops.Applied(1)),
        (RECORD, False, ops.Refused(State.DISPATCHED)),
        (None, True, ops.Refused(None)),
    ],
    ids=["it is ours", "somebody was faster", "there is none"],
)
def test_a_transaction_completes_only_by_changing_the_record(record, swaps, reply):
    assert drive(decide_once(COMPLETE), wire(SeenRecord(2.0, record, 1), swaps=swaps)) == reply
