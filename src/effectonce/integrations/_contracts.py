"""What an agent's tools declare, as the adapters take it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from msgspec import Struct, structs

from effectonce._core.canonical import canonical
from effectonce._core.classification.classify import Rules, as_rules
from effectonce._core.guarantees import CapabilityName, Kind, KindName, Terms, unasked
from effectonce._runtime.signature import ToolSignature
from effectonce._runtime.unprotected_sends import only_through
from effectonce._tools.approval_rule import ApprovalRule
from effectonce._tools.provider_terms import terms_of
from effectonce._validate import errors, of_type, several
from effectonce.errors import ContractViolation, Rejected
from effectonce.integrations._redrive import Redrive
from effectonce.policy import Contract, Downstream, Retry, kind_of, window_of
from effectonce.policy.permissions import Approval


class ToolOptions(TypedDict, total=False):
    """What is declared about a tool of a framework: as in `Guard.tool`."""

    kind: KindName | Kind
    downstream: CapabilityName | Downstream
    provider: str
    identity: Sequence[str]
    volatile: Sequence[str]
    version: str
    window_s: float
    lease_s: float
    wait_s: float
    retry: Retry
    not_sent: Sequence[type[BaseException]]
    rejected: Sequence[type[BaseException]]
    rules: Rules
    one_request: bool
    through: Any
    approval: Approval | Callable[..., bool] | bool  # the rule is over the model's arguments
    # and how it is asked about, and done, without its framework: see _redrive.py
    probe: Callable[..., Any]
    redrive: Callable[..., Any]


SAFE: ToolOptions = {"kind": "write", "downstream": "none"}


class Declared(Struct, frozen=True):
    """A contract, and which arguments are the effect. The engine's tool has one: how to run it."""

    contract: Contract
    identity: tuple[str, ...] | None  # None: every argument that is not volatile
    volatile: tuple[str, ...]
    outside: Redrive = Redrive()
    rule: ApprovalRule | None = None  # which calls need an approval, where not all of them do

    def terms(self, declared: Terms, arguments: Mapping[str, Any]) -> Terms:
        if self.rule is None or self.rule.needed(arguments):
            return declared
        return unasked(declared)

    def intent(self, arguments: Mapping[str, Any]) -> bytes:
        if self.identity is None:
            return self.matched(arguments)
        return canonical({name: arguments.get(name) for name in self.identity})

    def requested(self, arguments: Mapping[str, Any]) -> bytes:
        """What has to be the same in a repeated call. A person approves all that is sent."""
        if self.contract.approval is not None:
            return canonical(dict(arguments))
        return self.matched(arguments)

    def matched(self, arguments: Mapping[str, Any]) -> bytes:
        kept = {name: value for name, value in arguments.items() if name not in self.volatile}
        return canonical(kept)


def with_defaults(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A model may leave a default out, or write it down: both are one call."""
    properties = schema.get("properties") or {}
    defaults = {
        name: known["default"]
        for name, known in properties.items()
        if isinstance(known, Mapping) and "default" in known
    }
    return defaults | dict(arguments)


def refuse_unknown(name: str, options: ToolOptions) -> None:
    known = ToolOptions.__annotations__
    of_type(name, options, Mapping, 'a contract, such as {"kind": "write"}')
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            guess = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ContractViolation(f"{name}: a contract has no {option!r}; {guess}")


def declare(name: str, **options: Unpack[ToolOptions]) -> Declared:
    kind, identity = kind_of(options.get("kind", "write")), options.get("identity")
    fields = None if identity is None else several("identity", identity)
    volatile = several("volatile", options.get("volatile", ()))
    both = sorted(set(fields or ()) & set(volatile))
    if both:
        raise ContractViolation(f"{name}: {', '.join(both)} cannot be both identity and volatile")
    theirs, retry = (
        terms_of(options.get("provider"), options.get("downstream")),
        options.get("retry"),
    )
    approval = Approval.of(options.get("approval", False))
    if approval is not None and approval.precondition is not None:
        raise ContractViolation(
            f"{name}: a precondition is asked right before something is sent, which only a tool of"
            " its own does: declare it with @guard.tool(approval=Approval(precondition=...))"
        )
    contract = Contract(
        name=name,
        kind=kind,
        downstream=theirs.downstream,
        version=options.get("version", "1"),
        window_s=window_of(kind, options.get("window_s")),
        lease_s=options.get("lease_s", 30.0),
        wait_s=options.get("wait_s", 30.0),
        retry=Retry() if retry is None else retry,
        approval=None if approval is None else structs.replace(approval, when=None),
        not_sent=errors("not_sent", options.get("not_sent", ())),
        rejected=(Rejected, *errors("rejected", options.get("rejected", ()))),
        rules=(*as_rules(options.get("rules", ())), *theirs.rules),
        one_request=options.get("one_request", False),
        through=only_through(options.get("through", ())),
        provider=theirs.provider,
        sent_key=theirs.sent_key,
    )
    outside = Redrive(options.get("probe"), options.get("redrive"))
    return Declared(contract, fields, volatile, outside, approval_rule(name, approval))


def approval_rule(name: str, approval: Approval | None) -> ApprovalRule | None:
    """The tool is the framework's: the rule's own parameters are the arguments that it reads."""
    if approval is None or approval.when is None:
        return None
    asked = Contract(name=name, kind=Kind.WRITE, downstream=Downstream.none(), approval=approval)
    return ApprovalRule(asked, ToolSignature(approval.when, name, None, ()))
