"""What the calls of a tool take out of its allowances, checked beside its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from effectonce._core.allowances import CELLS, Spend
from effectonce._core.canonical import NotCanonical, canonical
from effectonce._core.codec import printable
from effectonce._core.keys import derive
from effectonce._core.owner import RecordOwner
from effectonce._core.record import Request
from effectonce._runtime.performers import Prepared
from effectonce._runtime.signature import ToolSignature
from effectonce._runtime.step import here
from effectonce.errors import ContractViolation
from effectonce.policy import Contract
from effectonce.policy.permissions import Allowance

SUBJECTS = ("tenant", "scope", "asked_by")  # what is known of a call beside its arguments
SHOWN_MAX = 80


class SpendingRule:
    """The allowances of one tool, compiled once when it is declared."""

    def __init__(
        self,
        tool: str,
        allowances: Sequence[Allowance],
        spends: str | int | Callable[..., int],
        signature: ToolSignature,
        secret: bytes,
    ) -> None:
        self._tool, self._allowances, self._signature = tool, allowances, signature
        self._secret, self._spends = secret, spends
        self._asks = signature.named_by(spends, "spends=") if callable(spends) else ()
        fields = [field for each in allowances for field in each.subject if field not in SUBJECTS]
        for field in (*fields, *([spends] if isinstance(spends, str) else [])):
            if field not in signature.names:
                raise ContractViolation(
                    f"{tool} has no parameter {field!r}, which its allowance names; it has"
                    f" {', '.join(signature.names) or 'none'}"
                )

    @classmethod
    def of(cls, contract: Contract, signature: ToolSignature, secret: bytes) -> SpendingRule | None:
        """Those of a contract, if it has any."""
        if not contract.allowances:
            return None
        return cls(contract.name, contract.allowances, contract.spends, signature, secret)

    def applied_to(self, call: RecordOwner, prepared: Prepared) -> None:
        """What this call spends."""
        arguments = self._signature.bind(prepared.args, prepared.kwargs)
        amount = self._amount(arguments)
        call.spends = tuple(
            self._spend(each, call.request, arguments, amount) for each in self._allowances
        )
        call.conditional = True

    def _amount(self, arguments: Mapping[str, Any]) -> int:
        spends = self._spends
        if isinstance(spends, str):
            amount = arguments[spends]
        elif callable(spends):
            try:
                amount = spends(**{name: arguments[name] for name in self._asks})
            except Exception as error:
                # the function is the user's code
                raise ContractViolation(
                    f"{self._tool}: what it spends could not be said ({type(error).__name__}:"
                    f" {printable(error)}). Nothing was sent."
                ) from error
        else:
            amount = spends
        if not isinstance(amount, int) or isinstance(amount, bool) or amount < 0:
            raise ContractViolation(
                f"{self._tool} would spend {amount!r}: give a whole number, such as cents. Nothing"
                " was sent."
            )
        return int(amount)

    def _spend(
        self, allowance: Allowance, request: Request, arguments: Mapping[str, Any], amount: int
    ) -> Spend:
        place = here.get()
        asker = "" if place is None else place.asked_by
        known = {"tenant": request.tenant, "scope": request.scope, "asked_by": asker}
        try:
            values = {
                field: known[field] if field in known else arguments[field]
                for field in allowance.subject
            }
            whose = canonical(values)
        except NotCanonical as error:
            raise ContractViolation(f"{self._tool}: {error}. Nothing was sent.") from None
        name = derive("allowance", allowance.name, whose, secret=self._secret)
        # the account is kept in the clear, also where arguments are sealed or hashed
        hidden = self._signature.names if self._secret else self._signature.redact
        shown = ", ".join(
            f"{field} {value if field in known or field not in hidden else f'[{name[-8:]}]'}"
            for field, value in values.items()
        )
        return Spend(
            allowance.name,
            shown[:SHOWN_MAX],
            f"{CELLS}{allowance.name} {name}",
            amount,
            allowance.limit,
            allowance.unit,
            allowance.window,
            allowance.over == "approval",
            request.tenant if "tenant" in values else None,
        )
