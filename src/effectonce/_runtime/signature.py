"""A tool's parameters: how a call binds to them, whether it fits their types, and which of them
identify the effect.

`f(1)`, `f(x=1)` and `f(1, default)` are one call, so arguments are always bound to names, with
defaults filled in, before anything is hashed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from inspect import Parameter
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from effectonce._core.call_forms import Forms, plain_forms
from effectonce._core.canonical import NotCanonical, canonical, composed
from effectonce._core.codec import NOT_STORED, decode, encode_arguments
from effectonce._core.keys import Stable, unstable_default, unstable_name
from effectonce._core.resolved import resolved
from effectonce._core.tagged_json import NotReadable
from effectonce._core.type_hints import classes, default_factories, field_hints, hints_of
from effectonce._runtime.isolation import UNCHANGING, own
from effectonce.errors import ContractViolation

_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_EXACT = (Parameter.POSITIONAL_ONLY, *_VARIABLE)
_IN_ORDER = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
# ways to call a tool (how many arguments in order, and which by name) that are remembered
SHAPES_MAX = 64


def _near(field: str, names: tuple[str, ...]) -> str:
    import difflib  # noqa: PLC0415  # only where a name was misspelt

    near = difflib.get_close_matches(field, names, 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def signature_of(function: Callable[..., Any], what: str) -> inspect.Signature:
    """The parameters of a function. Some that are written in C, such as `int`, do not tell them."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise ContractViolation(
            f"{what}: {function!r} does not tell its parameters. Nothing was sent. Call it in a"
            " function of your own."
        ) from None


# stored arguments as a call again
Recall: TypeAlias = Callable[[Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class ToolSignature:
    """The parameters of one tool, compiled once when it is decorated."""

    def __init__(
        self,
        function: Callable[..., Any],
        tool: str,
        identity: tuple[str | Stable, ...] | None,
        volatile: tuple[str, ...],
        redact: tuple[str, ...] = (),
        added: Mapping[str, Any] | None = None,
        *,
        nfc: bool = False,
        recall: Recall | None = None,
        approved: bool = False,
    ) -> None:
        self.tool, self._canonical = tool, composed if nfc else canonical
        self._approved = approved
        self._signature = signature_of(function, tool)
        parameters = self._signature.parameters
        self.names = tuple(parameters)
        self._defaults = {
            n: p.default for n, p in parameters.items() if p.default is not Parameter.empty
        }
        self._positional = tuple(
            n for n, p in parameters.items() if p.kind is Parameter.POSITIONAL_OR_KEYWORD
        )
        self._in_order = tuple(n for n, p in parameters.items() if p.kind in _IN_ORDER)
        self._more = next(
            (n for n, p in parameters.items() if p.kind is Parameter.VAR_POSITIONAL), ""
        )
        self._others = next(
            (n for n, p in parameters.items() if p.kind is Parameter.VAR_KEYWORD), ""
        )
        # A default that a tool may change in place: what calls without it mean, and get.
        self.changing = {
            n: own(d)
            for n, d in self._defaults.items()
            if own(d) is not d and parameters[n].kind in _NAMED
        }
        self._defaults |= self.changing
        self._simple = not any(p.kind in _EXACT for p in parameters.values())
        hints = hints_of(function)
        # Of what is stored by that name.
        self.types = {name: _whole(hint, parameters.get(name)) for name, hint in hints.items()}
        self.returns = hints.get("return", Any)
        self._hints = {
            n: _checkable(hints.get(n, Any))
            for n in self.names
            if parameters[n].kind not in _VARIABLE
        }
        self._struct = msgspec.defstruct("Arguments", list(self._hints.items()))
        resolved(self._struct, *self._hints.values(), *self.types.values(), self.returns)
        self.volatile, self.redact = volatile, redact
        self.matched = tuple(n for n in self.names if n not in volatile)
        self._added = {} if added is None else dict(added)
        self.identity = self._identity(identity)
        self._meant = self._before(self._added)
        # the key says everything that the fingerprint says
        self.whole = self.identity == self.matched
        # each argument counts, and is stored, as it is given
        self._as_they_are = not (nfc or redact or self._meant)
        # of calls that fit: what is bound beside their arguments
        self._shapes: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._recall = recall

    def _identity(self, declared: tuple[str | Stable, ...] | None) -> tuple[str, ...]:
        """Check the declared fields, or take all that are not volatile."""
        if "idempotency_key" in self.names:
            raise ContractViolation(
                f"{self.tool}: a key is never a parameter, because the model would see it. "
                "Read current_effect().downstream_key inside the tool instead."
            )
        first = self.names[0] if self.names else ""
        if first in ("self", "cls") and first not in (*(declared or ()), *self.volatile):
            raise ContractViolation(
                f"{self.tool}: {first!r} would be part of the key, and changes with every field of"
                " the object. Decorate a function, or the bound method:"
                f" guard.tool(...)(bank.{self.tool})."
            )
        sure = self._vouched = {
            str(field.value) for field in declared or () if isinstance(field, Stable)
        }
        named = (
            self.matched
            if declared is None
            else (str(f.value) if isinstance(f, Stable) else f for f in declared)
        )
        fields = tuple(dict.fromkeys(named))
        for field in (*fields, *self.volatile, *self.redact, *self._added):
            if field not in self.names:
                has = ", ".join(self.names) or "none"
                raise ContractViolation(
                    f"{self.tool} has no parameter {field!r}; it has"
                    f" {has}.{_near(field, self.names)}"
                )
        for field in fields:
            what = unstable_name(field)
            if what is not None and field not in sure:
                raise ContractViolation(
                    f"{self.tool}: the parameter {field!r} looks like {what}, which changes on"
                    " every attempt, so a retry would not be recognised. Declare"
                    f" volatile=[{field!r}], or identity=[Stable({field!r}), ...] if it never"
                    " changes."
                )
        return fields

    def _before(self, added: Mapping[str, Any]) -> dict[str, bytes]:
        """What calls meant by parameters that were not there yet."""
        try:
            return {name: self._canonical(value) for name, value in added.items()}
        except NotCanonical as error:
            raise ContractViolation(f"{self.tool}: added={added!r}: {error}") from None

    def counted(self, names: tuple[str, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Those of *names* that count: not one that says what calls meant before it existed."""
        if not self._meant:
            return {name: arguments[name] for name in names}
        counts = [
            name
            for name in names
            if name not in self._meant or self._canonical(arguments[name]) != self._meant[name]
        ]
        return {name: arguments[name] for name in counts}

    def canonical(self, names: tuple[str, ...], arguments: Mapping[str, Any]) -> bytes:
        """Those of *names* that count, so that equal calls are equal bytes."""
        return self._canonical(self.counted(names, arguments))

    def suspects(self) -> dict[str, str]:
        """Fields of models in the key that look new on every attempt, and what they look like."""
        found: dict[str, str] = {}
        for name in self.identity:
            if name not in self._vouched:
                _suspect(name, self.types.get(name, Any), found, ())
        return found

    def named_by(self, rule: Callable[..., Any], what: str) -> tuple[str, ...]:
        """The arguments that a rule about calls asks for, by its own parameters."""
        names = tuple(inspect.signature(rule).parameters)
        unknown = next((name for name in names if name not in self.names), None)
        if unknown is not None:
            raise ContractViolation(
                f"{self.tool} has no parameter {unknown!r}, which {what} asks for; it has"
                f" {', '.join(self.names) or 'none'}"
            )
        return names

    def require_same_arguments(
        self, function: Callable[..., Any], what: str, *before: object
    ) -> None:
        """Can *function* be called as this tool is, with *before* in front? It is only called when
        something has gone wrong, which is too late to find out.
        """
        if self._recall is not None:
            return  # a framework's tool: what calls it passes what it likes
        try:
            taken = inspect.signature(function)
        except ValueError:
            return  # written in C
        parameters = self._signature.parameters.values()
        any_of = {p.name: None for p in parameters if p.kind not in _VARIABLE}
        whole = inspect.BoundArguments(self._signature, any_of)
        try:
            taken.bind(*before, *whole.args, **whole.kwargs)
            if all(p.kind in _NAMED for p in parameters):
                taken.bind(*before, **any_of)
        except TypeError as error:
            raise ContractViolation(
                f"the {what} of {self.tool} takes {taken}, and is called as {self.tool} is,"
                f" {self._signature}: {error}"
            ) from None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call as named arguments, defaults included."""
        shape = (len(args), *kwargs)
        beside = self._shapes.get(shape)
        if beside is None:
            beside = self._beside(args, kwargs)
            if beside is None:
                return self._bind_exactly(args, kwargs)
            if len(self._shapes) < SHAPES_MAX:
                self._shapes[shape] = beside
        if not args:
            return {**beside, **kwargs}
        return {**beside, **dict(zip(self._positional, args, strict=False)), **kwargs}

    def _beside(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is bound beside the arguments of a call like this. None: they do not simply fit."""
        given = self._positional[: len(args)]
        if (
            not self._simple
            or len(args) > len(given)
            or not kwargs.keys() <= self._hints.keys() - {*given}
        ):
            return None
        missing = {*self.names}.difference(kwargs, given)
        return None if not missing <= self._defaults.keys() else self._defaults if missing else {}

    def _bind_exactly(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Python's own binding: for unusual signatures, and for its words if a call is wrong."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ContractViolation(f"{self.tool}: {error}. Nothing was sent.") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def unchanging(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Can nothing in this call be changed in place?"""
        plain = UNCHANGING.issuperset(map(type, args)) and UNCHANGING.issuperset(
            map(type, kwargs.values())
        )
        return plain and not self.changing

    def copied(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with its own arguments; of volatile ones (clients) only plain data is copied."""
        given = self._in_order[: len(args)]
        parameters = (*given, *[self._more] * (len(args) - len(given)))  # of each argument in order
        ordered = [
            own(value, models=self._is_copied(name, value))
            for name, value in zip(parameters, args, strict=True)
        ]
        named = {
            name: own(
                value, models=self._is_copied(name if name in self.names else self._others, value)
            )
            for name, value in kwargs.items()
        }
        for name, default in self.changing.items():
            if name not in named and name not in given:
                named[name] = own(default)
        return tuple(ordered), named

    def _is_copied(self, name: str, value: Any) -> bool:
        """Is a model copied here? What a person approves, whatever is declared, if it is data."""
        if name not in self.volatile:
            return True
        try:
            return self._approved and canonical(value) != b""
        except NotCanonical:
            return False

    def is_intent(self, arguments: Mapping[str, Any], intent: bytes) -> bool:
        """Do these arguments of before identify this call? An older tool may have taken others."""
        try:
            bound = self.bind((), arguments)
        except ContractViolation:
            bound = {**self._defaults, **arguments}
        try:
            return self.canonical(self.identity, bound) == intent
        except (KeyError, NotCanonical):
            return False

    def call_with(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Named arguments as a call again. What runs for a framework does not take them itself."""
        if self._recall is not None:
            return self._recall(arguments)
        bound = inspect.BoundArguments(self._signature, dict(arguments))
        return bound.args, bound.kwargs

    def validate(self, arguments: Mapping[str, Any]) -> None:
        """Does every argument fit its type hint? No claim is made for a call that cannot work."""
        try:
            msgspec.convert(arguments, self._struct)
        except (msgspec.ValidationError, TypeError):
            for name, hint in self._hints.items():
                self._validate_one(name, arguments[name], hint)

    def _validate_one(self, name: str, value: Any, hint: Any) -> None:
        try:
            msgspec.convert(value, hint)
        except TypeError:
            return  # a type that only the tool itself understands
        except msgspec.ValidationError as error:
            if not _fits_by_value(value, hint):
                raise ContractViolation(
                    f"{self.tool}: the argument {name!r} does not fit: {error}. Nothing was sent."
                ) from None

    def forms(self, arguments: dict[str, Any]) -> Forms:
        """The call as what identifies it, as what has to match, and as it is stored."""
        if self._as_they_are:
            plain = plain_forms(arguments, self.identity, self.matched)
            if plain is not None:
                return plain
        try:
            intent = self.canonical(self.identity, arguments)
            return (
                intent,
                intent if self.whole else self.canonical(self.matched, arguments),
                self.encode(arguments),
            )
        except NotCanonical as error:
            raise ContractViolation(f"{self.tool}: {error}. Nothing was sent.") from None

    def encode(self, arguments: Mapping[str, Any]) -> bytes:
        """The arguments as stored: for the probe, and for the person who has to settle a doubt."""
        return encode_arguments(arguments, self.redact, self.types)

    def decode(self, stored: bytes) -> Mapping[str, Any]:
        """Stored arguments, for the probe; `NotReadable` if they were not stored or are broken."""
        read = decode(stored, self.types)
        if not isinstance(read.content, Mapping):
            raise NotReadable(
                "what is stored as its arguments is no set of arguments, but a"
                f" {type(read.content).__name__}"
            )
        if read.status == "redacted":
            lost = [
                name
                for name, value in read.content.items()
                if isinstance(value, str) and value.startswith(NOT_STORED)
            ]
            raise NotReadable(
                f"{', '.join(lost)} could not be stored" if lost else "its arguments were redacted"
            )
        if read.status != "ok":
            raise NotReadable(f"its arguments cannot be read: {read.content['why']}")
        return {**self._added, **read.content}


def _whole(hint: Any, parameter: Parameter | None) -> Any:
    """`*lines: Line` are declared one by one, and stored together."""
    kind = None if parameter is None else parameter.kind
    return (
        tuple[hint, ...]
        if kind is Parameter.VAR_POSITIONAL
        else dict[str, hint]
        if kind is Parameter.VAR_KEYWORD
        else hint
    )


def _suspect(path: str, hint: Any, found: dict[str, str], within: tuple[type, ...]) -> None:
    for cls, arm in classes(hint).items():
        factories = {} if cls in within else default_factories(cls)
        hints = field_hints(cls, arm) if factories else {}
        for name, factory in factories.items():
            what = unstable_name(name) or unstable_default(factory)
            if what is not None:
                found[f"{path}.{name}"] = what
            _suspect(f"{path}.{name}", hints.get(name, Any), found, (*within, cls))


_KEEP = (bytes, datetime, date, time, timedelta, Decimal, UUID)


def _fits_by_value(value: Any, hint: Any) -> bool:
    """An Enum member fits where its value does, which msgspec only sees in plain data."""
    try:
        msgspec.convert(msgspec.to_builtins(value, builtin_types=_KEEP), hint)
    except (TypeError, msgspec.ValidationError):
        return False
    return True


def _checkable(hint: Any) -> Any:
    """A hint that msgspec cannot check is no check at all, rather than an error in working code."""
    try:
        msgspec.inspect.type_info(hint)
    except (TypeError, NameError):
        return Any
    return hint


def is_async(function: Callable[..., Any]) -> bool:
    """An `async def`, also behind a partial or a callable object? `TypeError` for generators."""
    if isinstance(function, staticmethod):
        function = function.__func__
    # an object of ours that may be sync or async
    declared: bool | None = getattr(function, "__effectonce_async__", None)
    if declared is not None:
        return declared
    call = (
        function
        if inspect.isroutine(function)
        else getattr(function, "func", None) or type(function).__call__
    )
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise TypeError(
            f"{getattr(function, '__name__', function)!r} is a generator: what is guarded returns"
            " one result"
        )
    return inspect.iscoroutinefunction(call)
