"""AWS, as the botocore that is installed describes it: `aws.<service>.<Operation>`.

botocore has a model of every operation. The member with the trait `idempotencyToken` is the key;
its length and its pattern are there, and for some operations its text says how long it counts.
What the model does not say is unknown. botocore is imported with the first such name.

Without a token of yours botocore makes one up for each call: its own retries have the same one,
but a tool that is run again has another.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from effectonce.errors import ContractViolation
from effectonce.providers._guess import guess
from effectonce.providers._model import ErrorMeaning, Fact, Facts, Provider, ProviderKey, Says

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel, Shape

PREFIX = "aws."
HOW_TO_NAME = "aws.<service>.<Operation>"
UUID = "550e8400-e29b-41d4-a716-446655440000"  # one of many: any has these characters
_TAG = re.compile(r"<[^>]+>")
_WINDOW = re.compile(
    r"(?:(?:valid|active) for|window is|for at least|within an?|during the|after)"
    r" (\d+)[- ](minute|hour|day)s?",
    re.IGNORECASE,
)
_UNIT_S = {"minute": 60, "hour": 3600, "day": 86400}
REPEAT = Fact(
    link="https://smithy.io/2.0/spec/behavior-traits.html",
    date=dt.date(2026, 11, 17),
    note="by this trait a service finds repeats, and discards them; what it answers is its own",
)
MISMATCH: tuple[Says, str] = ("mismatch", "the token was used with other parameters")
IN_FLIGHT: tuple[Says, str] = ("in flight", "a request with this token is still running")
_MISMATCH = re.compile(r"Idempoten\w*Mismatch\w*")
_IN_FLIGHT = re.compile(r"(?:IdempotentCall|Transaction)InProgress\w*")


def operation(name: str, today: dt.date) -> Provider:
    """The operation of that name, as the installed botocore has it *today*."""
    _, service, wanted = (*name.split(".", 2), "", "")[:3]
    services = _services()
    if service not in services:
        raise _unknown(name, f"botocore has no service {service!r}", service, services)
    model = _service(service)
    if wanted not in model.operation_names:
        said = f"{service} has no operation {wanted!r}"
        raise _unknown(name, said, wanted.replace("_", ""), model.operation_names)
    found = model.operation_model(wanted)
    if not _tokens(found):
        raise ContractViolation(
            f"there is no provider {name!r}: {wanted} takes no idempotency token, so AWS cannot"
            " recognise a repeat.",
            corrective_action='Declare downstream="probe", if what it wrote can be asked for, or'
            ' downstream="none".',
        )
    return _provider(name, found, today)


def _provider(name: str, found: OperationModel, today: dt.date) -> Provider:
    (token,) = _tokens(found)
    shape, source = found.input_shape.members[token], _source(found.service_model)
    text = " ".join(_TAG.sub(" ", shape.documentation).split())
    window_s = _window_s(text)
    mismatch, in_flight = _error(found, _MISMATCH), _error(found, _IN_FLIGHT)
    stated, unknown = Fact(link=source, date=today), Fact(unverified=True)
    return Provider(
        name=name,
        title=f"AWS, {found.service_model.service_id} {found.name}",
        summary=f"A repeat with the same {token} is recognised, and discarded.",
        key=_key(token, shape, required=token in found.input_shape.required_members),
        window_s=window_s,
        repeat="latest_status",
        mismatch=mismatch,
        in_flight=in_flight,
        errors=tuple(
            each for each in (_about(mismatch, MISMATCH), _about(in_flight, IN_FLIGHT)) if each
        ),
        facts=Facts(
            key=Fact(link=source, date=today, note=_note(token, shape)),
            window_s=unknown if window_s is None else stated,
            stored=unknown,
            repeat=REPEAT,
            mismatch=unknown if mismatch is None else stated,
            in_flight=unknown if in_flight is None else stated,
            probe=unknown,
            errors=unknown if mismatch is in_flight is None else stated,
        ),
    )


def _key(token: str, shape: Shape, *, required: bool) -> ProviderKey:
    limits = shape.metadata
    return ProviderKey(
        where="argument",
        name=token,
        length_min=limits.get("min") or None,
        length_max=limits.get("max"),
        pattern=_readable(limits.get("pattern")),
        form="uuid" if _fits(UUID, shape) else "plain",
        required=required,
    )


def _fits(key: str, shape: Shape) -> bool:
    limits = shape.metadata
    pattern = _readable(limits.get("pattern"))
    return (
        limits.get("min", 0) <= len(key) <= limits.get("max", len(key))
        and re.fullmatch(pattern or ".*", key) is not None
    )


def _readable(pattern: str | None) -> str | None:
    """The pattern, if Python reads it; some are of another language."""
    try:
        return None if pattern is None else re.compile(pattern).pattern
    except re.error:
        return None


def _note(token: str, shape: Shape) -> str | None:
    place, wire = shape.serialization.get("location", "body"), shape.serialization.get("name")
    pattern = shape.metadata.get("pattern")
    parts = [] if place == "body" and wire in (None, token) else [f"it travels as {place} {wire}"]
    if _readable(pattern) != pattern:
        parts.append(f"its pattern {pattern} is none that Python reads")
    return "; ".join(parts) or None


def _window_s(text: str) -> int | None:
    """How long a token counts, if its text says so, and says one thing only."""
    said = {int(number) * _UNIT_S[unit.lower()] for number, unit in _WINDOW.findall(text)}
    return said.pop() if len(said) == 1 else None


def _error(found: OperationModel, names: re.Pattern[str]) -> str | None:
    return next((e.name for e in found.error_shapes if names.fullmatch(e.name)), None)


def _about(code: str | None, meant: tuple[Says, str]) -> ErrorMeaning | None:
    return None if code is None else ErrorMeaning(code=code, says=meant[0], meaning=meant[1])


def _tokens(found: OperationModel) -> list[str]:
    return [] if found.input_shape is None else list(found.idempotent_members)


def _source(service: ServiceModel) -> str:
    import botocore  # noqa: PLC0415  # it is there: the model came from it

    folder = f"botocore/data/{service.service_name}/{service.api_version}"
    return f"https://github.com/boto/botocore/tree/{botocore.__version__}/{folder}"


@cache
def _services() -> tuple[str, ...]:
    try:
        from botocore.loaders import Loader  # noqa: PLC0415  # with the first name of AWS
    except ImportError:
        raise ContractViolation(
            f"{HOW_TO_NAME} is read from botocore, and botocore is not installed.",
            corrective_action="pip install botocore (boto3 brings it).",
        ) from None
    return tuple(Loader().list_available_services("service-2"))


@lru_cache(maxsize=2)
def _service(name: str) -> ServiceModel:
    from botocore.loaders import Loader  # noqa: PLC0415
    from botocore.model import ServiceModel  # noqa: PLC0415

    # of a loader of its own: one keeps whatever it loaded, and that of EC2 takes 14 MB
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


def _unknown(name: str, said: str, wanted: str, known: Iterable[str]) -> ContractViolation:
    return ContractViolation(
        f"there is no provider {name!r}: {said}.{guess(wanted, known)}",
        corrective_action=f"Write it as AWS does: {HOW_TO_NAME}, aws.ec2.RunInstances.",
    )
