"""Pausing a tool: a person stops all its new effects, in every process that shares the store."""

from __future__ import annotations

from effectonce._core.pauses import LOOK, Pause, Pauses, change, paused_in
from effectonce._drivers import drive
from effectonce._tools.observers import Observers, tell
from effectonce._validate import who
from effectonce.errors import ContractViolation, ToolPaused
from effectonce.stores.base import PausableStore, Store


def pauses_of(store: Store) -> Pauses | None:
    """What calls look at before they begin. None: this store has no cells, so nothing is paused."""
    return Pauses(_refused) if isinstance(store, PausableStore) and store.has_cells else None


def _refused(tool: str, pause: Pause) -> ToolPaused:
    said = f"{tool} is paused, by {pause.by}: {pause.reason.rstrip('.')}. Nothing was sent"
    return ToolPaused(f"{said}.", circuit=tool, phase="paused")


class PausedTools:
    """The tools that are paused in a store."""

    def __init__(self, store: Store, watch: Observers, known: Pauses | None) -> None:
        self._store, self._watch, self._known = store, watch, known

    def list(self) -> dict[str, Pause]:
        if self._known is None:
            return {}
        return dict(sorted(paused_in(self._store.apply(LOOK).value).items()))

    def pause(self, tool: str, by: str, reason: str) -> None:
        by, reason = who(by, reason)
        self._change(tool, by, reason)
        tell(self._watch, name="paused", tool=tool, outcome="paused", by=by, reason=reason)

    def resume(self, tool: str, by: str, reason: str) -> bool:
        """False: it was not paused."""
        by, reason = who(by, reason)
        if self._change(tool, by, None) is None:
            return False
        tell(self._watch, name="paused", tool=tool, outcome="resumed", by=by, reason=reason)
        return True

    def _change(self, tool: str, by: str, reason: str | None) -> Pause | None:
        if self._known is None:
            raise ContractViolation(
                f"{tool} cannot be paused: this store has no cells, or does not say so (has_cells)"
            )
        before = drive(change(tool, by, reason), self._store.apply)
        self._known.forget()
        return before
