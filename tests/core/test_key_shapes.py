"""A downstream key in the shape that a provider takes: short, without an underscore, a UUID. It
is made anew, not cut off.
"""

import json
import os
import string
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import RFC_4122, UUID

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from effectonce import ContractViolation, Found, Guard, InDoubt, current_effect
from effectonce._core.key_shapes import DIGITS_AND_LETTERS, STRONG_BITS, KeyShape, shaped_key
from effectonce._core.keys import downstream_key
from tests.core.examples import examples
from tests.core.helpers import tool

WORDS = string.ascii_letters + string.digits
CALENDAR = string.digits + "abcdefghijklmnopqrstuv"
SHAPES = {
    "uuid": KeyShape("uuid"),
    "plain": KeyShape(),
    "razorpay": KeyShape(least=4, most=36, alphabet=WORDS + "_-"),
    "mangopay": KeyShape(least=16, most=36, alphabet=WORDS + "-"),
    "moov": KeyShape(most=36),
    "worldline": KeyShape(most=40),
    "discord": KeyShape(most=25),
    "google-calendar": KeyShape(least=5, most=1024, alphabet=CALENDAR),
    "digits": KeyShape(most=32, alphabet=string.digits),
    "bits": KeyShape(most=1024, alphabet="01"),
    "long": KeyShape(least=200, most=200, alphabet=WORDS),
    "weak": KeyShape(most=8, weak=True),
}
SECRETS = {"plain": b"", "keyed": b"a secret of at least thirty-two b"}
EFFECTS = {
    "first": "15d2f0c1ad08a8923168266f50b1ef442b15bab4",
    "second": "15d2f0c1ca636d7b45999218e5de1eb4efb70e0e",
}
# shape, secret, effect, key
GOLDEN = Path(__file__).with_name("golden_key_shapes.txt").read_text().splitlines()


def made(name, which, effect):
    return (
        f"{name} {which} {effect}"
        f" {shaped_key(SHAPES[name], EFFECTS[effect], 'refund', SECRETS[which])}"
    )


def test_keys_of_every_shape_stay_as_they_are():
    """A release that changes one of these sends another key than the attempt before it, and the
    provider does it twice.
    """
    assert [
        made(name, which, effect) for name in SHAPES for which in SECRETS for effect in EFFECTS
    ] == GOLDEN


# ---------------------------------------------------------------- what holds of every shape


VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@st.composite
def shapes(draw):
    alphabet = "".join(draw(st.lists(st.sampled_from(VISIBLE), min_size=2, unique=True)))
    least = draw(st.integers(1, 300))
    return KeyShape(least=least, most=draw(st.integers(least, 1100)), alphabet=alphabet, weak=True)


keys = st.text("0123456789abcdef", min_size=40, max_size=40)
secrets = st.sampled_from([b"", b"a secret", b"another"])


@examples(shapes(), keys, secrets)
def test_a_key_fits_its_shape_and_is_the_same_each_time(shape, key, secret):
    found = shaped_key(shape, key, "refund", secret)

    assert shape.least <= len(found) <= shape.most
    assert set(found) <= set(shape.alphabet)
    assert found == shaped_key(shape, key, "refund", secret)


@examples(keys, secrets)
def test_a_uuid_says_that_it_is_of_a_kind_of_its_own(key, secret):
    found = shaped_key(KeyShape("uuid"), key, "refund", secret)

    assert str(UUID(found)) == found
    assert (UUID(found).version, UUID(found).variant) == (8, RFC_4122)


def strong(shape):
    return KeyShape(shape.form, shape.least, shape.most, shape.alphabet)


@examples(
    st.one_of(shapes(), st.just(KeyShape("uuid"))),
    st.lists(st.tuples(keys, secrets), unique=True, min_size=2, max_size=8),
)
def test_two_effects_have_two_keys(shape, effects):
    try:
        shape = strong(shape)
    except ValueError:
        assume(False)

    assert len({shaped_key(shape, key, "refund", secret) for key, secret in effects}) == len(
        effects
    )
    assert shaped_key(shape, effects[0][0], "mail") != shaped_key(shape, effects[0][0], "refund")


@examples(st.sampled_from(sorted(SHAPES)), st.sampled_from(sorted(SHAPES)), keys, secrets)
def test_no_key_of_an_effect_begins_as_another(one, other, key, secret):
    found = shaped_key(SHAPES[one], key, "refund", secret)
    shown = [key, downstream_key(key, "refund", secret).removeprefix("eo_")]
    if len(found) != len(same := shaped_key(SHAPES[other], key, "refund", secret)):
        shown.append(same)

    assert all(found[:40] not in each and each[:40] not in found for each in shown)


@examples(keys, st.permutations(WORDS), st.integers(1, 36))
def test_what_changes_nothing_about_the_shape_does_not_change_the_key(key, letters, least):
    """Bounds that are written down later, and letters in another order: another key would be
    another effect there.
    """
    one, same = (
        KeyShape(most=36, alphabet=WORDS),
        KeyShape(least=least, most=36, alphabet="".join(letters), weak=True),
    )

    assert shaped_key(one, key, "refund") == shaped_key(same, key, "refund")


def test_as_much_of_256_bits_as_fits():
    lengths = {
        name: len(shaped_key(shape, EFFECTS["first"], "refund")) for name, shape in SHAPES.items()
    }

    assert lengths == {
        "uuid": 36,
        "plain": 50,
        "razorpay": 36,
        "mangopay": 36,
        "moov": 36,
        "worldline": 40,
        "discord": 25,
        "google-calendar": 52,
        "digits": 32,
        "bits": 256,
        "long": 200,
        "weak": 8,
    }


def test_every_character_of_an_alphabet_comes_up_as_often_as_the_others():
    shape = KeyShape(most=36, alphabet="0123456789")
    counts = dict.fromkeys(shape.alphabet, 0)

    for number in range(2_000):
        for character in shaped_key(shape, f"{number:040x}", "refund"):
            counts[character] += 1

    # 7,200 each; six standard deviations are 483
    assert all(6_700 < count < 7_700 for count in counts.values()), counts


def test_another_process_derives_the_same_key():
    code = (
        "import json; from effectonce._core.key_shapes import KeyShape, shaped_key;"
        f" print(json.dumps([shaped_key(s, {EFFECTS['first']!r}, 'refund', b'x') for s in"
        " (KeyShape('uuid'), KeyShape(most=25))]))"
    )
    found = [
        json.loads(
            subprocess.check_output(
                [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}
            )
        )
        for seed in ("1", "2")
    ]

    assert (
        found
        == [
            [
                shaped_key(shape, EFFECTS["first"], "refund", b"x")
                for shape in (KeyShape("uuid"), KeyShape(most=25))
            ]
        ]
        * 2
    )


# ---------------------------------------------------------------- what is refused


WRONG = [
    ({"form": "ulid"}, "form='ulid': give 'plain' or 'uuid'"),
    ({"form": None}, "form=None: give 'plain' or 'uuid'"),
    ({"max": "36"}, "max='36': give a whole number, 1 or more"),
    ({"max": 36.0}, "max=36.0: give a whole number, 1 or more"),
    ({"max": True}, "max=True: give a whole number, 1 or more"),
    ({"min": 0}, "min=0: give a whole number, 1 or more"),
    ({"min": 37, "max": 36}, "min=37 is more than max=36"),
    ({"alphabet": ""}, "the alphabet '' has fewer than two characters"),
    ({"alphabet": "a"}, "the alphabet 'a' has fewer than two characters"),
    ({"alphabet": ["a", "b"]}, r"alphabet=\['a', 'b'\]: give a text"),
    ({"alphabet": "abca"}, "the alphabet 'abca' has 'a' more than once"),
    (
        {"alphabet": "a-z0-9"},
        (
            "the alphabet 'a-z0-9' has '-' more than once. It lists every character, and knows no"
            " ranges"
        ),
    ),
    ({"alphabet": "ab c"}, "the alphabet 'ab c' has ' '"),
    ({"alphabet": "ab\n"}, r"the alphabet 'ab\\n' has '\\n'"),
    ({"alphabet": "aé"}, "the alphabet 'aé' has 'é'"),
    ({"form": "uuid", "max": 32}, "a uuid has 36 characters, .* leave out min, max and alphabet"),
    ({"form": "uuid", "min": 36}, "leave out min, max and alphabet"),
    ({"form": "uuid", "alphabet": "ab"}, "leave out min, max and alphabet"),
    ({"max": 8}, "a key of 8 characters out of 36 has 41 bits"),
    ({"max": 8, "weak": "no"}, "weak='no': give True or False"),
]


@pytest.mark.parametrize(("asked", "said"), WRONG)
def test_a_shape_that_is_written_wrongly_is_refused_by_name(guard, asked, said):
    seen = []

    def pay():
        try:
            current_effect().key_as(**asked)
        except ContractViolation as error:
            seen.append(error)
        return current_effect().downstream_key

    with guard.step("chat", "pay"):
        tool(guard, pay, downstream="key")()

    [error] = seen
    with pytest.raises(ContractViolation, match=said):
        raise error
    assert error.effect.tool == "pay"


def test_a_weak_key_says_what_happens_what_is_known_and_what_to_do(guard):
    seen = []

    def pay():
        with pytest.raises(ContractViolation) as raised:
            current_effect().key_as(max=10, alphabet=string.digits)
        seen.append(str(raised.value))
        return current_effect().key_as(max=10, alphabet=string.digits, weak=True)

    with guard.step("chat", "pay"):
        assert len(tool(guard, pay, downstream="key")()) == 10

    said = (
        "key_as() made no key: a key of 10 characters out of 10 has 33 bits, and 96 are needed:"
        " with fewer, two effects may get the same key, and the provider takes the second for a"
        " repeat of the first. Allow more characters, or a larger alphabet; weak=True accepts it as"
        " it is."
    )
    assert seen == [said]


@pytest.mark.parametrize(
    ("most", "alphabet"), [(96, "01"), (24, "0123456789abcdef"), (19, DIGITS_AND_LETTERS)]
)
def test_96_bits_are_enough_and_one_character_less_is_not(most, alphabet):
    assert len(alphabet) ** most >= 2**STRONG_BITS
    assert (
        len(shaped_key(KeyShape(most=most, alphabet=alphabet), EFFECTS["first"], "refund")) == most
    )

    with pytest.raises(ValueError, match="96 are needed"):
        KeyShape(most=most - 1, alphabet=alphabet)


# ---------------------------------------------------------------- in a running tool


def test_a_probe_has_the_keys_that_its_tool_sent():
    sent, asked = [], []
    guard = Guard("memory://", secret=SECRETS["keyed"])

    def both():
        return current_effect().key_as("uuid"), current_effect().key_as(
            max=36, alphabet=WORDS + "-", min=16
        )

    def pay():
        sent.append(both())
        raise TimeoutError

    paying = tool(guard, pay, downstream="probe")

    @paying.probe
    def look():
        asked.append(both())
        return Found("paid")

    with guard.step("chat", "pay"):
        assert paying() == "paid"

    assert len(sent) == 1
    assert asked == sent


def shaped():
    """In a function that the tool calls through a list: its code does not show it."""
    return current_effect().key_as("uuid")


USED = [shaped]


def by_what_it_does():
    return USED[0]()


def by_its_code():
    return current_effect().key_as(max=25)


@pytest.mark.parametrize("pay", [by_what_it_does, by_its_code])
def test_a_tool_that_only_calls_key_as_uses_its_key(guard, caplog, pay):
    with guard.step("chat", "pay"):
        tool(guard, pay, downstream="key")()

    assert caplog.records == []


@pytest.mark.parametrize("key_of", [USED, [by_its_code]])
def test_and_is_sent_again_after_a_lost_answer(guard, key_of):
    sent = []

    def pay():
        sent.append(key_of[0]())
        if len(sent) < 3:
            raise TimeoutError
        return "paid"

    with guard.step("chat", "pay"):
        assert tool(guard, pay, downstream="key")() == "paid"

    assert len(sent) == 3
    assert len(set(sent)) == 1


def refused():
    with suppress(ContractViolation):
        current_effect().key_as(max=8)


REFUSED = [refused]


def test_a_tool_that_was_refused_a_key_and_sends_without_one_is_not_sent_again(guard):
    sent = []

    def pay():
        REFUSED[0]()
        sent.append("without a key")
        raise TimeoutError

    with guard.step("chat", "pay"), pytest.raises(InDoubt, match="did not read its key"):
        tool(guard, pay, downstream="key")()

    assert len(sent) == 1


def test_a_tool_whose_code_calls_key_as_may_look_something_up_first(guard):
    calls = []

    def pay():
        calls.append("look up")
        if len(calls) < 3:
            raise TimeoutError
        return current_effect().key_as("uuid")

    with guard.step("chat", "pay"):
        assert UUID(tool(guard, partial(pay), name="pay", downstream="key")()).version == 8


def test_a_shape_reads_as_the_keys_that_it_makes():
    assert str(KeyShape("uuid", 1, 255, DIGITS_AND_LETTERS, weak=False)) == "uuid"
    assert str(KeyShape("plain", 1, 36, DIGITS_AND_LETTERS, weak=False)) == "plain 36"
    assert str(KeyShape("plain", 64, 64, "0f", weak=True)) == "plain 64 of 0f"
