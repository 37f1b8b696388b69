"""The dead letters of a guard: looking, redriving, discarding, carrying."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from math import inf
from typing import IO, Unpack

from msgspec import Struct

from effectonce._core.attempt_log import asked_again
from effectonce._core.codec import encode_error
from effectonce._core.effect_ref import EffectRef, effect_of, reference_of
from effectonce._core.endings import Ending
from effectonce._core.guards import leased, resendable
from effectonce._core.ops import Applied, Flow, Refute
from effectonce._core.pages import Refer
from effectonce._core.record import Record, Scene, State
from effectonce._drivers import adrive, drive
from effectonce._tools.observers import Observers, notify_of
from effectonce._tools.tool import GuardedTool
from effectonce._validate import who
from effectonce.approvals._standing import waits
from effectonce.dead_letters._file import (
    BadLine,
    Imported,
    LineProblem,
    read_file,
    read_line,
    write_file,
    write_line,
)
from effectonce.dead_letters._import import taken
from effectonce.dead_letters._letter import (
    BATCH_MAX,
    OPEN,
    Letter,
    LetterPage,
    LetterQuery,
    Wanted,
    letter_of,
    looked_up,
    may_leave,
    page,
)
from effectonce.dead_letters._redriving import (
    Redriven,
    came_to,
    resent,
    settled,
    skipped,
    unsendable,
    would,
)
from effectonce.errors import ContractViolation
from effectonce.recovery.causes import SharedCause
from effectonce.recovery.pace import Pace
from effectonce.stores.base import Store, TooLarge

GRACE_S = 300.0  # an owner that reported nothing for so long after its lease does not come back
PAGE = 100
_START = (0.0, "")


class Group(Struct, frozen=True, kw_only=True):
    """Letters that have the same trouble."""

    group: str  # its name: `list(group=)`
    tool: str
    error: str  # "" if none was recorded
    bucket: str
    cause: str  # what the last error said, without what differs between them
    tenant: str
    count: int
    oldest: float  # when the first one was given up, by the store's clock
    newest: float
    sample: Letter


class Distribution(Struct, frozen=True, kw_only=True):
    """How many letters there are of each kind, most first."""

    total: int
    tools: dict[str, int]
    errors: dict[str, int]
    buckets: dict[str, int]
    states: dict[str, int]


class Discarded(Exception):  # a statement by a person, stored under this name
    """A person decided that it will never be done."""


def groups_of(letters: Iterable[Letter]) -> tuple[Group, ...]:
    """Letters by what they have in common; largest group first."""
    groups: dict[SharedCause, Group] = {}
    for letter in letters:
        trouble, at = letter.trouble, letter.given_up_at
        known = groups.get(trouble)
        groups[trouble] = Group(
            group=trouble.group,
            tool=letter.tool,
            error=letter.error,
            bucket=letter.bucket,
            cause=trouble.cause,
            tenant=letter.tenant,
            count=1 if known is None else known.count + 1,
            oldest=at if known is None else min(known.oldest, at),
            newest=at if known is None else max(known.newest, at),
            sample=letter if known is None else known.sample,
        )
    return tuple(sorted(groups.values(), key=lambda group: (-group.count, group.oldest)))


class DeadLetters:
    """The dead letters of one guard: `guard.dead_letters`.

    An effect without an outcome is one when a call gave up on it, when it is in doubt, or when
    its owner has been gone for *grace_s*. Which ones: `tool=`, `error=` (a type's name),
    `bucket=`, `state=` (`never_started`, `in_doubt`, `failed`), `older_than_s=`, `newer_than_s=`,
    `scope=`, `group=` (the name of a group), `tenant=`, and `failed=True` for definite failures
    as well.
    """

    def __init__(
        self,
        store: Store,
        tools: Mapping[str, GuardedTool],
        watch: Observers,
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self._store, self._tools, self._watch, self._grace_s = store, tools, watch, grace_s

    # ------------------------------------------------------------ looking

    def list(
        self, *, limit: int = 100, after: tuple[float, str] = _START, **wanted: Unpack[Wanted]
    ) -> tuple[Letter, ...]:
        """Letters, oldest first. The next page begins `after` the `cursor` of the last one."""
        if limit < 1:
            raise ContractViolation(f"limit={limit}: ask for one letter, or more")
        return drive(self._page(LetterQuery(**wanted), after, limit), self._store.apply).letters

    def show(self, key: str) -> Letter | None:
        """One effect as a letter, whatever its state is, by its key or its reference (`eff_…`)."""
        if key.startswith("eff_"):
            found = self._store.apply(Refer(key.removeprefix("eff_")))
            keys = [r.request.key for r in found if reference_of(r.request.key) == key]
            if len(keys) > 1:
                raise ContractViolation(f"{key} stands for several effects here: use the key")
            if not keys:
                return None
            key = keys[0]
        record, now = drive(looked_up(key), self._store.apply)
        if record is None:
            return None
        return letter_of(record, self._tools.get(record.request.terms.tool), now)

    def page(
        self,
        *,
        limit: int,
        after: tuple[float, str] = _START,
        looked_at: int = 1000,
        **wanted: Unpack[Wanted],
    ) -> LetterPage:
        """Letters as `list` has them, and where the next page begins; None: there are no more.

        It looks at about *looked_at* records and no more, so that it may have found none
        although later ones fit.
        """
        flow = self._page(LetterQuery(**wanted), after, limit, looked_at=looked_at)
        return drive(flow, self._store.apply)

    def groups(self, *, limit: int | None = None, **wanted: Unpack[Wanted]) -> tuple[Group, ...]:
        """Letters by what they have in common; largest group first. At most *limit* are looked
        at.
        """
        return groups_of(itertools.islice(self._in_any_order(LetterQuery(**wanted)), limit))

    def distribution(self, **wanted: Unpack[Wanted]) -> Distribution:
        """How many letters there are, by tool, error, bucket and effect state."""
        tools, errors, buckets, states = (Counter[str]() for _ in range(4))
        for letter in self._in_any_order(LetterQuery(**wanted)):
            tools[letter.tool] += 1
            errors[letter.error] += 1
            buckets[letter.bucket] += 1
            states[letter.effect_state] += 1
        return Distribution(
            total=tools.total(),
            tools=dict(tools.most_common()),
            errors=dict(errors.most_common()),
            buckets=dict(buckets.most_common()),
            states=dict(states.most_common()),
        )

    def _page(
        self,
        query: LetterQuery,
        after: tuple[float, str],
        limit: int,
        states: tuple[State, ...] = (),
        looked_at: float = inf,
    ) -> Flow[LetterPage]:
        states = states or query.states
        return page(query, self._tools, self._grace_s, after, limit, states, looked_at)

    def _all(self, query: LetterQuery, states: tuple[State, ...] = ()) -> Iterator[Letter]:
        """Page after page, doubling: a few come soon, and all take few requests."""
        after: tuple[float, str] | None = _START
        limit = PAGE
        while after is not None:
            shown = drive(self._page(query, after, limit, states), self._store.apply)
            yield from shown.letters
            after, limit = shown.after, min(2 * limit, BATCH_MAX)

    def _in_any_order(self, query: LetterQuery) -> Iterator[Letter]:
        """State after state: most have no index in a store, so each page looks at everything."""
        for state in query.states:
            yield from self._all(query, (state,))

    async def _aall(self, query: LetterQuery) -> AsyncIterator[Letter]:
        after: tuple[float, str] | None = _START
        limit = PAGE
        while after is not None:
            shown = await adrive(self._page(query, after, limit), self._store.aapply)
            for letter in shown.letters:
                yield letter
            after, limit = shown.after, min(2 * limit, BATCH_MAX)

    # ------------------------------------------------------------ redriving

    def redrive(self, key: str, *, by: str, reason: str, early: bool = False) -> Redriven:
        """Call the sync tool of one letter again, with the stored arguments, under the same key.
        It says what came of it.

        *early*: even before the time that the downstream asked for.
        """
        by, reason = who(by, reason)
        ready = drive(self._ready(key, early=early, is_async=False), self._store.apply)
        if isinstance(ready, Redriven):
            return ready
        tool, record = ready
        self._store.apply(asked_again(record.request.key, by, reason))
        return self._redriven(record, tool.run(resent(tool, record)), by, reason)

    async def aredrive(self, key: str, *, by: str, reason: str, early: bool = False) -> Redriven:
        """The same for an async tool."""
        by, reason = who(by, reason)
        ready = await adrive(self._ready(key, early=early, is_async=True), self._store.aapply)
        if isinstance(ready, Redriven):
            return ready
        tool, record = ready
        await self._store.aapply(asked_again(record.request.key, by, reason))
        return self._redriven(record, await tool.arun(resent(tool, record)), by, reason)

    def foresee(self, key: str, *, early: bool = False) -> Redriven:
        """What redriving one would do, sync or async: `would_run`, or why not. Nothing is sent."""
        return would(drive(self._ready(key, early=early, is_async=None), self._store.apply))

    def redrive_all(
        self,
        *,
        by: str = "",
        reason: str = "",
        dry_run: bool = True,
        limit: int = 100,
        per_s: float | None = 10.0,
        early: bool = False,
        stop: threading.Event | None = None,
        on_each: Callable[[Redriven], object] | None = None,
        **wanted: Unpack[Wanted],
    ) -> tuple[Redriven, ...]:
        """Redrive the letters of sync tools, oldest first, at most *limit* of them and *per_s* a
        second. A dry run says what would be done.

        What is skipped is reported as well, and does not count. It ends early when *stop* is
        set; *on_each* gets each as it is done. Stopped or killed, it can be begun again: what
        has an outcome is a letter no more.
        """
        if not dry_run:
            who(by, reason)
        pace, stop = Pace(per_s), threading.Event() if stop is None else stop
        done: list[Redriven] = []
        for letter in self._all(LetterQuery(**wanted)):
            if limit <= 0 or stop.is_set():
                break
            if dry_run:
                ready = self._ready(letter.key, early=early, is_async=False)
                redriven = would(drive(ready, self._store.apply))
            else:
                redriven = self.redrive(letter.key, by=by, reason=reason, early=early)
            done.append(redriven)
            if on_each is not None:
                on_each(redriven)
            limit -= redriven.ran or redriven.what == "would_run"
            if redriven.ran:
                stop.wait(pace.next_s())
        return tuple(done)

    async def aredrive_all(
        self,
        *,
        by: str = "",
        reason: str = "",
        dry_run: bool = True,
        limit: int = 100,
        per_s: float | None = 10.0,
        early: bool = False,
        stop: asyncio.Event | None = None,
        on_each: Callable[[Redriven], object] | None = None,
        **wanted: Unpack[Wanted],
    ) -> tuple[Redriven, ...]:
        """The same for async tools."""
        if not dry_run:
            who(by, reason)
        pace = Pace(per_s)
        done: list[Redriven] = []
        async for letter in self._aall(LetterQuery(**wanted)):
            if limit <= 0 or (stop is not None and stop.is_set()):
                break
            if dry_run:
                ready = self._ready(letter.key, early=early, is_async=True)
                redriven = would(await adrive(ready, self._store.aapply))
            else:
                redriven = await self.aredrive(letter.key, by=by, reason=reason, early=early)
            done.append(redriven)
            if on_each is not None:
                on_each(redriven)
            limit -= redriven.ran or redriven.what == "would_run"
            if redriven.ran:
                await asyncio.sleep(pace.next_s())
        return tuple(done)

    def _ready(
        self, key: str, *, early: bool, is_async: bool | None
    ) -> Flow[Redriven | tuple[GuardedTool, Record]]:
        """The tool and the record, if calling again makes sense; otherwise what there is to say."""
        record, now = yield from looked_up(key)
        if record is None:
            why = "it is unknown to this store"
            return Redriven(effect=EffectRef("", key), what="skipped", why=why)
        tool = self._tools.get(record.request.terms.tool)
        letter = letter_of(record, tool, now)
        known = settled(letter)
        if known is not None:
            return known
        if leased(record, now):
            return skipped(letter, "it is in flight: a worker is working on it")
        if waits(record, now):
            return skipped(letter, "it waits for an approval")
        if tool is None:
            return skipped(letter, f"no tool of this guard is called {letter.tool!r}")
        if record.state is State.IN_DOUBT and tool.probe_function is None:
            why = f"{record.reason}; there is no probe to ask"
            return Redriven(effect=letter.effect, what="in_doubt", why=why)
        if is_async is not None and tool.is_async is not is_async:
            use = "async: use aredrive" if tool.is_async else "sync: use redrive"
            return skipped(letter, f"{letter.tool} is {use}")
        if letter.not_before is not None and letter.not_before > now and not early:
            return skipped(letter, f"it is not due for another {letter.not_before - now:.0f} s")
        why = unsendable(tool, record)
        return skipped(letter, why) if why else (tool, record)

    def _redriven(self, record: Record, ending: Ending, by: str, reason: str) -> Redriven:
        """Every letter that was redriven passes here, with who asked for it and what came of it."""
        what, why, value = came_to(ending)
        notify_of(self._watch, "redriven", record, by=by, reason=reason, outcome=what)
        return Redriven(effect=effect_of(record), what=what, why=why, value=value, ran=True)

    # ------------------------------------------------------------ discarding

    def discard(self, key: str, *, by: str, reason: str) -> None:
        """It will never be done: every later call gets that as a failure.

        What was never sent can be discarded without looking anywhere. What is in doubt is
        refuted by this: look downstream first.
        """
        by, reason = who(by, reason)
        record, now = drive(looked_up(key), self._store.apply)
        if record is None:
            raise ContractViolation(
                "there is nothing to discard: the effect is unknown to this store"
            )
        reply = self._store.apply(Refute(key, encode_error(Discarded(reason)), by, reason))
        if not isinstance(reply, Applied):
            raise ContractViolation(
                undiscardable(record, now) or "it changed meanwhile: look again"
            )
        notify_of(self._watch, "discarded", record, by=by, reason=reason)

    # ------------------------------------------------------------ carrying

    def export(self, file: str | os.PathLike[str] | IO[bytes], **wanted: Unpack[Wanted]) -> int:
        """Write letters to a file of JSON lines, exactly; how many. Definite failures are
        outcomes, and stay.

        So do runs of workflows: what their steps have done is known in this store alone, and
        would be done again elsewhere. Arguments and errors are in the clear in it, also where
        the store seals them.
        """
        letters = self._all(LetterQuery(**wanted))
        leaving = (letter for letter in letters if may_leave(letter.record))
        return write_file(file, (write_line(letter.record, letter.reference) for letter in leaving))

    def load(self, file: str | os.PathLike[str] | IO[bytes]) -> Imported:
        """Take letters from a file into this store, with their keys, terms and evidence. The
        same file twice has no effect.

        Invalid lines are reported with their number and the reason, and the other lines are
        imported.
        """
        imported = known = 0
        problems: list[LineProblem] = []
        for number, line in read_file(file):
            try:
                carried, digest = read_line(line)
                new = drive(taken(carried, f"import-{digest}"), self._store.apply)
            except (BadLine, ContractViolation, TooLarge) as error:
                problems.append(LineProblem(number, str(error)))
                continue
            imported, known = imported + new, known + (not new)
        return Imported(imported, known, tuple(problems))


def undiscardable(record: Record, now: float) -> str:
    """Why it cannot be discarded; "" if nothing is known that forbids it."""
    if record.state not in OPEN:
        return f"there is nothing to discard: the effect is {record.state}"
    if leased(record, now):
        return "it is in flight: a worker is working on it"
    if record.request.terms.steps:
        return (
            "it is a run of a workflow, and its steps may have happened: cancel it"
            " (guard.workflows.cancel), and they are compensated"
        )
    if record.sends > 0 and resendable(record, None, Scene(now)):
        return (
            "it may have happened, and the same request may still be sent under its key: redrive"
            " it, and it is done once"
        )
    return ""
