"""AWS writes down which members of its operations are idempotency tokens, and what they look
like. Each of them, in the botocore that is installed, is a provider, and takes our key.
"""

import gzip
import re
from datetime import UTC, datetime
from pathlib import Path

import botocore
import msgspec
import pytest
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from effectonce import ContractViolation, Downstream, Guard
from effectonce._core.key_shapes import KeyShape, shaped_key
from effectonce._core.keys import downstream_key
from effectonce.providers import provider
from tests.providers.test_providers import printed_by

MODELS = Path(botocore.__file__).parent / "data"
IN_PYTHON = {
    r"\p{ASCII}{1,256}": r"[\x00-\x7f]{1,256}",
    r"[\p{L}||\p{M}||\p{Z}||\p{S}||\p{N}||\p{P}]+": r"[^\x00-\x1f\x7f]+",
    r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*": (
        r"[\t\u0020-\uD7FF\uE000-\U0010FFFF]*"
    ),
}  # patterns that only Java reads; any other that Python does not read fails the test
EFFECT = "15d2f0c1ad08a8923168266f50b1ef442b15bab4"
SERVICES = sorted(path.name for path in MODELS.iterdir() if any(path.glob("*/service-2.json*")))
GROUPS = 8


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


def tokens(service):
    """The shape of every token of a service, by operation and member: read from the file."""
    file = max(MODELS.glob(f"{service}/*/service-2.json*"))
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    if b'"idempotencyToken"' not in text:
        return {}
    model = msgspec.json.decode(text, type=Model)
    asked = {
        name: msgspec.json.decode(model.shapes[operation.input.shape], type=Shape)
        for name, operation in model.operations.items()
        if operation.input is not None
    }
    return {
        (name, member): msgspec.json.decode(model.shapes[of.shape], type=Shape)
        for name, shape in asked.items()
        for member, of in shape.members.items()
        if of.token
    }


def fits(key, shape):
    pattern = IN_PYTHON.get(shape.pattern, shape.pattern)
    return shape.least <= len(key) <= shape.most and re.fullmatch(pattern, key) is not None


def our_key(found):
    """As the shape of the provider says, and not as its pattern does."""
    return shaped_key(KeyShape(found.key.form), EFFECT, "refund")


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    "group", [0, *(pytest.param(group, marks=pytest.mark.long) for group in range(1, GROUPS))]
)
def test_every_token_of_aws_is_a_provider_and_takes_our_key(group):
    for service in SERVICES[group::GROUPS]:
        for (operation, member), shape in tokens(service).items():
            found = provider.__wrapped__(f"aws.{service}.{operation}")

            key = our_key(found)
            assert (found.key.where, found.key.name) == ("argument", member)
            assert (found.key.length_min or 0, found.key.length_max or 1 << 30) == (
                shape.least,
                shape.most,
            )
            assert found.key.pattern in (shape.pattern, None)
            assert fits(key, shape), (service, operation)
            assert accepted(key, service, operation, member)


def accepted(key, service, operation, member):
    from effectonce.providers._aws import _service

    model = _service(service)
    assert isinstance(model, ServiceModel)
    token = model.operation_model(operation).input_shape.members[member]
    return not ParamValidator().validate(key, token).has_errors()


def test_there_are_many_and_some_take_no_downstream_key_so_that_the_shape_is_needed():
    all_of_them = [shape for service in SERVICES for shape in tokens(service).values()]

    refused = [each for each in all_of_them if not fits(downstream_key(EFFECT, "refund"), each)]
    assert len(all_of_them) > 1_000
    assert len(refused) > 100


# ---------------------------------------------------------------- what the model says


def test_the_argument_is_named_as_in_python_and_the_note_says_how_it_travels():
    found = provider("aws.ec2.RunInstances")

    assert (found.name, found.title) == ("aws.ec2.RunInstances", "AWS, EC2 RunInstances")
    assert (found.key.where, found.key.name, found.key.form) == ("argument", "ClientToken", "uuid")
    assert found.facts.key.note == "it travels as body clientToken"
    assert found.facts.key.date == datetime.now(UTC).date()
    assert f"/{botocore.__version__}/botocore/data/ec2/" in found.facts.key.link


def test_what_the_model_does_not_say_is_unknown():
    found = provider("aws.ec2.RunInstances")

    assert (found.window_s, found.stored, found.mismatch, found.probe) == (None,) * 4
    assert found.facts.window_s.unverified
    assert found.facts.errors.unverified


@pytest.mark.parametrize(
    ("name", "window_s"),
    [
        ("aws.dynamodb.TransactWriteItems", 600),
        ("aws.dynamodb.ImportTable", 8 * 3600),
        ("aws.cloudcontrol.CreateResource", 36 * 3600),
        ("aws.connect.StartOutboundVoiceContact", 7 * 86400),
        ("aws.lambda.CheckpointDurableExecution", 900),
        ("aws.greengrassv2.CreateDeployment", None),  # "up to 8 hours" promises nothing
        ("aws.stepfunctions.RedriveExecution", None),  # nor does the last ten, up to 15 minutes
    ],
)
def test_a_window_is_read_where_the_text_of_the_token_promises_one(name, window_s):
    found = provider(name)

    assert found.window_s == window_s
    assert found.facts.window_s.unverified == (window_s is None)


def test_the_errors_of_the_operation_that_are_about_its_token():
    found = provider("aws.dynamodb.TransactWriteItems")

    assert found.mismatch == "IdempotentParameterMismatchException"
    assert found.in_flight == "TransactionInProgressException"
    assert [error.code for error in found.errors] == [found.mismatch, found.in_flight]


def test_a_tool_of_aws_is_repeated_under_its_token_for_as_long_as_the_model_says():
    def move() -> None: ...

    tools = {
        name: Guard("memory://").tool(kind="write", provider=name)(move)
        for name in ("aws.dynamodb.TransactWriteItems", "aws.ec2.RunInstances")
    }

    assert {name: each.contract.downstream for name, each in tools.items()} == {
        "aws.dynamodb.TransactWriteItems": Downstream.key(window=600),
        "aws.ec2.RunInstances": Downstream.key(window=300),  # as long as any is known to
    }


# ---------------------------------------------------------------- wrong names


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("aws.ec3.RunInstances", "botocore has no service 'ec3'. Did you mean 'ecs', 'ecr' or"),
        ("aws.ec2.run_instances", "ec2 has no operation 'run_instances'. Did you mean 'RunInst"),
        ("aws.ec2.RunInstance", "ec2 has no operation 'RunInstance'. Did you mean 'RunInstances'"),
        ("aws.ec2", "ec2 has no operation ''."),
        ("aws.", "botocore has no service ''."),
        ("aws.../ec2.RunInstances", "botocore has no service ''."),
    ],
)
def test_a_wrong_name_has_a_guess(wrong, said):
    with pytest.raises(ContractViolation) as raised:
        provider(wrong)

    assert str(raised.value).startswith(f"there is no provider {wrong!r}: {said}")
    assert "aws.<service>.<Operation>" in raised.value.corrective_action


@pytest.mark.parametrize("name", ["aws.s3.PutObject", "aws.dynamodb.PutItem"])
def test_an_operation_without_a_token_is_none(name):
    with pytest.raises(ContractViolation, match="takes no idempotency token") as raised:
        provider(name)

    assert 'downstream="probe"' in raised.value.corrective_action


def test_without_botocore_it_is_said_what_to_install():
    code = (
        "import sys; sys.modules['botocore.loaders'] = None\n"
        "from effectonce.providers import provider\n"
        "try: provider('aws.ec2.RunInstances')\n"
        "except Exception as error: print(type(error).__name__, error, error.corrective_action)"
    )

    said = printed_by(code)
    assert said.startswith("ContractViolation aws.<service>.<Operation> is read from botoco")
    assert "pip install botocore" in said


def test_no_other_name_imports_botocore():
    code = (
        "import sys; from effectonce.providers import provider, providers\n"
        "for name in providers(): provider(name)\n"
        "print('botocore' in sys.modules)"
    )

    assert printed_by(code) == "False\n"
