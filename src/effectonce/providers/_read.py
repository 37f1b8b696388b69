"""Find a provider by name and read its file. The name of the file is that of the provider."""

from __future__ import annotations

import datetime as dt
from functools import cache
from importlib.resources import files

import msgspec

from effectonce.errors import ContractViolation
from effectonce.providers import _aws
from effectonce.providers._guess import guess
from effectonce.providers._model import OLD_AFTER, Provider

SUFFIX = ".toml"
HOW_TO_LIST = (
    "All names: effectonce.providers.providers(), or `effectonce provider list`. An operation of"
    f" AWS is {_aws.HOW_TO_NAME}."
)
_FOLDER = files("effectonce.providers") / "data"


def providers() -> list[str]:
    """The names of all providers that have a file, sorted."""
    return list(_names())


@cache
def provider(name: str) -> Provider:
    """What the provider of that name does with a repeated request.

    `aws.<service>.<Operation>` is read from the botocore that is installed.
    """
    if name.startswith(_aws.PREFIX):
        return _aws.operation(name, dt.datetime.now(dt.UTC).date())
    if name not in _names():
        raise ContractViolation(
            f"there is no provider {name!r}.{guess(name, _names())}", corrective_action=HOW_TO_LIST
        )
    file = f"{name}{SUFFIX}"
    return read((_FOLDER / file).read_text(encoding="utf-8"), file)


def outdated(provider: Provider, today: dt.date) -> list[str]:
    """The fields whose page was read more than 180 days before *today*."""
    facts = msgspec.structs.asdict(provider.facts)
    return [
        name
        for name, fact in facts.items()
        if fact.date is not None and today - fact.date > OLD_AFTER
    ]


def read(text: str, file: str) -> Provider:
    """Read the text of a file. Any mistake in it is an error that names the file and the field."""
    import tomllib  # noqa: PLC0415  # with the first file

    name = file.removesuffix(SUFFIX)
    try:
        found = msgspec.convert({"name": name, **tomllib.loads(text)}, Provider)
        if found.name != name:
            raise msgspec.ValidationError(
                f"it is named after its file, not {found.name!r} - at `$.name`"
            )
        return found
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ContractViolation(
            f"providers/data/{file}: {error}",
            corrective_action="Correct the file, or install effectonce again.",
        ) from None


@cache
def _names() -> tuple[str, ...]:
    return tuple(
        sorted(
            entry.name.removesuffix(SUFFIX)
            for entry in _FOLDER.iterdir()
            if entry.name.endswith(SUFFIX)
        )
    )
