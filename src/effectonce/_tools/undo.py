"""`@refund.undo`: how an effect of a tool is undone, as a tool of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack, overload

from msgspec import structs

from effectonce._core.codec import NOT_STORED, decode
from effectonce._core.guarantees import CapabilityName, Kind
from effectonce._core.record import Record
from effectonce._core.tagged_json import NotReadable
from effectonce._core.undo import SUFFIX
from effectonce._tools.context import F
from effectonce._tools.provider_terms import terms_of
from effectonce._tools.tool import GuardedTool
from effectonce._validate import errors
from effectonce.errors import ContractViolation, Rejected
from effectonce.policy import Contract, Downstream, Retry, kind_of
from effectonce.policy.permissions import Approval

RESULT = "result"  # the parameter that gets what the tool returned


class UndoOptions(TypedDict, total=False):
    """What an undo declares for itself; all else is as its tool declares it."""

    kind: str | Kind
    downstream: CapabilityName | Downstream
    provider: str
    approval: Approval | Callable[..., bool] | bool
    retry: Retry
    not_sent: Sequence[type[BaseException]]
    rejected: Sequence[type[BaseException]]


class UndoTool:
    """How the effects of a tool are undone: by `guard.undo(key, ...)`, and not by a call."""

    def __init__(self, tool: GuardedTool) -> None:
        self._tool = tool

    @property
    def contract(self) -> Contract:
        return self._tool.contract

    def probe(self, function: F) -> F:
        """Register how to ask the downstream whether it is undone: called like the undo."""
        return self._tool.probe(function)


class UndoHost(Protocol):
    """Makes a tool of the same guard."""

    def __call__(
        self, contract: Contract, function: Callable[..., Any], *, breaker: Any, budget: Any
    ) -> GuardedTool: ...


class UndoDecorator:
    """`tool.undo`, with options or without."""

    def __init__(self, tool: GuardedTool, host: UndoHost | None) -> None:
        self._tool, self._host = tool, host

    @overload
    def __call__(self, function: Callable[..., Any], /) -> UndoTool: ...

    @overload
    def __call__(
        self, **options: Unpack[UndoOptions]
    ) -> Callable[[Callable[..., Any]], UndoTool]: ...

    # mypy does not see that it does
    def __call__(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        unknown = sorted(set(options) - set(UndoOptions.__annotations__))
        if unknown:
            raise ContractViolation(
                f"an undo has no {', '.join(unknown)}; it may have"
                f" {', '.join(UndoOptions.__annotations__)}"
            )
        if function is None:
            return lambda decorated: self._declared(decorated, options)
        return self._declared(function, options)

    def _declared(self, function: Callable[..., Any], options: Mapping[str, Any]) -> UndoTool:
        tool, contract = self._tool, self._tool.contract
        if self._host is None:
            raise ContractViolation(
                f"{contract.name} is a workflow: give its steps compensations instead"
            )
        if contract.kind is Kind.READ or contract.dedup is not None:
            raise ContractViolation(
                f"{contract.name} has no undo: a read changes nothing, and with dedup= one key"
                " stands for several effects"
            )
        tool.require_same_mode(function, "undo")
        names = self._checked_names(function)
        made = self._host(
            _contract(contract, names, options),
            function,
            breaker=tool.retrying.circuit,
            budget=tool.retrying.tokens,
        )
        return UndoTool(made)

    def _checked_names(self, function: Callable[..., Any]) -> tuple[str, ...]:
        signature, names = self._tool.signature, tuple(inspect.signature(function).parameters)
        if RESULT in signature.names:
            raise ContractViolation(
                f"{signature.tool} has a parameter {RESULT!r}, which is what an undo gets the"
                " result by: rename it"
            )
        for name in names:
            if name != RESULT and name not in signature.names:
                raise ContractViolation(
                    f"{signature.tool} has no parameter {name!r}, which its undo asks for; it has"
                    f" {', '.join(signature.names) or 'none'}, and {RESULT!r} is what it returned"
                )
            if name in signature.redact:
                raise ContractViolation(
                    f"{signature.tool} redacts {name!r}: it is not stored, and its undo could not"
                    " get it"
                )
        return names


def _contract(of: Contract, names: tuple[str, ...], options: Mapping[str, Any]) -> Contract:
    changed: dict[str, Any] = {
        name: errors(name, options[name]) for name in ("not_sent", "rejected") if name in options
    }
    # the probe of the tool does not know whether it was undone
    changed["downstream"] = structs.replace(of.downstream, before_sending=False)
    if "rejected" in changed:
        changed["rejected"] = (Rejected, *changed["rejected"])
    if "kind" in options:
        changed["kind"] = kind_of(options["kind"])
    if "retry" in options:
        changed["retry"] = options["retry"]
    if "downstream" in options or "provider" in options:
        theirs = terms_of(options.get("provider"), options.get("downstream"))
        changed |= {
            "downstream": theirs.downstream,
            "provider": theirs.provider,
            "sent_key": theirs.sent_key,
            "rules": (*of.rules, *theirs.rules),
        }
    return structs.replace(
        of,
        name=f"{of.name}{SUFFIX}",
        identity=None,
        # it comes from the record of what is undone, and need not be data that can be compared
        volatile=(RESULT,) if RESULT in names else (),
        redact=(),
        added={},
        permission=None,
        approval=Approval.of(options.get("approval", False)),
        allowances=(),
        spends=1,
        searchable=(),
        **changed,
    )


def stored_arguments(tool: GuardedTool, record: Record, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of *names*, as they were sent. `NotReadable` if one of them was not stored."""
    stored = decode(record.request.arguments, tool.signature.types)
    if stored.status not in ("ok", "redacted") or not isinstance(stored.content, Mapping):
        why = stored.content.get("why", "") if isinstance(stored.content, Mapping) else ""
        raise NotReadable(f"its arguments cannot be read{f': {why}' if why else ''}")
    known = {**tool.contract.added, **stored.content}
    lost = [
        name
        for name in names
        if name not in known
        or (
            stored.status == "redacted"
            and (name in tool.signature.redact or str(known[name]).startswith(NOT_STORED))
        )
    ]
    if lost:
        raise NotReadable(f"{', '.join(lost)} of its arguments are not stored")
    return {name: known[name] for name in names}
