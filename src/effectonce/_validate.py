"""What people write wrong when they declare something: reported at once, and by name.

A type checker would report it too, but not every project uses one. A wrong type that passes
unnoticed is found when an effect is under way: the text "no" is true, the letters of "refund"
are six names, and `timedelta(days=1).seconds` is 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from datetime import timedelta
from numbers import Real
from typing import Any, TypeVar, cast

from effectonce._core.codec import printable
from effectonce._core.keys import Stable
from effectonce.errors import ContractViolation

E = TypeVar("E", bound=BaseException)
F = TypeVar("F", bound=Callable[..., Any])
KINDS = "'read', 'idempotent_write', 'irreversible'"


def parenthesised(tool: F) -> F:
    """Say what `@guard.tool` without parentheses, or without a kind, lacks: Python would speak
    of positional arguments.
    """

    @functools.wraps(tool)
    def checked(self: Any, *functions: Any, **options: Any) -> Any:
        if functions or "kind" not in options:
            name = getattr(functions[0], "__name__", "the tool") if functions else "the tool"
            raise ContractViolation(
                f"guard.tool does not know what {name} does, so it was not made a tool.",
                corrective_action=(
                    f"Say what running it twice would do: @guard.tool(kind='write'), or {KINDS}."
                ),
            )
        return tool(self, **options)

    return cast("F", checked)


def seconds(value: float | timedelta, name: str) -> float:
    """Timedeltas are welcome at the edge; inside, time is a float of seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not _is_number(value):
        raise ContractViolation(f"{name}={value!r}: give a number of seconds, or a timedelta")
    return float(value)


def numbers(**given: Any) -> None:
    """Each of them is a number, however large."""
    for name, value in given.items():
        if not _is_number(value):
            raise ContractViolation(
                f"{name}={value!r}: give a number" + (" of seconds" if name.endswith("_s") else "")
            )


def whole(**given: Any) -> None:
    """Each of them is a whole number, however large."""
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise ContractViolation(f"{name}={value!r}: give a whole number")


def _is_number(value: Any) -> bool:
    kind = type(value)  # first, because asking an abstract class takes its time
    return kind is float or kind is int or (isinstance(value, Real) and kind is not bool)


def flags(**given: Any) -> None:
    """Each of them is True or False, and nothing that is merely taken for it."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ContractViolation(f"{name}={value!r}: give True or False")


def texts(**given: Any) -> None:
    """Each of them is a text that says something."""
    for name, value in given.items():
        if not isinstance(value, str) or value == "":
            raise ContractViolation(f"{name}={value!r}: give a text that says something")


def several(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    """A list of names, or of whatever stands for one. A single text is none: it would be taken
    letter by letter.
    """
    if isinstance(given, str):
        raise ContractViolation(f"{name}={given!r}: give a list, {name}=[{given!r}]")
    if not isinstance(given, Iterable):
        raise ContractViolation(f"{name}={given!r}: give a list")
    return tuple(given)


def fields(identity: Iterable[str | Stable] | None) -> tuple[str, ...] | None:
    """The fields that are the identity, by name; None: all that are not volatile."""
    if identity is None:
        return None
    return tuple(
        str(field.value) if isinstance(field, Stable) else field
        for field in several("identity", identity)
    )


def errors(name: str, given: Iterable[type[E]]) -> tuple[type[E], ...]:
    """A list of exception classes."""
    as_written: Any = given
    listed = (
        tuple(as_written)
        if isinstance(as_written, Iterable) and not isinstance(as_written, str)
        else (None,)
    )
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in listed):
        raise ContractViolation(
            f"{name}={given!r}: give a list of exception classes, such as {name}=[ValueError]"
        )
    return listed


def of_type(name: str, value: Any, wanted: type | tuple[type, ...], how: str) -> None:
    """It is what it should be, or nothing. *how* is how to write it."""
    if value is not None and not isinstance(value, wanted):
        raise ContractViolation(f"{name}={value!r}: give {how}")


def require(condition: bool, message: str) -> None:  # noqa: FBT001  # it reads as a sentence
    if not condition:
        raise ContractViolation(message)


def who(by: str, reason: str) -> tuple[str, str]:
    """The person who decides gives a name and a reason."""
    given = (by, reason)
    # callers without a type checker
    if not all(isinstance(each, str) and each.strip() for each in given):  # type: ignore[redundant-expr]
        raise ContractViolation(
            "settling needs a name (by=) and a reason (reason=): both stay on the record"
        )
    for each in given:
        if printable(each) != each:
            raise ContractViolation(
                f"{each[:40]!r} cannot stay on the record: it is no Unicode text, or too long"
            )
    return given
