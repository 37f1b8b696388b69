"""What the calls of a tool rest on: the precondition of its `Approval`, checked beside its
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from effectonce._core.codec import printable
from effectonce._runtime.isolation import own
from effectonce._runtime.signature import ToolSignature, is_async
from effectonce.errors import ContractViolation
from effectonce.policy import Contract


class Precondition:
    """The precondition of one tool, compiled once when it is declared."""

    def __init__(self, function: Callable[..., Any], signature: ToolSignature) -> None:
        self._function, self._tool, self._signature = function, signature.tool, signature
        self.is_async = is_async(function)
        self._names = signature.named_by(function, "its precondition")

    def holds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Does it hold for this call?"""
        try:
            answer = self._function(**self._asked(args, kwargs))
        except Exception as error:
            # the function is the user's code
            raise self._undecided(error) from error
        return self._said(answer)

    async def aholds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """The same for an async tool."""
        if not self.is_async:
            return self.holds(args, kwargs)
        try:
            answer = await self._function(**self._asked(args, kwargs))
        except Exception as error:
            # as above
            raise self._undecided(error) from error
        return self._said(answer)

    def _asked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        arguments = self._signature.bind(args, kwargs)
        return {name: own(arguments[name]) for name in self._names}

    def _undecided(self, error: Exception) -> ContractViolation:
        return ContractViolation(
            f"{self._tool}: whether its precondition holds could not be decided"
            f" ({type(error).__name__}: {printable(error)}). Nothing was sent.",
            retriable=True,
            corrective_action="Repeat the same call later: it is asked again, and an approval"
            " stands.",
        )

    def _said(self, answer: Any) -> bool:
        if not isinstance(answer, bool):
            raise ContractViolation(
                f"{self._tool}: whether its precondition holds was answered with {answer!r}, not"
                " True or False. Nothing was sent."
            )
        return answer


def precondition_of(
    contract: Contract, signature: ToolSignature, *, is_async: bool
) -> Callable[..., Any] | None:
    """How that of a contract is asked, if it has one; of an async tool, it is awaited."""
    approval = contract.approval
    if approval is None or approval.precondition is None:
        return None
    rule = Precondition(approval.precondition, signature)
    if rule.is_async and not is_async:
        raise TypeError(
            f"{contract.name} is def, its precondition is async def: make it def, or the tool async"
            " def"
        )
    return rule.aholds if is_async else rule.holds
