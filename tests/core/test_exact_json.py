"""JSON is read without losing a digit, and only if everybody reads it alike."""

from decimal import Decimal

import pytest

from effectonce._core.strict_json import read_exactly


def test_a_number_keeps_every_digit():
    assert read_exactly("[0.1, 0.10000000000000000555, 12345678901234567890]") == [
        0.1,
        Decimal("0.10000000000000000555"),
        12345678901234567890,
    ]


def test_an_object_keeps_its_members():
    assert read_exactly('{"b": {"a": 1.5}, "a": null}') == {"b": {"a": 1.5}, "a": None}


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "NaN", "[Infinity]", "{"])
def test_what_readers_disagree_about_is_refused(text):
    with pytest.raises(ValueError):  # the words are the reader's
        read_exactly(text)
