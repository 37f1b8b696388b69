"""`guard.call`: a tool by name or as it is, its arguments by name, and the whole outcome."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Coroutine, Mapping
from typing import Any

from effectonce._core.guarantees import Kind
from effectonce._core.keys import Part
from effectonce._tools.tool import GuardedTool
from effectonce.errors import ContractViolation
from effectonce.outcome import Outcome


def called(
    tool: GuardedTool,
    arguments: Mapping[str, Any],
    key: Part | tuple[Part, ...] | None,
    version: str | None,
) -> Outcome[Any] | Coroutine[Any, Any, Outcome[Any]]:
    """Its outcome; that of an async tool, when it is awaited."""
    contract = tool.contract
    if not isinstance(arguments, Mapping):
        by_name = 'them by name, such as guard.call(refund, {"payment_id": "pay_7"})'
        raise ContractViolation(f"arguments={arguments!r}: give {by_name}. Nothing was sent.")
    if version is not None and version != contract.version:
        raise ContractViolation(
            f"{contract.name} is version {contract.version}, not {version}. Nothing was sent."
        )
    if contract.kind is Kind.READ and contract.dedup is None:
        raise ContractViolation(f"{contract.name} is a read: it has no record. Call it directly.")
    parts = None if key is None else key if isinstance(key, tuple) else (key,)
    if tool.is_async:
        return _acalled(tool, arguments, parts)
    if _get_running_loop() is not None:
        tool.warn_of_loop()
    return tool.call(tool.prepare((), dict(arguments), parts))


async def _acalled(
    tool: GuardedTool, arguments: Mapping[str, Any], key: tuple[Part, ...] | None
) -> Outcome[Any]:
    """Prepared when it is awaited: what is keyed is what is sent."""
    return await tool.acall(tool.prepare((), dict(arguments), key))
