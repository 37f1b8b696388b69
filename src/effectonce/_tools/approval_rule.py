"""Which calls of a tool a person has to approve: its `Approval`, checked beside its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from effectonce._core.codec import printable
from effectonce._core.guarantees import Terms
from effectonce._runtime.signature import ToolSignature
from effectonce.errors import ContractViolation
from effectonce.policy import Contract
from effectonce.policy.permissions import Approval


class ApprovalRule:
    """The rule of one tool, compiled once when it is declared."""

    def __init__(self, tool: str, approval: Approval, signature: ToolSignature) -> None:
        self._tool, self._signature, self._when = tool, signature, approval.when
        when = approval.when
        self._names = () if when is None else arguments_of(when, tool, signature, "its approval")
        self._free: tuple[Terms, Terms] | None = None  # of calls that need none

    @classmethod
    def of(cls, contract: Contract, signature: ToolSignature) -> ApprovalRule | None:
        """That of a contract, if it has one."""
        approval = contract.approval
        return None if approval is None else cls(contract.name, approval, signature)

    def terms(self, declared: Terms, arguments: Mapping[str, Any]) -> Terms:
        """What holds for this call."""
        if self._when is None or self._asked(self._when, arguments):
            return declared
        if self._free is None or self._free[0] is not declared:
            free = structs.replace(declared, approval=False, four_eyes=False)
            self._free = (declared, free)
        return self._free[1]

    def _asked(self, when: Callable[..., bool], arguments: Mapping[str, Any]) -> bool:
        try:
            needed = when(**{name: arguments[name] for name in self._names})
        except Exception as error:
            # the rule is the user's code
            raise ContractViolation(
                f"{self._tool}: whether it needs an approval could not be decided"
                f" ({type(error).__name__}: {printable(error)}). Nothing was sent."
            ) from error
        if not isinstance(needed, bool):
            raise ContractViolation(
                f"{self._tool}: whether it needs an approval was answered with {needed!r}, not True"
                " or False. Nothing was sent."
            )
        return needed

    def beside(self, arguments: Mapping[str, Any]) -> bytes:
        """What a person approves beside what has to match anyway: volatile arguments are sent,
        too. A client or a session is no data, and is left out.
        """
        return self._signature.data_of(self._signature.volatile, arguments)


def arguments_of(
    rule: Callable[..., Any], tool: str, signature: ToolSignature, what: str
) -> tuple[str, ...]:
    """The arguments of a tool that a rule about its calls asks for, by its parameters."""
    names = tuple(inspect.signature(rule).parameters)
    unknown = next((name for name in names if name not in signature.names), None)
    if unknown is not None:
        raise ContractViolation(
            f"{tool} has no parameter {unknown!r}, which {what} asks for; it has"
            f" {', '.join(signature.names) or 'none'}"
        )
    return names
