"""Which arguments of a tool find its effects again."""

from __future__ import annotations

from typing import Any

from effectonce._core.endings import Ending
from effectonce._core.ops import (
    Doubtful,
    Flow,
    Invoke,
    Together,
    Transact,
    Unapproved,
    WriteCell,
)
from effectonce._core.search_terms import TERM_MAX, found_by, spelt
from effectonce._runtime.performers import Prepared
from effectonce._runtime.signature import ToolSignature
from effectonce.errors import ContractViolation
from effectonce.policy import Contract


class SearchRule:
    """The arguments that one tool declares, checked beside its parameters."""

    def __init__(self, names: tuple[str, ...], signature: ToolSignature, secret: bytes) -> None:
        self._names, self._signature, self._secret = names, signature, secret

    @classmethod
    def of(cls, contract: Contract, signature: ToolSignature, secret: bytes) -> SearchRule | None:
        """Those of a contract, if it names any."""
        if not contract.searchable:
            return None
        for name in contract.searchable:
            if name not in signature.names:
                raise ContractViolation(
                    f"{contract.name} has no parameter {name!r}, which searchable= names; it has"
                    f" {', '.join(signature.names) or 'none'}"
                )
            if name in signature.redact:
                raise ContractViolation(
                    f"{contract.name}: {name} is redacted, and would be stored to be searched for"
                )
        return cls(contract.searchable, signature, secret)

    def indexed(self, flow: Flow[Ending], prepared: Prepared) -> Flow[Ending]:
        """The flow of a call, whose effect can be found before it is sent, while it waits for a
        person, and when it is in doubt. If that cannot be written, the effect is not stopped.
        """
        reply: Any = None
        writes = self._writes(prepared)
        try:
            while True:
                op = flow.send(reply)
                if writes and isinstance(op, Invoke | Transact):
                    yield Together(writes)
                    writes = ()
                reply = yield op
                if writes and isinstance(reply, Unapproved | Doubtful):
                    yield Together(writes)
                    writes = ()
        except StopIteration as done:
            ending: Ending = done.value
            return ending

    def _writes(self, prepared: Prepared) -> tuple[WriteCell, ...]:
        arguments = self._signature.bind(prepared.args, prepared.kwargs)
        terms = (_term(arguments[name]) for name in self._names)
        return tuple(
            found_by(term, prepared.request, self._secret) for term in dict.fromkeys(terms) if term
        )


def _term(value: Any) -> str:
    """As people type it; "": it is no name."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    term = spelt(str(value))
    return term if len(term) <= TERM_MAX else ""
