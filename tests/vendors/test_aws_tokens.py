"""AWS writes down which members of its operations are idempotency tokens, and what they look
like: our UUID fits all of them.
"""

import gzip
import re
from pathlib import Path

import botocore
import msgspec
import pytest

from effectonce._core.key_shapes import KeyShape, shaped_key
from effectonce._core.keys import downstream_key

MODELS = Path(botocore.__file__).parent / "data"
IN_PYTHON = {
    r"\p{ASCII}{1,256}": r"[\x00-\x7f]{1,256}",
    r"[\p{L}||\p{M}||\p{Z}||\p{S}||\p{N}||\p{P}]+": r"[^\x00-\x1f\x7f]+",
    r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*": (
        r"[\t\u0020-\uD7FF\uE000-\U0010FFFF]*"
    ),
}  # patterns that only Java reads; any other that Python does not read fails the test
EFFECT = "15d2f0c1ad08a8923168266f50b1ef442b15bab4"


class Member(msgspec.Struct):
    shape: str
    token: bool = msgspec.field(name="idempotencyToken", default=False)


class Shape(msgspec.Struct):
    members: dict[str, Member] = {}
    least: int = msgspec.field(name="min", default=0)
    most: int = msgspec.field(name="max", default=1 << 30)
    pattern: str = ".*"


class Operation(msgspec.Struct):
    input: Member | None = None


class Model(msgspec.Struct):
    operations: dict[str, Operation]
    shapes: dict[str, msgspec.Raw]


def newest_models():
    for service in sorted(MODELS.iterdir()):
        found = sorted(service.glob("*/service-2.json*"))
        if found:
            packed = found[-1].read_bytes()
            yield service.name, gzip.decompress(packed) if found[-1].suffix == ".gz" else packed


@pytest.fixture(scope="module")
def tokens():
    """The shape of every token: by service, operation and member."""
    found = {}
    for service, text in newest_models():
        if b'"idempotencyToken"' not in text:
            continue
        model = msgspec.json.decode(text, type=Model)
        for name, operation in model.operations.items():
            if operation.input is not None:
                asked = msgspec.json.decode(model.shapes[operation.input.shape], type=Shape)
                for member, of in asked.members.items():
                    if of.token:
                        found[service, name, member] = msgspec.json.decode(
                            model.shapes[of.shape], type=Shape
                        )
    return found


def refused(key, tokens):
    return [where for where, shape in tokens.items() if not _fits(key, shape)]


def _fits(key, shape):
    pattern = IN_PYTHON.get(shape.pattern, shape.pattern)
    return shape.least <= len(key) <= shape.most and re.fullmatch(pattern, key) is not None


def test_every_token_of_aws_takes_our_uuid(tokens):
    assert len(tokens) > 1_000
    assert refused(shaped_key(KeyShape("uuid"), EFFECT, "refund"), tokens) == []


def test_and_many_take_no_downstream_key_so_that_the_shape_is_needed(tokens):
    assert len(refused(downstream_key(EFFECT, "refund"), tokens)) > 100
