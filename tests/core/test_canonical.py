"""Canonical form: RFC 8785 where JSON is exact, lossless beyond, refused where nothing is
stable.
"""

import collections
import enum
import http
import struct
import typing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pydantic
import pytest
import rfc8785
from hypothesis import example
from hypothesis import strategies as st

from effectonce import content_key
from effectonce._core.canonical import NotCanonical, canonical, fingerprint, number
from tests.core.examples import examples
from tests.core.helpers import Line

# RFC 8785, appendix B: the bits of a double, and how it is written.
APPENDIX_B = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), APPENDIX_B.items())
def test_appendix_b_of_rfc_8785(bits, text):
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert number(value) == text
    assert canonical(value) == canonical([value])[1:-1] == text.encode()


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_what_is_not_a_number_is_refused(bits):
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    for holder in (value, [value], {"a": {"b": value}}, Decimal(value)):
        with pytest.raises(NotCanonical, match="not a number"):
            canonical(holder)


def test_the_sample_of_rfc_8785_section_3_2_2():
    sample = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical(sample) == expected.encode()


def test_keys_are_sorted_by_utf_16_unit_as_in_section_3_2_3():
    keys = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    assert canonical(keys) == rfc8785.dumps(keys)
    assert canonical(keys).decode().split(":")[1:] == [
        '2,"1"',
        '4,"\x80"',
        '6,"ö"',
        '7,"€"',
        '1,"😀"',
        '5,"\ufb33"',
        "3}",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\b\t\n\f\r", r"\b\t\n\f\r"),
        ("\x00\x1f\x7f", "\\u0000\\u001f\x7f"),
        ("\u2028/<é", "\u2028/<é"),
    ],
)
def test_strings_are_escaped_as_rfc_8785_does(text, written):
    assert canonical(text).decode() == f'"{written}"'


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=30,
)


@examples(JSON, smoke=50, full=500)
@example({"a": 1.0, "b": -0.0, "c": 1e21, "d": [1e-7, 0.5]})
def test_json_is_written_byte_for_byte_as_rfc_8785_writes_it(value):
    assert canonical(value) == rfc8785.dumps(value)


class Suit(enum.Enum):
    HEARTS = "hearts"


class Level(enum.IntEnum):
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = "fast"


class Model(pydantic.BaseModel):
    b: int
    a: str


class Struct(msgspec.Struct):
    b: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53, "#int:9007199254740992"),
        (-(2**70), "#int:-1180591620717411303424"),
        (Decimal("1.10"), "#decimal:11e-1"),
        (Decimal("110E-2"), "#decimal:11e-1"),
        (Decimal("-0.00"), "#decimal:0e0"),
        (
            Decimal("1234567890123456789012345678901.5"),
            "#decimal:12345678901234567890123456789015e-1",
        ),
        (datetime(2025, 3, 1, 12, tzinfo=UTC), '#datetime:"2025-03-01T12:00:00+00:00"'),
        (date(2025, 3, 1), '#date:"2025-03-01"'),
        (time(12, 30), '#time:"12:30:00"'),
        (timedelta(seconds=1.5), "#timedelta:1500000"),
        (UUID(int=5), '#uuid:"00000000-0000-0000-0000-000000000005"'),
        (b"\x00\xff", '#bytes:"00ff"'),
        (bytearray(b"\x01"), '#bytes:"01"'),
        (Suit.HEARTS, '#enum:Suit:"hearts"'),
        (Level.HIGH, "3"),
        (Mode.FAST, '"fast"'),
        ({Mode.FAST: Mode.FAST, "z": 1.0}, '{"fast":"fast","z":1}'),
        ({Mode.FAST: 1}, '{"fast":1}'),
        ((1, (2.0,)), "[1,[2]]"),
        ({3, 1, 2}, "#set:[1,2,3]"),
        (frozenset(), "#set:[]"),
        ({1: "a", "1": "b"}, '#map:{"1":"b",1:"a"}'),
        ({(1, 2): 3}, "#map:{[1,2]:3}"),
        (Line("x", Decimal(2)), '#object:Line:{"price":#decimal:2e0,"sku":"x"}'),
        (Model(b=1, a="x"), '#object:Model:{"a":"x","b":1}'),
        (Struct(b=1), '#object:Struct:{"b":1}'),
        ({"a": [], "b": {}, "c": (), "d": ""}, '{"a":[],"b":{},"c":[],"d":""}'),
        ([{}, 1.0], "[{},1]"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_what_json_cannot_carry_is_written_losslessly(value, text):
    assert canonical(value).decode() == text
    assert canonical({"deep": [value]}).decode() == f'{{"deep":[{text}]}}'


def test_types_never_meet_what_looks_like_them():
    alike = [
        1,
        "1",
        True,
        Decimal(1),
        [1],
        {"1": 1},
        {1: 1},
        UUID(int=1),
        str(UUID(int=1)),
        b"1",
        None,
        "null",
        Suit.HEARTS,
        "hearts",
    ]
    written = [canonical(value) for value in alike]
    assert len(set(written)) == len(written)


def test_numbers_that_are_equal_are_one_request():
    assert canonical(1) == canonical(1.0) == canonical(1e0)
    assert canonical(0) == canonical(-0.0)
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})


def test_strings_are_not_normalised():
    assert canonical("é") != canonical("e\u0301")


def test_null_is_not_absence_and_arrays_are_ordered():
    assert canonical({"a": None}) != canonical({})
    assert canonical([1, 2]) != canonical([2, 1])


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 0, "\ud800", {"\ud800": 1}, 1j],
    ids=["object", "function", "string", "key", "complex"],
)
def test_what_has_no_stable_identity_is_refused(value):
    with pytest.raises(NotCanonical):
        canonical(value)
    with pytest.raises(NotCanonical):
        canonical({"deep": [value]})


def test_what_contains_itself_or_is_too_deep_is_refused():
    loop = []
    loop.append(loop)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(NotCanonical, match="nested too deeply"):
            canonical(value)


def test_a_fingerprint_names_its_version():
    assert fingerprint(b"x").startswith("v1:")


@examples(
    st.lists(
        st.integers(-(10**30), 10**30)
        | st.decimals(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        max_size=4,
    )
)
def test_equal_values_are_equal_bytes(values):
    try:
        assert canonical(values) == canonical(list(values)) == canonical(tuple(values))
    except NotCanonical:
        assert any(
            isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)
            for value in values
        )


def test_a_content_key_covers_everything_that_changes_the_answer():
    base = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "system": "s",
        "temperature": 0.0,
    }
    same = content_key(**{**base, "messages": [{"content": "hi", "role": "user"}]})
    others = [
        content_key(**{**base, "model": "n"}),
        content_key(**{**base, "system": "t"}),
        content_key(**{**base, "temperature": 1}),
        content_key(**{**base, "messages": []}),
        content_key(**base, max_tokens=5),
    ]
    assert content_key(**base) == same
    assert len({same, *others}) == 6


def test_extra_fields_of_a_model_are_part_of_the_request():
    class Order(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        id: str

    assert canonical(Order(id="o", amount=5)) != canonical(Order(id="o", amount=5000))


def test_fields_that_a_dataclass_does_not_know_are_refused():
    class Sloppy(Line):
        def __init__(self, note):
            super().__init__("a", Decimal(1))
            self.note = note

    with pytest.raises(NotCanonical, match="fields beyond"):
        canonical(Sloppy("x"))

    class Harmless(Line):
        pass

    assert canonical(Harmless("a", Decimal(1))).startswith(b"#object:Harmless:")


# ---------------------------------------------------------------- classes of your own


class Money(int):
    def __new__(cls, amount, currency):
        self = super().__new__(cls, amount)
        self.currency = currency
        return self


def made(base, value, **beside):
    """A value of a class of its own, which holds more than *base* does."""
    cls = type("Own", (base,), {})
    own = cls(*value) if isinstance(value, tuple) else cls(value)
    vars(own).update(beside)
    return own


class Slotted(str):
    __slots__ = ("unit",)


class SlottedOnce(float):
    __slots__ = "unit"  # noqa: PLC0205  # as some write it


def slotted(cls, value):
    own = cls(value)
    own.unit = "kg"
    return own


OWN = [
    Money(5, "EUR"),
    [Money(5, "EUR")],
    {"amount": Money(5, "EUR")},
    {Money(5, "EUR"): 1},
    {made(str, "a", unit=1): 1},
    {made(str, "a", unit=1)},
    made(str, "5", _currency="EUR"),
    made(float, 5.5, currency="EUR"),
    made(bytes, b"5", currency="EUR"),
    made(bytearray, b"5", currency="EUR"),
    made(Decimal, "5", currency="EUR"),
    made(datetime, (2025, 3, 1), zone="EUR"),
    made(date, (2025, 3, 1), zone="EUR"),
    made(time, (10,), zone="EUR"),
    made(timedelta, 1, zone="EUR"),
    made(UUID, "9f3a0c52-5f0e-4c1a-9a51-0b6a1f6f2c11", zone="EUR"),
    made(list, ([1],), currency="EUR"),
    made(dict, ({"a": 1},), currency="EUR"),
    made(tuple, ([1],), currency="EUR"),
    made(set, ([1],), currency="EUR"),
    made(frozenset, ([1],), currency="EUR"),
    slotted(Slotted, "5"),
    slotted(SlottedOnce, 5.5),
]


@pytest.mark.parametrize("own", OWN, ids=lambda own: type(own).__mro__[1].__name__)
def test_what_would_be_left_out_of_the_request_is_refused(own):
    with pytest.raises(
        NotCanonical,
        match=r"holds \w+ beside its \w+, so two that differ only in that would be one request",
    ):
        canonical(own)


class Coin(int, enum.Enum):
    EURO = 1, "EUR"
    DOLLAR = 1, "USD"
    POUND = 2, "GBP"

    def __new__(cls, amount, currency):
        self = int.__new__(cls, amount)
        self._value_ = currency
        return self


def test_members_of_an_enum_that_hold_the_same_number_are_refused():
    with pytest.raises(
        NotCanonical, match=r"Coin\.EURO is the same int as another member; pass its name"
    ):
        canonical(Coin.EURO)
    assert canonical(Coin.POUND) == b"2"


class Point(typing.NamedTuple):
    x: int
    y: int


class Attributes(dict):
    def __init__(self, *args):
        super().__init__(*args)
        self.__dict__ = self


class Label(str):
    __slots__ = ()

    def __str__(self):
        return "another text"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


UserId = typing.NewType("UserId", str)


@pytest.mark.parametrize(
    ("own", "plain"),
    [
        (Label("a"), "a"),
        (UserId("a"), "a"),
        (Slotted("a"), "a"),
        (next(iter(Mode)), next(iter(Mode)).value),
        (http.HTTPStatus.NOT_FOUND, 404),
        (Rights.READ | Rights.WRITE, 3),
        (Point(1, 2), [1, 2]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=1), {"a": 1}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (Attributes({"a": 1}), {"a": 1}),
        (made(dict, ({"a": 1},), _parent=None), {"a": 1}),
        (made(int, 5), 5),
        (made(list, ([1],)), [1]),
        (pydantic.TypeAdapter(pydantic.constr(min_length=1)).validate_python("a"), "a"),
        (True, True),
    ],
    ids=repr,
)
def test_a_class_of_your_own_that_holds_nothing_more_is_what_it_is_made_of(own, plain):
    assert canonical(own) == canonical(plain)
