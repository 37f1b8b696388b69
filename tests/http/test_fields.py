"""The key in its header: as RFC 9651 has it, as another parser reads it, and as clients send it."""

from collections import Counter
from math import log2

import http_sf
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from effectonce.http.server.key_header import Malformed, guessable, key_of

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
RFC_STRINGS = [
    (b'"hello world"', "hello world"),
    (b'""', ""),
    (b'  "a"  ', "a"),
    (rb'"b\"c\\d"', r'b"c\d'),
    (b'"a";foo', "a"),
    (b'"a"; foo=1; bar="x;y"', "a"),
    (b'"a";a=1.5;b=?0;c=:cHJldGVuZA==:;d=tok/en:1;e=@1659578233;f=%"f%c3%bc"', "a"),
]
RFC_OTHERS = [
    b"",
    b" ",
    b'"',
    b'"a',
    b'a"',
    b'"a" "b"',
    b'"a", "b"',
    b'"a"x',
    rb'"\a"',
    b'"\\"',
    b'"a\x7fb"',
    b'"a\tb"',
    b'"a"\t',
    b"'a'",
    b"42",
    b"4.5",
    b"token",
    b":cHJldGVuZA==:",
    b"?1",
    b"@1659578233",
    b'("a")',
    b'"a";',
    b'"a";A=1',
    b'"a";a=',
    b'"a";a=1.',
    b'"a";a=1234567890123456',
    b'"a";a=@1.5',
    b'"a";a=?2',
    b'"a";a=%"%ff"',
    b'"a";a=%"%C3%BC"',
    b'"a" ;a',
    '"ü"'.encode(),
]


def ours(raw):
    try:
        return key_of([raw], strict=True)
    except Malformed:
        return None


def theirs(raw):
    try:
        value, _ = http_sf.parse(raw, tltype="item")
    except ValueError:
        return None
    return value if type(value) is str else None


@pytest.mark.parametrize(("raw", "value"), RFC_STRINGS)
def test_a_string_is_read_as_the_standard_has_it(raw, value):
    assert ours(raw) == value == theirs(raw)


@pytest.mark.parametrize("raw", RFC_OTHERS)
def test_anything_else_is_no_key(raw):
    assert ours(raw) is None
    assert theirs(raw) is None


PIECES = st.sampled_from(
    [
        b'"',
        b"\\",
        b";",
        b"=",
        b" ",
        b"a",
        b"b1",
        b"*",
        b"?0",
        b"?1",
        b":YQ==:",
        b"%",
        b'%"',
        b"%c3%bc",
        b"@1",
        b"1.5",
        b"-",
        b",",
        b"\t",
    ]
)


@given(
    st.lists(PIECES, max_size=12).map(b"".join)
    | st.binary(max_size=20)
    | st.text(max_size=8).map(lambda t: f'"{t}"'.encode())
)
@example(b'"a";b=:YQ:')
@example(b'"a";b=:Y:')
def test_two_parsers_agree(raw):
    assert ours(raw) == theirs(raw)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40))
def test_what_another_library_writes_is_read_back(text):
    assert key_of([http_sf.ser(text).encode()], strict=True) == text


@pytest.mark.parametrize("raw", [UUID, f'"{UUID}"', f" {UUID}\t", f'"{UUID}";v=1'])
def test_lenient_takes_the_bare_key_too(raw):
    assert key_of([raw.encode()], strict=False) == UUID


@pytest.mark.parametrize(
    "raw",
    [b"", b"a b", b"a,b", b'a"b', b"a\x00b", b"a\x7f", b'"a', b'"a" "b"', "ü".encode(), b"\t"],
)
def test_lenient_is_not_careless(raw):
    with pytest.raises(Malformed):
        key_of([raw], strict=False)


@pytest.mark.parametrize("strict", [True, False])
def test_two_lines_are_a_list_and_a_list_is_no_key(strict):
    for lines in ([b'"a"', b'"a"'], [b"a", b"a"]):
        with pytest.raises(Malformed):
            key_of(lines, strict=strict)


@given(st.text("abcdef012", min_size=1, max_size=40), st.floats(0, 140))
def test_a_key_is_guessable_when_its_letters_say_less_than_is_asked_for(key, bits_min):
    # Shannon's entropy, for each letter
    says = sum(-count * log2(count / len(key)) for count in Counter(key).values())
    assume(abs(says - bits_min) > 1e-6)

    assert guessable(key, bits_min) is (says < bits_min)


@pytest.mark.parametrize(
    ("key", "enough"),
    [
        (UUID, True),
        ("a" * 64, False),
        ("test", False),
        ("order-17", False),
        ("0" * 15 + "1", False),
    ],
)
def test_keys_that_everybody_would_choose_say_little(key, enough):
    assert guessable(key, 40) is not enough
