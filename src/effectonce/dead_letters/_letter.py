"""A dead letter: a record without an outcome that was given up on, read for people and programs.

There is no second store: arguments, key, terms and evidence are on the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal, TypedDict

from msgspec import Struct

from effectonce._core.attempt_log import FailedAttempt, RedriveRequest, read_entry, read_failure
from effectonce._core.classification.verdicts import Bucket
from effectonce._core.codec import decode
from effectonce._core.effect_ref import EffectRef, effect_of
from effectonce._core.guards import leased
from effectonce._core.ops import Browse, Find, Flow, ReadCell
from effectonce._core.record import Evidence, Record, State
from effectonce._core.tagged_json import AS_DATA, NotReadable
from effectonce._core.workflow import CANCEL
from effectonce._runtime.performers import CLOCK
from effectonce._tools.tool import GuardedTool
from effectonce.approvals._standing import apart, rests
from effectonce.errors import ContractViolation
from effectonce.recovery.causes import SharedCause, last_attempt, trouble_of
from effectonce.recovery.in_doubt import BATCH, place

EffectState = Literal["never_started", "in_doubt", "done", "failed"]
SHOWN = ("never_started", "in_doubt", "failed")
BATCH_MAX = 10_000  # records that are held at once
OPEN = (State.CLAIMED, State.DISPATCHED, State.IN_DOUBT)  # where letters are


class Letter(Struct, frozen=True, kw_only=True):
    """One dead letter, as it was when it was looked at."""

    effect: EffectRef
    effect_state: EffectState
    arguments: Mapping[str, Any] | None  # None: see `unreadable`. Redacted ones say so
    unreadable: str = ""  # why there are no arguments to show
    attempts: tuple[FailedAttempt, ...]  # every one that is known, oldest first
    asked: tuple[RedriveRequest, ...] = ()  # who asked for it again
    late_results: tuple[Evidence, ...] = ()  # what came too late to be its outcome
    reason: str = ""
    gave_up: bool  # False: no call gave up, its owner is gone
    given_up_at: float  # by the store's clock, as all times
    not_before: float | None = None  # when the downstream wants to be asked again
    age_s: float  # since it was given up
    record: Record

    @property
    def reference(self) -> str:
        """A short name that is safe to show."""
        return self.effect.reference

    @property
    def key(self) -> str:
        return self.effect.key

    @property
    def tool(self) -> str:
        return self.effect.tool

    @property
    def tenant(self) -> str:
        return self.effect.tenant

    @property
    def scope(self) -> str:
        return self.effect.scope

    @property
    def step(self) -> str:
        return self.effect.step

    @property
    def cursor(self) -> tuple[float, str]:
        """Where the next page begins: `list(after=letter.cursor)`."""
        return place(self.record)

    @property
    def last(self) -> FailedAttempt | None:
        """The last attempt that is known. None: none was recorded."""
        return last_attempt(self.attempts)

    @property
    def error(self) -> str:
        """The type of the last error; "" if none was recorded."""
        return "" if self.last is None else self.last.error

    @property
    def bucket(self) -> str:
        return "" if self.last is None else self.last.bucket

    @property
    def trouble(self) -> SharedCause:
        """What it has in common with the other letters of its group."""
        return trouble_of(self.record, self.attempts)


class Wanted(TypedDict, total=False):
    """Letters by tool, error type, bucket, state, age, scope, group, tenant; *failed* adds
    definite failures.
    """

    tool: str
    error: str
    bucket: str
    state: str
    older_than_s: float
    newer_than_s: float
    scope: str
    group: str
    tenant: str | None
    failed: bool


class LetterQuery(Struct, frozen=True, kw_only=True):
    """The same, with its defaults."""

    tool: str | None = None
    error: str | None = None
    bucket: str | None = None
    state: str | None = None
    older_than_s: float = 0.0
    newer_than_s: float = inf
    scope: str | None = None
    group: str | None = None
    tenant: str | None = None
    failed: bool = False

    def __post_init__(self) -> None:
        """A word that no letter has would find nothing, and look like good news."""
        if self.state is not None and self.state not in SHOWN:
            raise ContractViolation(f"state={self.state!r}: letters are {', '.join(SHOWN)}")
        if self.bucket is not None and self.bucket not in (*Bucket, ""):
            raise ContractViolation(
                f"bucket={self.bucket!r}: there is no such bucket; see effectonce.Bucket"
            )

    @property
    def states(self) -> tuple[State, ...]:
        return (*OPEN, State.FAILED) if self.failed or self.state == "failed" else OPEN

    def holds(self, letter: Letter) -> bool:
        asked = (
            (self.tool, letter.tool),
            (self.error, letter.error),
            (self.bucket, letter.bucket),
            (self.state, letter.effect_state),
            (self.scope, letter.scope),
        )
        fits = all(want is None or want == its for want, its in asked)
        aged = self.older_than_s <= letter.age_s <= self.newer_than_s
        return fits and aged and self.group in (None, letter.trouble.group)


class LetterPage(Struct, frozen=True):
    letters: tuple[Letter, ...]
    after: tuple[float, str] | None  # None: there are no more


def page(
    query: LetterQuery,
    tools: Mapping[str, GuardedTool],
    grace_s: float,
    after: tuple[float, str],
    limit: int,
    states: tuple[State, ...],
    looked_at: float = inf,
) -> Flow[LetterPage]:
    """Letters in the order in which their effects were first asked for.

    After *looked_at* records it ends with what was found among them, and where to go on.
    """
    now = (yield from ReadCell(CLOCK)).now
    found: list[Letter] = []
    # For some states a store looks at all that it has for each batch: few large ones cost less
    # than many small ones.
    size = max(BATCH, min(limit, BATCH_MAX))
    while True:
        seen: dict[str, Record] = {}
        ends: list[tuple[float, str]] = []
        for state in states:
            batch = yield from Browse(state, query.tenant, after, size)
            seen |= {record.request.key: record for record in batch}
            if len(batch) == size:
                ends.append(place(batch[-1]))
        # Beyond the end of the shortest full batch there may be others that were not read yet.
        horizon = min(ends, default=None)
        read = (r for r in seen.values() if horizon is None or place(r) <= horizon)
        records = sorted(read, key=place)
        dead = (r for r in records if is_dead(r, now, grace_s))
        letters = (letter_of(r, tools.get(r.request.terms.tool), now) for r in dead)
        found += [letter for letter in letters if query.holds(letter)]
        if len(found) > limit or (len(found) == limit and horizon is not None):
            return LetterPage(tuple(found[:limit]), found[limit - 1].cursor)
        looked_at -= len(records)
        if horizon is None or looked_at <= 0:
            return LetterPage(tuple(found), horizon)
        after = horizon


def is_dead(record: Record, now: float, grace_s: float) -> bool:
    """Was it given up on? In doubt: no call goes on. Else: a call gave up, or its owner is gone.
    What a person has to approve has no owner meanwhile, nor for a while after that.
    """
    if record.state in (State.IN_DOUBT, State.FAILED):
        return True
    if leased(record, now) or rests(record, now, grace_s):
        return False
    return abs(now - record.lease_until) >= grace_s or any(map(_gave_up, _entries(record)))


def may_leave(record: Record) -> bool:
    """May another store go on with it? Not with a workflow's run: there its steps would be new."""
    return record.state in OPEN and not record.request.terms.steps


def letter_of(record: Record, tool: GuardedTool | None, now: float) -> Letter:
    """A record as a letter."""
    entries = _entries(record)
    known = tuple(entry for entry in entries if isinstance(entry, FailedAttempt))
    attempts = known + _failure(record)
    arguments, unreadable = _arguments(record, tool)
    gave_up_at = max((entry.at for entry in entries if _gave_up(entry)), default=None)
    given_up_at = record.lease_until if gave_up_at is None else gave_up_at
    if record.state not in (State.CLAIMED, State.DISPATCHED):
        given_up_at = record.decided_at
    return Letter(
        effect=effect_of(record),
        effect_state=_effect_state(record),
        arguments=arguments,
        unreadable=unreadable,
        attempts=attempts,
        asked=tuple(entry for entry in entries if isinstance(entry, RedriveRequest)),
        late_results=tuple(
            entry for entry in record.evidence if entry.is_result and entry.note != CANCEL
        ),
        reason=apart(record).reason,
        gave_up=gave_up_at is not None,
        given_up_at=given_up_at,
        not_before=_not_before(attempts),
        age_s=max(0.0, now - given_up_at),
        record=record,
    )


def _entries(record: Record) -> tuple[FailedAttempt | RedriveRequest, ...]:
    read = (read_entry(e.at, e.note, e.outcome) for e in apart(record).evidence)
    return tuple(entry for entry in read if entry is not None)


def _gave_up(entry: FailedAttempt | RedriveRequest) -> bool:
    return isinstance(entry, FailedAttempt) and entry.gave_up is not None


def _failure(record: Record) -> tuple[FailedAttempt, ...]:
    """A definite failure says itself how it ended."""
    if record.state is not State.FAILED:
        return ()
    try:
        stored = decode(record.outcome)
    except NotReadable:
        return ()
    return (read_failure(record.decided_at, stored.content),) if stored.status == "error" else ()


def _effect_state(record: Record) -> EffectState:
    match record.state:
        case State.COMPLETED | State.TOMBSTONE:
            return "done"
        case State.FAILED:
            return "failed"
        case State.CLAIMED if record.sends == 0:
            return "never_started"
        case _:
            return "in_doubt"


def _not_before(attempts: tuple[FailedAttempt, ...]) -> float | None:
    """The downstream's last delay: entries without an attempt count only if they say how long."""
    for attempt in reversed(attempts):
        if attempt.retry_after_s is not None:
            return attempt.at + attempt.retry_after_s
        if attempt.number > 0:
            return None
    return None


def _arguments(record: Record, tool: GuardedTool | None) -> tuple[Mapping[str, Any] | None, str]:
    try:
        stored = decode(record.request.arguments, AS_DATA if tool is None else tool.signature.types)
    except NotReadable as error:
        return None, str(error)
    if not isinstance(stored.content, Mapping):
        found = type(stored.content).__name__
        return None, f"what is stored as its arguments is no set of arguments, but a {found}"
    if stored.status not in ("ok", "redacted"):
        return None, str(stored.content.get("why", "they were not stored"))
    return stored.content, ""


def looked_up(key: str) -> Flow[tuple[Record | None, float]]:
    """The record of an effect, and the store's time."""
    record = yield from Find(key)
    return record, (yield from ReadCell(CLOCK)).now
