"""A sweep finds by `due_at` exactly what the table lets it change."""

from math import inf

from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.examples import examples

from effectonce._core.guarantees import Capability, Kind
from effectonce._core.ops import Sweep
from effectonce._core.record import Record, Scene, State
from effectonce._core.rules import due_at
from effectonce._core.transitions import transition
from effectonce.testing.conformance.bench import request, terms

MOMENTS = st.integers(0, 20).map(float)
SPANS = st.sampled_from([0.0, 3.0, 7.0, inf])


@st.composite
def records(draw):
    base = terms(draw(st.sampled_from(Capability)), draw(st.sampled_from(Kind)))
    on = replace(base, resend_s=draw(SPANS), tombstone_s=draw(SPANS))
    state = draw(st.sampled_from([state for state in State if state is not State.ABSENT]))
    sent = state is not State.CLAIMED or draw(st.booleans())
    return Record(
        request(on=on),
        state,
        1,
        "token",
        lease_until=draw(MOMENTS),
        created_at=0.0,
        sends=draw(st.integers(1, 3)) if sent else 0,
        first_dispatch_at=draw(MOMENTS),
        dedup_until=draw(MOMENTS | st.just(inf))
        if state in (State.COMPLETED, State.FAILED, State.TOMBSTONE)
        else inf,
    )


@examples(records(), MOMENTS)
def test_a_record_is_due_exactly_when_a_sweep_changes_it(record, now):
    assert transition(record, Sweep(), Scene(now)).changed == (due_at(record) <= now)
