"""What a guard's tools are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record
    from effectonce._tools.tool import GuardedTool


def tools_of(guard: Guard) -> dict[str, GuardedTool]:
    """Its tools by name."""
    # who shows them stands above the guard
    return dict(sorted(guard._tools.items()))  # noqa: SLF001


def prober_of(guard: Guard, record: Record) -> GuardedTool | None:
    """The tool that can ask the downstream about this effect, if it is here."""
    tool = tools_of(guard).get(record.request.terms.tool)
    return tool if tool is not None and tool.probe_function is not None else None
