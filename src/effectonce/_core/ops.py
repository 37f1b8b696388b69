"""The vocabulary: everything the engine may ask for is a frozen value with a typed reply.

Values are msgspec structs: a call makes a dozen of them, and one costs a tenth of a frozen
dataclass, to make and to import.

`reply = yield from SomeOp(...)` asks the driver to perform it. Store ops are one atomic step
each, and each may be repeated with the same token: a lost acknowledgement is answered as if it
had just been written.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final, get_args

from msgspec import Struct

from effectonce._core.keys import REFERENCE_LENGTH
from effectonce._core.record import Record, Request, State

if TYPE_CHECKING:
    from effectonce._core.observed_sends import Seen

R = TypeVar("R", covariant=True)


class Op(Struct, Generic[R], frozen=True):
    def __iter__(self) -> Generator[Op[Any], Any, R]:
        reply: R = yield self
        return reply


Flow: TypeAlias = Generator[Op[Any], Any, R]


# ---------------------------------------------------------------- replies to Claim


class Held(Struct, frozen=True):
    epoch: int
    sends: int  # dispatch writes so far, ours included if we asked for one
    dispatched: bool
    taken_over: bool = False  # from an owner that vanished after it was sent


@final  # so are all whose type is compared: `isinstance` costs more where it says no
class Recorded(Struct, frozen=True):
    """The outcome is known: replay it."""

    state: State
    outcome: bytes
    age_s: float
    remaining_s: float
    settled_by: str = ""


class Busy(Struct, frozen=True):
    retry_after_s: float


class Mismatch(Struct, frozen=True):
    """The key is taken by a different request. What it stored is not shown."""

    tool: str


class Doubtful(Struct, frozen=True):
    since_s: float
    reason: str


class KeyExpired(Struct, frozen=True):
    since_s: float


class Latched(Struct, frozen=True):
    """Another call of the same step was sent and has no outcome yet."""

    key: str
    tool: str
    retry_after_s: float | None  # None: no worker is working on it


class Early(Struct, frozen=True):
    """The predecessor in this sequence has no outcome yet."""

    after: str


class Unapproved(Struct, frozen=True):
    """It waits for a person. Nothing was sent."""

    since_s: float
    expired: bool = False  # it was approved, and that was not used in time
    fingerprint: str = ""  # of the arguments that wait


class Unavailable(Struct, frozen=True):
    """No answer: whether the write was applied is unknown. A repeat with the same token is safe."""

    error: Exception


NotNow: TypeAlias = Busy | Latched | Early | Unapproved
ClaimReply: TypeAlias = Held | Recorded | Mismatch | Doubtful | KeyExpired | NotNow | Unavailable


# ---------------------------------------------------------------- replies to the owner's writes


class Applied(Struct, frozen=True):
    epoch: int


class Refused(Struct, frozen=True):
    """0 rows: the record is not ours, or not in a state that allows this."""

    state: State | None


WriteReply: TypeAlias = Applied | Refused | Unavailable


# ---------------------------------------------------------------- store ops


class Claim(Op[ClaimReply], frozen=True):
    request: Request
    token: str
    lease_s: float
    dispatch: bool
    # it was asked for before: a store may look for its outcome first. Nothing else depends on it
    again: bool = False
    asked_by: str = ""  # who asks for an approval, where one is needed

    @property
    def key(self) -> str:
        return self.request.key


class Dispatch(Op[WriteReply], frozen=True):
    key: str
    token: str
    epoch: int
    send: int  # the count this write makes: repeating it is harmless
    lease_s: float


class Unsend(Op[WriteReply], frozen=True):
    """This send certainly had no effect. With `lease_s=0` the claim is given up as well."""

    key: str
    token: str
    epoch: int
    send: int
    lease_s: float


class Complete(Op[WriteReply], frozen=True):
    key: str
    token: str
    epoch: int
    outcome: bytes
    by: str = ""


class Fail(Op[WriteReply], frozen=True):
    key: str
    token: str
    epoch: int
    outcome: bytes


class Doubt(Op[WriteReply], frozen=True):
    """It may have happened. *unaided*: the downstream cannot recognise it, whatever the tool
    declares, so it is never sent again.
    """

    key: str
    token: str
    epoch: int
    reason: str
    unaided: bool = False


class Renew(Op[WriteReply], frozen=True):
    """The owner still lives. With `lease_s=0` it lets go without changing the state."""

    key: str
    token: str
    epoch: int
    lease_s: float


class Inquire(Op["Held | Busy | Refused | Unavailable"], frozen=True):
    """Take the right to reconcile an effect that is in doubt."""

    key: str
    token: str
    lease_s: float


class Rerun(Op[WriteReply], frozen=True):
    """The probe did not find it and no older send can land any more: back to claimed."""

    key: str
    token: str
    epoch: int
    lease_s: float


class Confirm(Op[WriteReply], frozen=True):
    """A person says that it happened."""

    key: str
    outcome: bytes
    by: str
    reason: str


class Refute(Op[WriteReply], frozen=True):
    """A person says that it did not happen; with *wish*, that it will not: its fingerprint."""

    key: str
    outcome: bytes
    by: str
    reason: str
    wish: str = ""  # only what was never sent, with the arguments that this person has seen


class Rearm(Op[WriteReply], frozen=True):
    """A person asks for the same request again, under the same key."""

    key: str
    by: str
    reason: str


class Approve(Op[WriteReply], frozen=True):
    """A person lets it be sent, with the arguments that have this fingerprint, within *valid_s*."""

    key: str
    fingerprint: str
    valid_s: float
    by: str
    reason: str


class Attest(Op["Record | None | Unavailable"], frozen=True):
    """Append what a late caller knows. The state never changes; the current record comes back."""

    key: str
    note: str
    outcome: bytes = b""
    at: float | None = None  # when that was, by another store's clock; None: now


class Find(Op["Record | None"], frozen=True):
    key: str


class Browse(Op["tuple[Record, ...]"], frozen=True):
    """Records in one state, oldest first, after a given (created_at, key)."""

    state: State
    tenant: str | None = None
    after: tuple[float, str] = (0.0, "")
    limit: int = 100


class Search(Op["tuple[Record, ...]"], frozen=True):
    """Records that fit, newest first, before (created_at, key). For people: may scan the store."""

    reference: str = ""  # how the reference begins, which is the end of the key
    tool: str | None = None
    state: State | None = None
    tenant: str | None = None
    scope: str | None = None
    since: float = 0.0
    before: tuple[float, str] = (inf, "")
    limit: int = 100

    def fits(self, record: Record) -> bool:
        """Is it one of them? For stores that do not say it in a language of their own."""
        request = record.request
        return (
            self.fits_key(request.key)
            and self.since <= record.created_at
            and (record.created_at, request.key) < self.before
            and self.tool in (None, request.terms.tool)
            and self.state in (None, record.state)
            and self.tenant in (None, request.tenant)
            and self.scope in (None, request.scope)
        )

    def fits_key(self, key: str) -> bool:
        return key[-REFERENCE_LENGTH:].startswith(self.reference)


class Tally(Op["dict[State, int]"], frozen=True):
    """How many records there are in each state."""


class Swept(Struct, frozen=True):
    doubted: int  # abandoned after dispatch, now in doubt
    buried: int  # outcome dropped, key still refused
    forgotten: int
    cells: int = 0  # shared values that were past their time; Redis drops those by itself
    # references of what is due and left as it is: this release cannot read it
    unreadable: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.doubted + self.buried + self.forgotten + self.cells

    def __add__(self, other: Swept) -> Swept:
        return Swept(
            self.doubted + other.doubted,
            self.buried + other.buried,
            self.forgotten + other.forgotten,
            self.cells + other.cells,
            tuple(dict.fromkeys((*self.unreadable, *other.unreadable))),
        )


class Sweep(Op[Swept], frozen=True):
    limit: int = 100  # records first; cells get what they leave


# ---------------------------------------------------------------- cells

LAST = "\U0010ffff"  # no name goes on with it, so it stands behind all that begin like this


class Cell(Struct, frozen=True):
    """A small value that processes share, as it stands now."""

    now: float  # the store's clock
    value: bytes = b""  # b"": there is none
    # 0: there is none. None ever comes twice under one name, not even after the cell was forgotten
    revision: int = 0


class ReadCell(Op[Cell], frozen=True):
    """A small value that processes share: a budget, a breaker's votes."""

    name: str


class WriteCell(Op["Cell | None"], frozen=True):
    """Replace what was seen. None: written. Otherwise another writer was faster, and this is
    what stands there now.

    After a lost acknowledgement that writer may have been this process: the value shows it.
    Names and values are kept in the clear.
    """

    name: str
    revision: int  # as it was seen; 0: there was none
    value: bytes
    keep_s: float  # forgotten this long after the last write
    listed: bool = False  # ListCells finds it. Say the same with every write of one cell


class ListCells(Op["tuple[tuple[str, bytes], ...]"], frozen=True):
    """Names and values of listed cells whose names begin with *prefix* and go on, in the order
    of their names.

    Only those after the name *after*; or *backwards*, the last name first, and only those before
    *after*. "": from the end of the list.
    """

    prefix: str
    after: str = ""
    limit: int = 100
    backwards: bool = False

    @property
    def bounds(self) -> tuple[str, str]:
        """Between which names they lie, neither of them included."""
        first, last = self.prefix, self.prefix + LAST
        if self.after:
            first, last = (
                (first, min(last, self.after)) if self.backwards else (max(first, self.after), last)
            )
        return first, last


# ---------------------------------------------------------------- several at once


class Together(Op["tuple[Any, ...]"], frozen=True):
    """Several ops, one after the other, in one round trip where the store can. Each is answered
    on its own.

    If the store does not answer, any of them may have been applied; repeating all of them is as
    safe as repeating each.
    """

    ops: tuple[Op[Any], ...]


OwnersOp: TypeAlias = Dispatch | Unsend | Complete | Fail | Doubt | Renew | Inquire | Rerun
PersonsOp: TypeAlias = Confirm | Refute | Rearm | Approve
RecordOp: TypeAlias = Claim | OwnersOp | PersonsOp | Attest
RECORD_OPS: frozenset[type] = frozenset(get_args(RecordOp))


# ---------------------------------------------------------------- what the driver itself performs


class Ok(Struct, frozen=True):
    value: Any
    stored: bytes = b""  # the same as it is stored, if that is known: then it is plain data


class Raised(Struct, frozen=True):
    error: BaseException
    # this attempt did not use the help that its tool declares: the key, the transaction
    unaided: bool = False
    seen: Seen | None = None  # what left during this attempt; None: nothing can be inferred from it


class NotStarted(Struct, frozen=True):
    """The caller was cancelled before the tool began: nothing left."""

    error: BaseException


Answer: TypeAlias = Ok | Raised | NotStarted


class Invoke(Op[Answer], frozen=True):
    """Run the tool, with a heartbeat beside it."""

    key: str
    token: str
    epoch: int
    attempt: int
    give_up_at: float
    sent_before: bool = False


class Unconfirmed(Struct, frozen=True):
    """The tool ran and COMMIT was asked for, but no answer came: the record will show it."""

    value: Any
    error: Exception


class Transact(Op["Answer | Refused | Unavailable | Unconfirmed"], frozen=True):
    """Run the tool and complete its record in one transaction of the store."""

    key: str
    token: str
    epoch: int
    attempt: int
    give_up_at: float


@final
class Ask(Op[Answer], frozen=True):
    """Run the tool's probe."""

    key: str
    token: str
    epoch: int


class Found(Struct, frozen=True):
    """The downstream has it: this is its result."""

    result: Any


class NotFound(Struct, frozen=True):
    """The downstream does not have it now. An older request may still be on its way."""


class CannotTell(Struct, frozen=True):
    """The downstream could not say."""

    reason: str = ""


class Interrupted(Struct, frozen=True):
    """The caller was cancelled while it waited."""

    error: BaseException


class Keep(Op[None], frozen=True):
    """The store cannot be reached: keep this write here, to repeat it when the store is back."""

    op: Complete | Fail


class Sleep(Op["Interrupted | None"], frozen=True):
    seconds: float
