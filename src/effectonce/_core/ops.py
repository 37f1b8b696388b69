"""The vocabulary: everything the engine may ask for is a frozen value with a typed reply.

`reply = yield from SomeOp(...)` asks the driver to perform it. Store ops are one atomic step each, and each may be repeated with
the same token: a lost acknowledgement is answered as if it had just been written.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from effectonce._core.records import Record, State  # noqa: F401  # in the quoted reply types
    from effectonce._core.terms import Terms

R = TypeVar("R", covariant=True)


class Op(Generic[R]):
    __slots__ = ()

    def __iter__(self) -> Generator[Op[Any], Any, R]:
        reply: R = yield self
        return reply


Flow: TypeAlias = Generator[Op[Any], Any, R]


@dataclass(frozen=True, slots=True)
class Request:
    """One effect as it is asked for: what identifies it, what it asks, and on which terms."""

    key: str
    fingerprint: str
    terms: Terms
    tenant: str
    scope: str = ""
    step: str = ""
    arguments: bytes = b""
    latch: str = ""  # effects that share it may not be in the air together; "" = none
    after: str = ""  # the key that must have an outcome first; "" = none


# ---------------------------------------------------------------- replies to Claim


@dataclass(frozen=True, slots=True)
class Held:
    epoch: int
    sends: int  # dispatch writes so far, ours included if we asked for one
    dispatched: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """The outcome is known: replay it."""

    state: State
    outcome: bytes
    age_s: float
    remaining_s: float
    settled_by: str = ""


@dataclass(frozen=True, slots=True)
class Busy:
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key is taken by a different request. What it stored is not told."""

    tool: str


@dataclass(frozen=True, slots=True)
class Doubtful:
    since_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    since_s: float


@dataclass(frozen=True, slots=True)
class Latched:
    """Another call of the same step was sent and has no outcome yet."""

    key: str
    tool: str
    retry_after_s: float | None  # None: nobody is working on it


@dataclass(frozen=True, slots=True)
class Early:
    """The predecessor in this sequence has no outcome yet."""

    after: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The store did not answer. Whether the write was applied is unknown; repeating it with the same token is safe."""

    error: Exception


ClaimReply: TypeAlias = Held | Recorded | Busy | Mismatch | Doubtful | Expired | Latched | Early | Unavailable


# ---------------------------------------------------------------- replies to the owner's writes


@dataclass(frozen=True, slots=True)
class Applied:
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """0 rows: the record is not ours, or not in a state that allows this."""

    state: State | None


WriteReply: TypeAlias = Applied | Refused | Unavailable


# ---------------------------------------------------------------- store ops


@dataclass(frozen=True, slots=True)
class Claim(Op[ClaimReply]):
    request: Request
    token: str
    lease_s: float
    dispatch: bool

    @property
    def key(self) -> str:
        return self.request.key


@dataclass(frozen=True, slots=True)
class Dispatch(Op[WriteReply]):
    key: str
    token: str
    epoch: int
    send: int  # the count this write makes: repeating it is harmless
    lease_s: float


@dataclass(frozen=True, slots=True)
class Unsend(Op[WriteReply]):
    """This send certainly had no effect. With `lease_s=0` the claim is given up as well."""

    key: str
    token: str
    epoch: int
    send: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class Complete(Op[WriteReply]):
    key: str
    token: str
    epoch: int
    outcome: bytes
    by: str = ""


@dataclass(frozen=True, slots=True)
class Fail(Op[WriteReply]):
    key: str
    token: str
    epoch: int
    outcome: bytes


@dataclass(frozen=True, slots=True)
class Doubt(Op[WriteReply]):
    key: str
    token: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Renew(Op[WriteReply]):
    """The owner still lives. With `lease_s=0` it lets go without changing the state."""

    key: str
    token: str
    epoch: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class Inquire(Op["Held | Busy | Refused | Unavailable"]):
    """Take the right to reconcile an effect that is in doubt."""

    key: str
    token: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class Rerun(Op[WriteReply]):
    """The probe did not find it and no older send can land any more: back to claimed."""

    key: str
    token: str
    epoch: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class Confirm(Op[WriteReply]):
    """A person says that it happened."""

    key: str
    outcome: bytes
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refute(Op[WriteReply]):
    """A person says that it did not happen."""

    key: str
    outcome: bytes
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rearm(Op[WriteReply]):
    """A person asks for the same request again, under the same key."""

    key: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Attest(Op["Record | None | Unavailable"]):
    """Append what a late caller knows. It never changes the state; the record as it is now comes back."""

    key: str
    note: str
    outcome: bytes = b""


@dataclass(frozen=True, slots=True)
class Find(Op["Record | None"]):
    key: str


@dataclass(frozen=True, slots=True)
class Browse(Op["tuple[Record, ...]"]):
    """Records in one state, oldest first, after a given (created_at, key)."""

    state: State
    tenant: str | None = None
    after: tuple[float, str] = (0.0, "")
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Tally(Op["dict[State, int]"]):
    """How many records there are in each state."""


@dataclass(frozen=True, slots=True)
class Swept:
    doubted: int  # abandoned after dispatch, now in doubt
    buried: int  # outcome dropped, key still refused
    forgotten: int


@dataclass(frozen=True, slots=True)
class Sweep(Op[Swept]):
    limit: int = 100


RecordOp: TypeAlias = (
    Claim | Dispatch | Unsend | Complete | Fail | Doubt | Renew | Inquire | Rerun | Confirm | Refute | Rearm | Attest
)
StoreOp: TypeAlias = RecordOp | Find | Browse | Tally | Sweep


# ---------------------------------------------------------------- what the driver itself performs


@dataclass(frozen=True, slots=True)
class Ok:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The caller was cancelled before the tool began: nothing left."""

    error: BaseException


Answer: TypeAlias = Ok | Raised | NotStarted


@dataclass(frozen=True, slots=True)
class Invoke(Op[Answer]):
    """Run the tool, with a heartbeat beside it."""

    key: str
    token: str
    epoch: int
    attempt: int
    give_up_at: float


@dataclass(frozen=True, slots=True)
class Transact(Op["Answer | Refused | Unavailable"]):
    """Run the tool and complete its record in one transaction of the store."""

    key: str
    token: str
    epoch: int
    attempt: int
    give_up_at: float


@dataclass(frozen=True, slots=True)
class Ask(Op[Answer]):
    """Run the tool's probe."""

    key: str
    token: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Found:
    """The downstream has it: this is its result."""

    result: Any


@dataclass(frozen=True, slots=True)
class NotFound:
    """The downstream does not have it now. An older request may still be on its way."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The downstream could not say."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The caller was cancelled while it waited."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Sleep(Op["Interrupted | None"]):
    seconds: float
