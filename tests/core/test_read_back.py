"""Results that are hard to read back: equal to nothing, written under other names, or by an
older release.
"""

import dataclasses
import enum
import functools
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from typing_extensions import TypeAliasType

from effectonce import ContractViolation, ResultUnavailable
from effectonce._core.codec import decode, encode, encode_or_excuse
from effectonce._core.tagged_json import AS_DATA, NotReadable
from tests.core.helpers import Colour

if TYPE_CHECKING:
    from nowhere import Nobody

NAN = float("nan")
# the hour that its clocks go through twice
TWICE = datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)


T = TypeVar("T")


class Size(enum.Enum):
    LARGE = "red"  # the same value as a Colour


@dataclasses.dataclass
class Score:
    points: float
    at: datetime | None = None


class Measured(pydantic.BaseModel):
    points: float


class Camel(msgspec.Struct, rename="camel"):
    invoice_number: int


class Array(msgspec.Struct, array_like=True):
    points: float


def replayed(guard, value, hint):
    def measure():
        return value

    measure.__annotations__["return"] = hint
    guarded = guard.tool(kind="write")(measure)
    with guard.step("chat", "measure"):
        assert guarded() is value
        return guarded()


@dataclasses.dataclass
class Sum:
    parts: list[int]
    total: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.total = sum(self.parts)


class Paid(pydantic.BaseModel):
    number: int


class Declined(pydantic.BaseModel):
    number: int


class Found(NamedTuple):
    score: Score
    colour: Colour | None = None


class Stop(NamedTuple):
    town: str
    at: int


class Basket(TypedDict):
    colours: list[Colour]


class Envelope(pydantic.BaseModel, Generic[T]):
    letter: T


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    first: T | None = None
    last: T = None


class Invoice(pydantic.BaseModel):
    url: pydantic.HttpUrl
    file: Path


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Paid(number=7), Paid | Declined),
        (Declined(number=7), Paid | Declined),
        (Declined(number=7), Annotated[Paid | Declined | None, "which of them"]),
        ([Declined(number=7), Score(1.5), Colour.RED], list[Paid | Declined | Colour | Score]),
        ({"all": (Camel(7), Array(1.5))}, dict[str, tuple[Camel | Array, ...]] | Paid),
        (Colour.RED, Colour | str),
        (Paid(number=7), TypeAliasType("Answer", Paid | Declined)),
        (Size.LARGE, Colour | Size),
        (Found(Score(1.5), Colour.RED), Found),
        ([Found(Score(1.5)), Stop("Ulm", 3)], list[Found | Stop | Paid]),
        (Basket(colours=[Colour.RED]), Basket),
        (Envelope[Score](letter=Score(1.5)), Envelope[Score]),
        (Page([Score(1.5)], Score(2.5), Score(3.5)), Page[Score]),
        (Invoice(url="https://bank.example/7", file=Path("7.pdf")), Invoice),
        (Page([Invoice(url="https://bank.example/7", file=Path("7.pdf"))]), Page[Invoice]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_a_tool_declares_is_read_back_as_one_of_those_types(guard, value, hint):
    again = replayed(guard, value, hint)

    assert again == value
    assert type(again) is type(value)
    assert (
        [type(each) for each in again] == [type(each) for each in value]
        if isinstance(value, list | tuple)
        else True
    )


def test_of_types_that_were_renamed_the_one_with_these_fields_is_taken():
    stored = encode(Found(Score(1.5)).score, Score | Camel)
    points = dataclasses.make_dataclass(
        "Points", [("points", float), ("at", datetime | None, None)]
    )

    assert decode(stored, Camel | points).content == points(1.5)
    with pytest.raises(NotReadable):
        decode(stored, Camel | Paid)


def test_who_has_no_class_of_the_tool_reads_plain_data():
    page = Page(
        [Invoice(url="https://bank.example/7", file=Path("7.pdf"))],
        Score(1.5),
        (Colour.RED, Stop("Ulm", 3)),
    )
    stored = encode(page, Page[Invoice | Score | tuple[Colour, Stop]])

    assert decode(stored, AS_DATA).content == {
        "items": [{"url": "https://bank.example/7", "file": "7.pdf"}],
        "first": {"points": 1.5, "at": None},
        "last": ("red", ("Ulm", 3)),
    }


def test_what_cannot_be_stored_leaves_the_reason_in_its_place():
    stored = decode(encode_or_excuse({"session": Secretive}))

    assert (stored.status, "not data that can be stored" in stored.content["why"]) == (
        "unavailable",
        True,
    )


class Secretive(pydantic.BaseModel):
    word: pydantic.SecretStr


def test_a_secret_in_a_model_is_not_stored_in_another_way(guard):
    secretive = Secretive(word="xyzzy")

    with pytest.raises(ResultUnavailable, match="was done"):
        replayed(guard, secretive, Secretive)
    assert not any(b"xyzzy" in record.outcome for record in guard.store._records.values())


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Sum([1, 2]), Sum),
        ({"points": NAN, "all": [1.5, (NAN, Decimal("NaN"))]}, dict),
        (Score(NAN), Score),
        (Measured(points=NAN), Measured),
        (Array(NAN), Array),
        ([TWICE, TWICE.replace(fold=0)], list),
        (Score(1.5, TWICE), Score),
        (Camel(7), Camel),
    ],
    ids=repr,
)
def test_what_is_equal_to_nothing_or_written_under_other_names_is_read_back_all_the_same(
    guard, value, hint
):
    again = replayed(guard, value, hint)

    assert type(again) is type(value)
    assert encode(again, hint) == encode(value, hint)


@dataclasses.dataclass(eq=False)
class Handle:
    number: int


class Hidden(pydantic.BaseModel):
    points: float
    _at: int = pydantic.PrivateAttr(default=0)


@pytest.mark.parametrize("what", ["handle", "hidden", "set"])
def test_what_does_not_read_back_equal_is_not_shown_as_if_it_did(guard, what):
    hidden = Hidden(points=NAN)
    hidden._at = 1
    value, hint = {"handle": (Handle(1), Handle), "hidden": (hidden, Hidden), "set": ({NAN}, set)}[
        what
    ]

    with pytest.raises(ResultUnavailable, match="was done"):
        replayed(guard, value, hint)


@pytest.mark.parametrize("make", [dataclasses.make_dataclass, msgspec.defstruct])
def test_a_result_of_an_older_release_is_read_by_a_model_that_has_changed_since(make):
    old = make("Receipt", [("number", int), ("dropped", int)])
    new = make("Receipt", [("number", int), ("added", str, "by default")])
    stricter = make("Receipt", [("required", str)])

    assert decode(encode(old(7, 8), old), new).content == new(7)
    with pytest.raises(NotReadable):
        decode(encode(old(7, 8), old), stricter)
    with pytest.raises(NotReadable):
        decode(encode(old(7, 8), old), type("Receipt", (), {}))  # a model no more


def test_a_person_confirms_with_what_the_tool_would_have_returned(guard):
    @guard.tool(kind="write")
    def measure() -> Score:
        raise TimeoutError

    with guard.step("chat", "measure"):
        doubt = guard.call(measure, {})
        guard.confirm(doubt.effect.key, result=Score(1.5), by="ada", reason="on the display")
        assert measure() == Score(1.5)


@pytest.mark.parametrize(
    ("written", "hint", "read"),
    [
        ({"points": 1.5}, Score, Score(1.5)),
        ({"number": 7}, Paid | None, Paid(number=7)),
        (None, Paid | None, None),
        ({"invoice_number": 7}, Stop | Declined | dict, {"invoice_number": 7}),
        ([{"number": 7}], list[Paid], [Paid(number=7)]),
        ("red", Colour, Colour.RED),
        ("1.10", Decimal, Decimal("1.10")),
        ("2025-03-01T12:00:00Z", datetime, datetime(2025, 3, 1, 12, tzinfo=UTC)),
        (["Ulm", 3], Stop, Stop("Ulm", 3)),
        ({"no": "such field"}, Paid, {"no": "such field"}),
        ({"receipt": 17}, Any, {"receipt": 17}),
    ],
    ids=repr,
)
def test_what_a_person_wrote_as_json_is_what_the_tool_declares(guard, written, hint, read):
    def measure():
        raise TimeoutError

    measure.__annotations__["return"] = hint
    guarded = guard.tool(kind="write")(measure)
    with guard.step("chat", "measure"):
        guard.confirm(
            guard.call(guarded, {}).effect.key, result=written, by="ada", reason="on the display"
        )
        again = guarded()

    assert (type(again), again) == (type(read), read)


@dataclasses.dataclass
class Base:
    score: "Score"
    by: "Nobody"  # type checkers know it


@dataclasses.dataclass
class Measurement(Base):
    at: "when it was"  # noqa: F722  # said to people
    again: "list[Score]"


def test_a_hint_that_cannot_be_resolved_says_nothing_about_the_others(guard):
    whole = Measurement(Score(1.5), "ada", "noon", [Score(2.5)])

    def measure(what: "a thing", by: "Nobody.Else" = "ada", times: "int" = 1) -> "Measurement":  # noqa: F722
        return whole

    guarded = guard.tool(kind="write")(measure)
    with guard.step("chat", "measure"):
        assert guarded("it") == guarded("it") == whole
        with pytest.raises(ContractViolation, match="'times' does not fit"):
            guarded("it", times="twice")


def test_what_declares_nothing_that_can_be_told_is_still_a_tool(guard):
    class Callable:
        def __call__(self, what: "a thing"):  # noqa: F722
            return what

    for tool in (Callable(), functools.partial(Callable(), "it")):
        guarded = guard.tool(kind="write", name=f"call {type(tool).__name__}")(tool)
        assert guarded.__effectonce_tool__.signature.types == {}


TORN = (
    b"v1 error []",
    b'v1 error {"type": "E"}',
    b'v1 partial {"message": ""}',
    b"v1 unavailable {}",
    b"v1 unavailable null",
)


@pytest.mark.parametrize("stored", TORN)
def test_a_report_that_does_not_say_what_its_readers_ask_cannot_be_read(stored):
    with pytest.raises(NotReadable, match="it does not say"):
        decode(stored)
