"""What an operator asks of a guard: look, settle, reconcile, tidy up, watch."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from effectonce._core.ops import Find, ListCells, ReadCell, Sweep, Swept, Tally
from effectonce._core.pauses import Pause
from effectonce._core.record import Record, State
from effectonce._core.search_terms import begins, key_in, spelt
from effectonce._drivers import drive
from effectonce._runtime.performers import CLOCK
from effectonce._tools.context import GuardContext
from effectonce._tools.observers import Observer, tidied
from effectonce._tools.tool import GuardedTool
from effectonce._validate import seconds
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.outcome import Outcome
from effectonce.recovery.in_doubt import InDoubtFilter, Reconciled, Settlement
from effectonce.recovery.pace import ReconcilePace
from effectonce.recovery.pausing import PausedTools
from effectonce.recovery.sweeper import Sweeper
from effectonce.recovery.undo import Undoing
from effectonce.stores import Store
from effectonce.stores.keyring import Keyring

if TYPE_CHECKING:
    from effectonce.allowances import Allowances
    from effectonce.approvals import Approvals
    from effectonce.observe.report import PreventionReport
    from effectonce.recovery.reconciler import Reconciler
    from effectonce.recovery.spool import Spool

SEARCHED = 1000  # names that one search looks at


class GuardOperations:
    """The half of `Guard` that works on records that exist. Only an undo sends something."""

    store: Store
    _desk: Settlement
    _house: GuardContext
    _tools: dict[str, GuardedTool]

    def find(self, key: str) -> Record | None:
        """The record of one effect."""
        return self.store.apply(Find(key))

    def search(
        self, text: str, *, tenant: str | None = None, limit: int = 20, exact: bool = False
    ) -> tuple[Record, ...]:
        """Effects that people know by this, such as a payment id, the newest first: those of
        tools that declare `searchable=`. Without a secret, the beginning of it is enough, unless
        it has to be *exact*.
        """
        found: dict[str, Record] = {}
        whole = f"{begins(text, self._house.secret).rstrip()} "
        start = whole if exact else begins(text, self._house.secret)
        for name, _ in self.store.apply(ListCells(start, "", SEARCHED if spelt(text) else 0)):
            if exact and name != f"{whole}{key_in(name)}":
                continue  # a longer term that begins like this one
            record = None if key_in(name) in found else self.find(key_in(name))
            if record is not None and tenant in (None, record.request.tenant):
                found[record.request.key] = record
            if len(found) == limit:
                break
        return tuple(sorted(found.values(), key=lambda record: -record.created_at))

    def in_doubt(
        self,
        *,
        limit: int = 100,
        tenant: str | None = None,
        tool: str | None = None,
        older_than_s: float = 0.0,
    ) -> tuple[Record, ...]:
        """Effects whose outcome is unknown, oldest first."""
        return self._desk.in_doubt(
            InDoubtFilter(tenant=tenant, tool=tool, older_than_s=older_than_s), limit
        )

    def counts(self) -> dict[State, int]:
        """How many effects there are in each state."""
        return self.store.apply(Tally())

    def report(
        self,
        since: float | timedelta = timedelta(days=7),
        *,
        tool: str | None = None,
        tenant: str | None = None,
    ) -> PreventionReport:
        """What was prevented in the days since then, as the store has counted it: at least so
        much. One day is today, of UTC.
        """
        from effectonce.observe.report import report_of

        counters = self._house.watch.counters
        if counters is not None:
            counters.close()  # what this process has counted belongs to it
        try:
            now = self.store.apply(ReadCell(CLOCK)).now
            return drive(report_of(now, seconds(since, "since"), tool, tenant), self.store.apply)
        except EffectOnceError:
            raise
        except Exception as error:
            # whatever a store of a user's raises that has no cells
            raise ContractViolation(f"this store keeps no counters: {error!r}") from error

    def confirm(self, key: str, *, result: Any, by: str, reason: str) -> None:
        """It happened: *result* is what every later call gets."""
        self._desk.confirm(key, result, by, reason)

    def refute(self, key: str, *, by: str, reason: str) -> None:
        """It did not happen: every later call gets a failure. Use a new step to do it after all."""
        self._desk.refute(key, by, reason)

    def retry(self, key: str, *, by: str, reason: str) -> None:
        """The next call resends it under the same key. Only if the downstream still honours it."""
        self._desk.retry(key, by, reason)

    def undo(self, key: str, *, by: str, reason: str) -> Outcome[Any]:
        """Undo an effect that happened, by its tool's `undo`: once, however often it is asked.

        Refused if it did not happen, or may not have. An undo that needs an approval waits for it.
        """
        return Undoing(self.store, self._tools).undo(key, by, reason)

    async def aundo(self, key: str, *, by: str, reason: str) -> Outcome[Any]:
        """The same for an async tool."""
        return await Undoing(self.store, self._tools).aundo(key, by, reason)

    @cached_property
    def allowances(self) -> Allowances:
        """What is left of the allowances, and what holds the rest."""
        from effectonce.allowances import Allowances

        return Allowances(self.store)

    @cached_property
    def approvals(self) -> Approvals:
        """Calls that wait for a person: look at them, approve them, reject them."""
        from effectonce.approvals import Approvals

        return Approvals(self.store, self._house.watch, self._house.secret)

    def pause_tool(self, tool: str, *, by: str, reason: str) -> None:
        """Stop a tool: within two seconds no process that shares the store sends anything for it.
        What is known is still returned, and a call whose request has left goes on. Any other
        raises `ToolPaused`, until `resume_tool`.
        """
        self._paused.pause(tool, by, reason)

    def resume_tool(self, tool: str, *, by: str, reason: str) -> bool:
        """Let a paused tool send again. False: it was not paused."""
        return self._paused.resume(tool, by, reason)

    def paused_tools(self) -> dict[str, Pause]:
        """The tools that are paused, each with who paused it, why and when."""
        return self._paused.list()

    @property
    def _paused(self) -> PausedTools:
        return PausedTools(self.store, self._house.watch, self._house.env.pauses)

    def reconcile(
        self,
        *,
        key: str | None = None,
        limit: int = 100,
        tool: str | None = None,
        older_than_s: float = 0.0,
    ) -> Reconciled:
        """Ask sync tools' probes about effects in doubt, or that of *key*. Nothing is resent."""
        return self._desk.reconcile(InDoubtFilter(tool=tool, older_than_s=older_than_s), limit, key)

    async def areconcile(
        self,
        *,
        key: str | None = None,
        limit: int = 100,
        tool: str | None = None,
        older_than_s: float = 0.0,
    ) -> Reconciled:
        """Ask async tools' probes about effects in doubt, or that of *key*. Nothing is resent."""
        return await self._desk.areconcile(
            InDoubtFilter(tool=tool, older_than_s=older_than_s), limit, key
        )

    def reconciler(
        self,
        *,
        every_s: float = 60.0,
        per_s: float = 5.0,
        at_least_every_s: float = 86_400.0,
        tool: str | None = None,
    ) -> Reconciler:
        """The same in the background, from now on and whatever `Guard(reconcile=)` says: `with
        guard.reconciler():`, or `.start()` and `.stop()`; `await .run()` for async tools.

        It asks at most *per_s* probes a second. An effect whose probe does not know is asked
        again after *every_s*, then after twice as long each time, and never less often than
        *at_least_every_s*.
        """
        from effectonce.recovery.reconciler import Reconciler

        pace = ReconcilePace(every_s=every_s, per_s=per_s, at_least_every_s=at_least_every_s)
        return Reconciler(self._desk, InDoubtFilter(tool=tool), pace)

    def sweep(self, *, limit: int = 100) -> Swept:
        """One bounded round: abandoned effects go in doubt, expired outcomes become tombstones."""
        swept = self.store.apply(Sweep(limit))
        tidied(self._house.watch, swept)
        return swept

    def sweeper(self, *, every_s: float = 60.0, batch: int = 10, pause_s: float = 0.05) -> Sweeper:
        """The same in the background: `with guard.sweeper():`, or `.start()` and `.stop()`.

        It pauses after every batch: 200 records a second, 17 million a day. A larger batch, or a
        shorter pause, sweeps more, and calls that are made meanwhile wait for it.
        """
        on_swept = partial(tidied, self._house.watch)
        return Sweeper(self.store, every_s=every_s, batch=batch, pause_s=pause_s, on_swept=on_swept)

    def observe(self, observer: Observer) -> None:
        """Call *observer* with every `effectonce.observe.Event` from now on; reads tell if they
        are declared afterwards.

        It is called where things happen, so it should hand longer work over. If it raises, that
        is logged once, counted, and nothing else.
        """
        self._house.watch.add(observer)


def spool_of(
    url: str,
    store: Store,
    named: str | os.PathLike[str] | None,
    keyring: Keyring | None,
    secret: bytes,
) -> Spool | None:
    """The spool, if a folder was named or belongs to the URL: only then is its code imported."""
    if named is None and url.startswith("memory:"):
        return None
    from effectonce.recovery.spool import Spool, default_folder

    folder = default_folder(url, os.environ) if named is None else named
    spool = None if folder is None else Spool(folder, store, keyring, secret)
    if named is not None and spool is not None and spool.distrusted():
        raise ContractViolation(
            f"spool={os.fspath(named)!r}: {spool.distrusted()}. Name a folder that this user alone"
            " may write."
        )
    return spool
