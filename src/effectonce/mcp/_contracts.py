"""What is known about the tools of a server: a contract file, then what a trusted server says,
then the safe choice.

The safe choice is a write whose outcome is unknown unless the server answers: sent once, never
blindly again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

import msgspec
from msgspec import Struct

from effectonce._core.guarantees import DAY_S, Capability, Kind
from effectonce._runtime.config_file import document
from effectonce._tools.provider_terms import ProviderTerms, terms_of
from effectonce.errors import ContractViolation
from effectonce.mcp._jsonrpc import UnreadableMessage, is_tool, read, written
from effectonce.policy import Contract, Downstream, Retry, kind_of, misspelt, window_of
from effectonce.policy.permissions import Approval

# in the `_meta` of a tool: what its server says about it, in the words of a contract file
CONTRACT = "dev.effectonce/contract"
LISTED_MAX = 10_000  # tools of a server that are remembered
CALLS_S = 3600.0  # one call may take this long, its record included
_UNLIMITED_S = 3650 * DAY_S


class ToolContract(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One tool. *errors*: what its reported error means: unknown what was done, or nothing was."""

    kind: str = "write"
    downstream: Literal["key", "none"] = "none"
    # whose API the server calls with the key: that one has a shape for keys, and a window
    provider: str = ""
    # for downstream = "key": how long the server replays what it did under a key; None: a day,
    # or what the provider says
    honours_key_s: float | None = None
    identity: tuple[str, ...] | None = None  # None: every argument that is not volatile
    volatile: tuple[str, ...] = ()
    key_argument: str = ""  # an argument that takes a key: filled by us, and not shown to the model
    errors: Literal["unknown", "nothing_done"] = "unknown"
    verify: str = ""  # the tool to look with, when the outcome is unknown
    again_s: float = 120.0
    approval: bool = False  # a person has to approve every call, with its very arguments
    window_s: float | None = None
    lease_s: float = 30.0
    wait_s: float = 30.0
    # how long a call that asked for input is kept for the client that brings it
    input_s: float = 600.0

    def __post_init__(self) -> None:
        kind_of(self.kind)
        both = sorted(set(self.identity or ()) & {*self.volatile, self.key_argument})
        if both:
            raise ContractViolation(f"{', '.join(both)} cannot be both identity and volatile")
        honours_s = DAY_S if self.honours_key_s is None else self.honours_key_s
        if min(self.lease_s, honours_s, self.input_s) <= 0 or min(self.again_s, self.wait_s) < 0:
            raise ContractViolation(
                "lease_s, honours_key_s and input_s are more than 0; again_s and wait_s are not"
                " less"
            )

    @property
    def passes(self) -> bool:
        """A read changes nothing: it goes to the server as it is."""
        return kind_of(self.kind) is Kind.READ

    def contract(self, name: str, *, hosted: bool) -> Contract:
        """In the engine's words. A key that expired is remembered for as long as its outcome
        was, and then forgotten.

        Where the tool is *hosted* here, what it raises is its own report of an error.
        """
        kind, theirs = kind_of(self.kind), self._theirs()
        keyed = theirs.downstream.capability is Capability.KEY
        window_s = window_of(kind, self.window_s)
        return Contract(
            name=name,
            kind=kind,
            downstream=theirs.downstream,
            window_s=window_s,
            tombstone_s=window_s,
            lease_s=self.lease_s,
            wait_s=self.wait_s,
            approval=Approval.of(self.approval and kind is not Kind.READ),
            not_sent=(Exception,) if hosted and self.errors == "nothing_done" else (),
            retry=Retry(attempts=3 if keyed else 1, deadline_s=CALLS_S),
            rules=theirs.rules,
            provider=theirs.provider,
            sent_key=theirs.sent_key,
        )

    def _theirs(self) -> ProviderTerms:
        """A provider helps only if the server hands the key on: by argument or by *downstream*."""
        provider = self.provider or None
        if self.downstream == "key" and self.honours_key_s is not None:
            return terms_of(provider, Downstream.key(window=self.honours_key_s))
        if self.downstream == "key":
            return terms_of(provider, "key")
        return terms_of(provider, None if provider and self.key_argument else "none")

    @property
    def counted_s(self) -> float:
        """How long the last of the same calls is remembered: longer than its record."""
        window_s = window_of(kind_of(self.kind), self.window_s)
        return _UNLIMITED_S if window_s == inf else min(2 * window_s + DAY_S, _UNLIMITED_S)


class Contracts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A contract file."""

    name: str = ""
    defaults: dict[str, Any] = {}
    tools: dict[str, dict[str, Any]] = {}
    trust_annotations: bool = False
    approver: str = ""  # who sits at the client, and answers where an approval is needed

    def __post_init__(self) -> None:
        for name in ("", *self.tools):
            # a mistake in it is raised now
            self.of(name, {}).contract(name or "all tools", hosted=False)

    def of(self, tool: str, listed: Mapping[str, Any]) -> ToolContract:
        """The contract of *tool*, which the server lists as *listed*."""
        stated = _stated(listed) if self.trust_annotations else {}
        if stated.get("approval") is False:  # not the server's to say
            del stated["approval"]
        given = {**self.defaults, **stated, **self.tools.get(tool, {})}
        try:
            contract = msgspec.convert(given, ToolContract)
        except msgspec.ValidationError as error:
            which = tool or "all tools"
            raise ContractViolation(f"the contract of {which} cannot be used: {error}") from None
        schema = listed.get("inputSchema")
        if tool in self.tools and isinstance(schema, Mapping):  # defaults are for many tools
            wrong = misspelt(tool, (*(contract.identity or ()), *contract.volatile), schema)
            if wrong:
                raise ContractViolation(wrong)
        return contract

    def key_argument(self, tool: str, listed: Mapping[str, Any]) -> str:
        """Hidden from the model. An unusable statement does not count: such a tool is refused."""
        try:
            return self.of(tool, listed).key_argument
        except ContractViolation:
            return self.of(tool, {}).key_argument


def _stated(listed: Mapping[str, Any]) -> dict[str, Any]:
    """What a server says about its tool, as a contract. Explicit statements outrank hints."""
    made: dict[str, Any] = {}
    hints, meta = listed.get("annotations"), listed.get("_meta")
    if isinstance(hints, Mapping):
        if hints.get("readOnlyHint") is True:
            made["kind"] = "read"
        elif hints.get("idempotentHint") is True:
            made["kind"] = "idempotent_write"
    if isinstance(meta, Mapping) and isinstance(meta.get(CONTRACT), Mapping):
        made |= meta[CONTRACT]
    return made


def read_contracts(path: str | None, given: Mapping[str, Any]) -> Contracts:
    """The contracts of a TOML or JSON file, with what was *given* beside it in their place."""
    read = document(path, "contracts")
    try:
        return msgspec.convert({**read, **given}, Contracts)
    except msgspec.ValidationError as error:
        where = f" in {path}" if path else ""
        raise ContractViolation(f"the contracts{where} cannot be used: {error}") from None


def hidden_in(line: bytes, contracts: Contracts, listed: dict[str, Any]) -> bytes | None:
    """The tools without what the model must not see; None: it may see all. Fills *listed*."""
    try:
        message = read(line)
    except UnreadableMessage:
        return None
    result = message.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(tools, list):
        return None
    named = {tool["name"]: tool for tool in tools if is_tool(tool)}
    for name, tool in named.items():
        listed.pop(name, None)
        listed[name] = tool
    while len(listed) > LISTED_MAX:
        del listed[next(iter(listed))]  # the one that was listed longest ago
    keys = {name: contracts.key_argument(name, tool) for name, tool in named.items()}
    shown = {name: _hidden(tool, keys[name]) for name, tool in named.items()}
    if shown == named:
        return None
    kept = [shown[tool["name"]] if is_tool(tool) else tool for tool in tools]
    return written(message | {"result": result | {"tools": kept}})


def _hidden(tool: dict[str, Any], argument: str) -> dict[str, Any]:
    """A tool as the model may see it: without the argument that takes a key."""
    schema = tool.get("inputSchema")
    if not argument or not isinstance(schema, dict):
        return tool
    made, properties, required = dict(schema), schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        made["properties"] = {name: about for name, about in properties.items() if name != argument}
    if isinstance(required, list):
        made["required"] = [name for name in required if name != argument]
    return tool | {"inputSchema": made}
