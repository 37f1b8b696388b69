"""What may be part of a key, and where: the corpus, the decision table of
docs/reference/keys.md, and any text at all.
"""

import logging
import time
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest
from hypothesis import strategies as st

from effectonce import ContractViolation, Guard, Stable, content_key
from effectonce._core.stability import _WORDS, READ_MAX, _compiled, _judged, unstable_text
from effectonce._runtime.step import flagged, named
from tests.core import corpus
from tests.core.examples import examples
from tests.core.helpers import named as function
from tests.core.helpers import tool

CALLS = [
    "call_9dJx82hAbC",
    "toolu_01D7FLrfh4GYq7yT1ULFeyMV",
    "chatcmpl-AooXcRvW2Dhvr6VL6tqatzvRMXTx9",
    "req_6lsB7hkicwhaDj",
]
CHANGES = [*CALLS, "attempt-2", "1765432100", "2025-03-01T10:00:00Z", "ada@example.test"]
RANDOM = [
    "9f3a0c52-5f0e-4c1a-9a51-0b6a1f6f2c11",
    "9f3a0c525f0e4c1a9a510b6a1f6f2c11",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
]


@pytest.mark.parametrize("file", corpus.NAMES)
def test_no_name_of_the_corpus_is_taken_for_an_id(file):
    assert [entry for entry in corpus.entries(file) if entry.found] == []


@pytest.mark.parametrize("file", corpus.IDS)
def test_ninety_nine_of_a_hundred_ids_of_the_corpus_are_found(file):
    known = corpus.entries(file)

    assert len(known) >= 500
    assert corpus.found_percent(known) >= 99


def everywhere(guard):
    """Every place where a caller says what a key is made of, as functions of one part."""
    tool(guard, function("pay", lambda: None))
    return {
        "step": lambda part: guard.step("chat", part),
        "turn": lambda part: guard.turn("chat", part),
        "business key": lambda part: guard.call("pay", {}, key=("weekly", part)),
        "scope": lambda part: guard.step(part, "pay"),
        "scope of a turn": lambda part: guard.turn(part, 1),
        "tenant": lambda part: guard.step("chat", "pay", tenant=part),
        "tenant of a turn": lambda part: guard.turn("chat", 1, tenant=part),
        "tenant of a sequence": lambda part: guard.sequence("account/42", 1, tenant=part),
        "stream": lambda part: guard.sequence(part, 1),
        "tenant of the guard": lambda part: Guard("memory://", tenant=part),
    }


@pytest.mark.parametrize("part", CHANGES)
def test_what_changes_on_every_attempt_is_refused_wherever_a_key_is_made(guard, part):
    for place, enter in everywhere(guard).items():
        with pytest.raises(
            ContractViolation, match="Use an id that was written down before the first attempt"
        ) as refused:
            enter(part)
        assert "Nothing was sent." in str(refused.value), place


@pytest.mark.parametrize("part", CHANGES + RANDOM)
def test_a_caller_who_knows_better_says_so_with_stable(guard, part):
    for enter in everywhere(guard).values():
        enter(Stable(part))


@pytest.mark.parametrize("part", RANDOM)
def test_a_random_value_names_a_conversation_or_a_tenant_but_no_step_and_no_business_key(
    guard, part
):
    for place, enter in everywhere(guard).items():
        if place in ("step", "turn", "business key"):
            with pytest.raises(ContractViolation, match="a random"):
                enter(part)
        else:
            enter(part)


def test_a_tenant_that_was_vouched_for_is_not_looked_at_again():
    guard = Guard("memory://", tenant=Stable("ada@example.test"))

    assert guard.step("chat", "pay").boundary.tenant == "ada@example.test"
    assert guard.step("chat", "pay", tenant=Stable("1765432100")).boundary.tenant == "1765432100"


def test_a_vouched_scope_is_the_same_place_as_the_scope_itself(guard):
    pay = guard.tool(kind="write")(function("pay", lambda: None))

    with guard.step("chat", "pay"):
        plain = pay.explain()
    with guard.step(Stable("chat"), "pay", tenant=Stable("main")):
        assert pay.explain().key == plain.key


def test_what_is_made_here_and_now_is_found():
    now = time.time()
    for made in (
        uuid4(),
        uuid4().hex,
        int(now),
        now,
        int(now * 1000),
        time.time_ns(),
        datetime.now(UTC),
    ):
        assert unstable_text(str(made)), made
    for stays in (
        uuid5(NAMESPACE_URL, "a"),
        uuid5(NAMESPACE_URL, "a").hex,
        content_key(model="m", messages=[]),
        datetime.now(UTC).date(),
    ):
        assert not unstable_text(str(stays)), stays


@examples(st.uuids(version=4) | st.uuids(version=1))
def test_a_conversation_with_a_random_id_is_never_stopped(conversation):
    assert named(str(conversation), "scope") == str(conversation)


@pytest.mark.parametrize("group", ["ab1712345678", "201712345678"])
def test_the_digits_of_a_uuid_are_no_clock(group):
    named(f"20250301-1015-4130-9a51-{group}", "scope")


@pytest.mark.parametrize("tenant", ["", None, 7, Stable("")])
def test_a_tenant_says_something(guard, tenant):
    with pytest.raises(ContractViolation, match="must be a text that says something"):
        named(tenant, "tenant")
    with pytest.raises(ContractViolation, match="must be a text that says something"):
        flagged(tenant, "tenant")


def test_what_a_framework_hands_over_is_taken_with_one_warning(caplog):
    caplog.set_level(logging.WARNING, "effectonce")

    for tenant in ("ada@example.test", "grace@example.test", "acme", str(uuid4())):
        assert flagged(tenant, "tenant of this test") == tenant
    assert flagged(Stable("ada@example.test"), "vouched tenant") == "ada@example.test"

    (warning,) = caplog.messages
    assert "tenant of this test contains a personal identifier" in warning
    assert "example.test" not in warning


@examples(st.text(max_size=3 * READ_MAX))
def test_any_text_is_judged(text):
    assert unstable_text(text) in corpus.SORTS


@examples(st.text("aZ0_-:@. tTryx1f", min_size=1, max_size=12), st.integers(1, 3000))
def test_no_more_of_a_text_is_read_than_its_beginning(unit, times):
    text = unit * times

    assert unstable_text(text) == unstable_text(text[:READ_MAX])


@examples(st.from_regex(_WORDS, fullmatch=True))
def test_words_and_a_short_number_need_no_closer_look(text):
    assert _judged(text[:READ_MAX], _compiled()) == ""
