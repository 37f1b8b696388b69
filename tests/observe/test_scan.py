"""The symptoms of a key that changes from one attempt to the next, and what is likely wrong."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectonce import Guard, Stable
from effectonce.observe import Audit, Entry
from effectonce.observe._symptoms import symptoms
from effectonce.stores.memory import MemoryStore


@pytest.fixture
def guard():
    return Guard(MemoryStore(), secret=b"s" * 32)


@pytest.fixture
def audit(guard):
    audit = Audit(guard)
    guard.observe(audit)
    return audit


def reserved(number, at, stream="0000000f4240-a", **said):
    return Entry(
        number=number,
        at=at,
        event="reserved",
        tool="pay",
        effect=f"eff_{number:012x}",
        stream=stream,
        **said,
    )


def payer(guard, **contract):
    @guard.tool(kind="write", name="pay", **contract)
    def pay(invoice: str, amount: int, trail: str = ""):
        return invoice

    return pay


def test_steps_of_two_runs_are_two(guard, audit):
    """They have the same arguments, or none, and that is no symptom: if the runs should have
    been one, they tell.
    """

    @guard.workflow
    def order(run, number: int, note: str):
        return run.step("pack", lambda: "packed")

    order(1, "fragile")
    order(2, "heavy")

    assert audit.scan() == []


def test_a_tool_call_id_as_a_step_is_found(guard, audit):
    pay = payer(guard)
    for call_id in ("call_Xk2", "call_9dJ"):
        with guard.step("chat", Stable(call_id)):
            pay("inv_1", 100)

    (symptom,) = audit.scan()

    assert (symptom.what, symptom.differs, symptom.tool) == ("same_arguments", "step", "pay")
    assert "tool_call_id" in symptom.likely
    assert symptom.apart_s < 10


def test_a_step_that_is_random_or_counts_attempts_is_found(guard, audit):
    pay = payer(guard)
    for step in (uuid.uuid4().hex, uuid.uuid4().hex):
        with guard.step("chat", Stable(step)):
            pay("inv_1", 100)
    for attempt in (1, 2):
        with guard.step("chat", Stable(f"pay-try-{attempt}")):
            pay("inv_2", 100)

    random, counted = audit.scan()

    assert "random" in random.likely
    assert "counts attempts" in counted.likely


def test_a_scope_that_is_the_id_of_one_run_is_found(guard, audit):
    pay = payer(guard)
    for scope in ("run_1", "run_2"):
        with guard.step(scope, "pay"):
            pay("inv_1", 100)
    (symptom,) = audit.scan()
    assert symptom.differs == "scope"
    assert "one run" in symptom.likely


def test_a_volatile_field_in_the_identity_is_named(guard, audit):
    pay = payer(guard)
    for trail in ("a", "b"):
        with guard.step("chat", "pay", latch=False):
            pay("inv_1", 100, trail)
    (symptom,) = audit.scan()
    assert (symptom.what, symptom.differs) == ("one_argument_differs", "trail")
    assert "volatile=['trail']" in symptom.likely


def test_what_was_meant_to_be_two_is_left_alone(guard, audit):
    pay = payer(guard)
    with guard.step("chat", "pay", latch=False):
        pay("inv_1", 100)
        pay("inv_2", 200)
        pay("inv_1", 100)
    with guard.step("chat", "another step"):
        pay("inv_3", 100)
    assert audit.scan() == []


def test_other_tenants_and_places_that_ask_for_the_same_are_told_apart(guard, audit):
    pay = payer(guard)
    for tenant in ("a", "b"):
        with guard.step("chat", "pay", tenant=tenant):
            pay("inv_1", 100)
    assert [symptom.differs for symptom in audit.scan()] == ["tenant"]


def test_it_is_a_matter_of_seconds():
    early = reserved(1, 100.0, "0-a", fingerprint="f", step="one")
    late = reserved(2, 111.0, "0-a", fingerprint="f", step="two")

    assert symptoms([early, late], 10.0, 120.0) == []
    assert len(symptoms([early, late], 11.0, 120.0)) == 1


def test_a_duplicate_right_after_a_deploy_is_found():
    started = f"{100_000:012x}-new"  # in milliseconds: at 100 s
    early = reserved(1, 50.0, "0-old", fingerprint="f", step="one")
    late = reserved(2, 130.0, started, fingerprint="f", step="one")
    much_later = reserved(3, 300.0, started, fingerprint="f")

    (symptom,) = symptoms([early, late], 10.0, 120.0)

    assert symptom.what == "around_a_deploy"
    assert "just started" in symptom.likely
    assert symptoms([early, much_later], 10.0, 120.0) == []


def test_a_stream_whose_name_says_nothing_about_its_beginning_begins_with_its_first_entry():
    early = reserved(1, 50.0, "old", fingerprint="f")
    late = reserved(2, 55.0, "new", fingerprint="f")

    assert [symptom.differs for symptom in symptoms([early, late], 10.0, 120.0)] == ["ordinal"]


# ---------------------------------------------------------------- many entries


PLACES = st.sampled_from(
    [("chat", "a"), ("chat", "b"), ("order eff_0123456789ab", "a"), ("order eff_ba9876543210", "a")]
)
STREAMS = ("0000000f4240-a", "0000000f6000-b")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            PLACES,
            st.sampled_from(STREAMS),
            st.integers(0, 1),
            st.integers(0, 1),
        ),
        max_size=12,
    )
)
def test_what_is_told_is_what_comparing_everything_with_everything_tells(drawn):
    entries, at = [], 1000.0
    for number, (later_s, (scope, step), stream, one, other) in enumerate(drawn):
        at += later_s
        arguments = {"one": f"1-{one}", "other": f"2-{other}"}
        asked = f"{one}{other}"
        entries.append(
            reserved(
                number, at, stream, scope=scope, step=step, fingerprint=asked, arguments=arguments
            ),
        )

    told = {symptom.effects[1]: symptom.apart_s for symptom in symptoms(entries, 10.0, 20.0)}

    pairs = [(a, b) for i, b in enumerate(entries) for a in entries[:i]]
    # later ones are nearer
    every = {b.effect: b.at - a.at for a, b in pairs for _ in symptoms([a, b], 10.0, 20.0)}
    assert told == every


def test_a_busy_day_is_looked_through():
    """Each effect is compared with its like, not with all that were near it."""
    entries = [
        reserved(
            n,
            1000.0 + n / 1000,
            scope=f"chat-{n}",
            step="pay",
            fingerprint=str(n),
            arguments={"a": str(n), "b": str(n)},
        )
        for n in range(20_000)
    ]
    twice = reserved(60_000, 1020.0, scope="chat-1", step="call_9dJ", fingerprint="19999")

    assert [symptom.effects[1] for symptom in symptoms([*entries, twice], 10.0, 120.0)] == [
        twice.effect
    ]
