"""Which calls of a tool a person has to approve: its `Approval`, checked beside its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from effectonce._core.canonical import NotCanonical, canonical, fields_of
from effectonce._core.codec import printable
from effectonce._core.guarantees import Terms, unasked
from effectonce._core.owner import RecordOwner
from effectonce._core.record import Request
from effectonce._runtime.isolation import own
from effectonce._runtime.signature import ToolSignature
from effectonce._runtime.step import here
from effectonce.errors import ContractViolation
from effectonce.policy import Contract


class ApprovalRule:
    """The rule of one tool, compiled once when it is declared."""

    def __init__(self, contract: Contract, signature: ToolSignature) -> None:
        self._tool, self._volatile = contract.name, signature.volatile
        self._approval, self._over = contract.approval, _over_limits(contract)
        approval = contract.approval
        self._when = None if approval is None else approval.when
        self._never = None if approval is None else approval.never
        self._names = {
            rule: signature.named_by(rule, "its approval")
            for rule in (self._when, self._never)
            if rule is not None
        }
        self._free: tuple[Terms, Terms] | None = None  # of calls that need none

    @classmethod
    def of(cls, contract: Contract, signature: ToolSignature) -> ApprovalRule | None:
        """That of a contract, if a person may have to approve its calls."""
        return cls(contract, signature) if is_approved(contract) else None

    def applied_to(self, call: RecordOwner) -> None:
        """What a call has to ask before it is sent, and who asks for its approval."""
        if self._approval is not None and self._approval.precondition is not None:
            call.precondition = call.conditional = True
        boundary = here.get()
        if boundary is not None:
            call.asked_by = boundary.asked_by

    def asked(
        self, declared: Terms, matched: bytes, arguments: Mapping[str, Any]
    ) -> tuple[Terms, bytes]:
        """What holds for this call, and what has to match in it: volatile arguments are sent,
        too, so a person approves them.
        """
        needed = self.needed(arguments)
        if needed or self._over:  # whether it is above a limit is not known yet
            matched += self._beside(arguments)
        if needed:
            return declared, matched
        if self._free is None or self._free[0] is not declared:
            self._free = (declared, unasked(declared))
        return self._free[1], matched

    def of_today(self, request: Request, declared: Terms, arguments: Mapping[str, Any]) -> Request:
        """A request of before: what was never sent needs an approval if such a call does now."""
        if request.terms.approval or not self.needed(arguments):
            return request
        terms = structs.replace(
            request.terms, approval=True, four_eyes=declared.four_eyes, valid_s=declared.valid_s
        )
        return structs.replace(request, terms=terms)

    def needed(self, arguments: Mapping[str, Any]) -> bool:
        """Does such a call need an approval, whatever it spends? Raises if none can help it."""
        if self.forbids(arguments):
            raise ContractViolation(
                f"{self._tool} is never called with these arguments, and no person can approve it"
                " (Approval(never=)). Nothing was sent."
            )
        if self._when is None:
            return self._approval is not None
        return self._says(self._when, arguments)

    def forbids(self, arguments: Mapping[str, Any]) -> bool:
        """Is such a call never allowed, with or without an approval?"""
        return self._never is not None and self._says(self._never, arguments)

    def _says(self, rule: Callable[..., bool], arguments: Mapping[str, Any]) -> bool:
        try:
            said = rule(**{name: own(arguments[name]) for name in self._names[rule]})
        except Exception as error:
            # the rule is the user's code
            raise ContractViolation(
                f"{self._tool}: whether it needs an approval could not be decided"
                f" ({type(error).__name__}: {printable(error)}). Nothing was sent."
            ) from error
        if not isinstance(said, bool):
            raise ContractViolation(
                f"{self._tool}: whether it needs an approval was answered with {said!r}, not True"
                " or False. Nothing was sent."
            )
        return said

    def _beside(self, arguments: Mapping[str, Any]) -> bytes:
        """Volatile arguments, as equal bytes if they are equal."""
        if not self._volatile:
            return b""
        try:
            return canonical({name: _data(arguments[name]) for name in self._volatile})
        except RecursionError:
            raise ContractViolation(
                f"{self._tool}: what a person approves contains itself, or is nested too deeply."
                " Nothing was sent."
            ) from None


def is_approved(contract: Contract) -> bool:
    """May a person have to approve a call of this tool?"""
    return contract.approval is not None or _over_limits(contract)


def _over_limits(contract: Contract) -> bool:
    return any(allowance.over == "approval" for allowance in contract.allowances)


def _data(value: Any) -> Any:
    """What of it is data. A client or a session is none, wherever it is, and is left out."""
    try:
        return canonical(value).hex()
    except NotCanonical:
        pass
    match value:
        case str():
            return ["text", value.encode("utf-8", "surrogatepass").hex()]
        case float():
            return ["number", repr(value)]
        case Mapping():
            return ["pairs", sorted(([_data(k), _data(v)] for k, v in value.items()), key=repr)]
        case list() | tuple():
            return ["items", [_data(item) for item in value]]
        case set() | frozenset():
            return ["set", sorted((_data(item) for item in value), key=repr)]
        case _:
            try:
                return ["fields", _data(fields_of(value))]
            except NotCanonical:
                return None
