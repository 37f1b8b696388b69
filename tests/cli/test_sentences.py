"""What is said about an effect, for each way in which a record can stand."""

from math import inf

import pytest
from msgspec.structs import replace

from effectonce._core.record import Record, State
from effectonce.cli._effects import next_steps
from effectonce.testing.conformance.bench import KEYED, PROBED, request
from effectonce.views.effects import abandoned, step_of, verdict
from effectonce.views.times import iso, span

NOW = 1_000_000.0
SENT = {"sends": 1, "first_dispatch_at": NOW - 100}
GONE, HELD = {"lease_until": NOW - 10}, {"lease_until": NOW + 10}


def record(state, *, on=None, **changes):
    fields = {"token": "t", "lease_until": NOW - 10, "created_at": NOW - 100, **changes}
    return replace(
        Record(request("0" * 28 + "abcdef123456", on=on), state, 1, "t", 0.0, 0.0), **fields
    )


@pytest.mark.parametrize(
    ("stands", "said"),
    [
        (record(State.COMPLETED, **SENT), "It happened. Every later call gets the stored result."),
        (
            record(State.COMPLETED, sends=3),
            (
                "It happened. It was sent 3 times under one key. Every later call gets the stored"
                " result."
            ),
        ),
        (
            record(State.COMPLETED, settled_by="probe"),
            "It happened: the downstream has it. Every later call gets the stored result.",
        ),
        (
            record(State.COMPLETED, settled_by="late evidence"),
            "It happened: its answer came late. Every later call gets the stored result.",
        ),
        (
            record(State.COMPLETED, settled_by="ada"),
            "It happened: ada says so. Every later call gets the stored result.",
        ),
        (
            record(State.FAILED),
            "It did not happen: the downstream refused it. Every later call gets this failure.",
        ),
        (
            record(State.FAILED, settled_by="ada"),
            "It did not happen: ada says so. Every later call gets this failure.",
        ),
        (
            record(State.IN_DOUBT, **SENT),
            "It is unknown whether it happened. It is not sent again until that is settled.",
        ),
        (record(State.DISPATCHED, **SENT, **HELD), "It is being done right now."),
        (record(State.CLAIMED, **HELD), "It is claimed; nothing was sent yet."),
        (
            record(State.CLAIMED, **GONE),
            "Nothing was sent, and its owner is gone. The next call does it.",
        ),
        (
            record(State.DISPATCHED, **SENT, **GONE),
            (
                "It may have happened, and its owner is gone. The next call, or the next sweep,"
                " puts it in doubt."
            ),
        ),
        (
            record(State.DISPATCHED, on=KEYED, **SENT, **GONE),
            (
                "It may have happened, and its owner is gone. The next call sends the same request"
                " again under the same key."
            ),
        ),
        (
            record(State.CLAIMED, on=KEYED, settled_by="ada", **SENT, **GONE),
            (
                "ada asked for another attempt. The next call sends the same request again under"
                " the same key."
            ),
        ),
        (
            record(State.TOMBSTONE),
            (
                "It had an outcome, which is forgotten since its window ended. Its key is refused,"
                " and never run again."
            ),
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else f"{value.state} {value.settled_by}",
)
def test_a_verdict_for_every_way_to_stand(stands, said):
    assert verdict(stands, NOW) == said


@pytest.mark.parametrize(
    ("stands", "steps"),
    [
        (record(State.IN_DOUBT, **SENT), ["it happened", "it did not"]),
        (
            record(State.IN_DOUBT, on=PROBED, **SENT),
            ["ask the downstream", "it happened", "it did not"],
        ),
        (record(State.IN_DOUBT, on=KEYED, **SENT), ["it happened", "it did not", "send it again"]),
        (record(State.DISPATCHED, **SENT, **GONE), ["put it in doubt"]),
        (record(State.DISPATCHED, on=KEYED, **SENT, **GONE), []),
        (record(State.COMPLETED), []),
    ],
)
def test_what_can_be_done_is_what_the_store_would_allow(stands, steps):
    assert [what for what, _ in next_steps(stands, NOW)] == steps
    assert all(
        "eff_abcdef123456" in command or "store gc" in command
        for _, command in next_steps(stands, NOW)
    )


def test_only_what_was_sent_is_abandoned():
    assert not abandoned(record(State.CLAIMED, **GONE), NOW)
    assert abandoned(record(State.CLAIMED, **SENT, **GONE), NOW)
    assert not abandoned(record(State.DISPATCHED, **SENT, **HELD), NOW)


def test_a_step_that_is_another_effect_is_named_by_its_reference():
    nested = record(State.COMPLETED)
    nested = replace(
        nested, request=replace(nested.request, step="inside " + "f" * 28 + "123456abcdef")
    )

    assert step_of(nested) == "inside eff_123456abcdef"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (90_000, "25 h"),
        (200_000, "2 days"),
        (inf, "ever"),
    ],
)
def test_a_span_is_said_in_one_unit(seconds, said):
    assert span(seconds) == said


def test_what_never_comes_is_null():
    assert iso(inf) is iso(0.0) is None
    assert iso(1_763_200_000.5) == "2025-11-15T09:46:40.500Z"
