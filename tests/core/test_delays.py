"""How long the downstream asks to wait, however it says so."""

import math

import pytest
from hypothesis import strategies as st

from effectonce._core.classification.retry_after import (
    LONGEST_S,
    duration,
    from_headers,
    number,
    spoken,
)
from tests.core.examples import examples

DATE, AT = "Wed, 21 Oct 2015 07:28:00 GMT", 1445412480.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "20"}, 20),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": DATE}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:00:00 GMT"}, 0),  # over already
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00"}, 30),  # HTTP dates are GMT, said or not
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9),
        ({"x-ms-retry-after-ms": "2500"}, 2.5),
        ({"x-amz-retry-after": "250"}, 0.25),
        ({"grpc-retry-pushback-ms": "250"}, 0.25),
        ({"grpc-retry-pushback-ms": "-1"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "120, 30"}, 120),  # two of them
        ({"retry-after": "-5, 30"}, 30),
        ({"retry-after": "30, soon"}, None),
        ({"retry-after-ms": "-1", "retry-after": "9"}, 9),
        ({"retry-after-ms": "nan", "retry-after": "9"}, 9),
        ({"retry-after": "1e999"}, LONGEST_S),  # a long delay is never taken for none
        ({"retry-after": "99999999999"}, LONGEST_S),
        ({}, None),
    ],
)
def test_headers(headers, expected):
    assert from_headers(headers, AT - 30) == expected


def test_without_a_clock_a_date_is_measured_from_the_responses_own():
    assert from_headers({"retry-after": DATE, "date": "Wed, 21 Oct 2015 07:27:00 GMT"}, None) == 60
    assert from_headers({"retry-after": DATE}, None) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Please retry in 10h17m5.7s.", 37025.7),
        ("Rate limit reached. Please try again in 6m0s.", 360),
        ("Try again in 846ms", 0.846),
        ("try again in 20 seconds", 20),
        ("retry after 5 minutes", 300),
        ("try again in 1 hour, 5 minutes", 3900),
        ("try again in 2 days", 172_800),
        ("try again in a moment", None),
        ("try again in 6 months", None),
        ("try again in 5", None),
        ("nothing", None),
    ],
)
def test_words(text, expected):
    assert spoken(text) == expected


def test_a_number_that_no_float_can_hold_is_none():
    assert number(10**400) is None


def test_durations_of_google():
    assert duration("34.4s") == 34.4
    assert duration("999999999999d") == LONGEST_S


@examples(
    st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "date"]), st.text()),
    st.none() | st.floats(0, 4e9),
)
def test_no_header_makes_it_fail_or_wait_for_ever(headers, now):
    delay_s = from_headers(headers, now)
    assert delay_s is None or (0 <= delay_s <= LONGEST_S and math.isfinite(delay_s))


@examples(st.text() | st.from_regex(r"try again in [0-9hms .]{0,30}"))
def test_no_words_make_it_fail(text):
    delay_s = spoken(text)
    assert delay_s is None or 0 <= delay_s <= LONGEST_S
