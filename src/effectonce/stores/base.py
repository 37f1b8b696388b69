"""What a store is: one method, sync and async, and what it can promise."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from effectonce._core.guarantees import Capability, Kind
from effectonce._core.ops import Applied, Claim, Complete, Op, Recorded, Refused
from effectonce._core.record import Request
from effectonce.errors import StoreUnavailable

R = TypeVar("R")


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a store can promise. Declared, not guessed: the conformance suite holds it to that."""

    durable: bool  # an acknowledged write survives the death of every process and of the machine
    transactions: bool  # a tool's own writes can commit together with its record

    def unfit_for(self, kind: Kind, downstream: Capability) -> str:
        """Why a store like this cannot keep what such a tool is promised; "" if it can."""
        if downstream is Capability.TRANSACTION and not self.transactions:
            return (
                "it has no transactions that a tool could share (sqlite:// and postgresql:// have)"
            )
        if kind is Kind.IRREVERSIBLE and not self.durable:
            return (
                "it can forget, and then the effect could run twice. Use a durable store such as"
                " sqlite:///effects.db, or say accept_store_loss=True"
            )
        return ""


class Finding(Struct, frozen=True):
    """One thing that was looked at in a store: how it is, and what to change if that is bad."""

    subject: str
    found: str
    advice: str = ""  # "" = nothing to do
    bad: bool = False  # effects are not safe, or not possible, until it is changed


DUE_SHOWN = 1000  # more than that is "many"
SKEW_S = 5.0  # a clock that is further off is reported; leases and windows follow the store's


def clock_finding(ahead_s: float) -> Finding:
    """How far a server's clock is from this machine's."""
    advice = (
        "Leases and windows follow the store's clock; set the other one right anyway."
        if abs(ahead_s) > SKEW_S
        else ""
    )
    return Finding("clock", f"{ahead_s:+.1f} s from this machine's", advice)


def size_finding(size_b: int, where: str) -> Finding:
    """How much room a store takes."""
    return Finding("size", f"{size_b / 1e6:,.1f} MB {where}")


def due_finding(count: int, unreadable: Sequence[str] = ()) -> Finding:
    """How much waits to be swept."""
    many = count >= DUE_SHOWN
    advice = "Sweep: guard.sweeper() or guard.sweep()." * many
    if unreadable:
        advice = (
            f"{len(unreadable):,} of them cannot be read by this release, such as {unreadable[0]}:"
            " upgrade effectonce here."
        )
    return Finding("due", f"{count:,} records" + " or more" * many, advice)


def in_a_signal_handler(where: object) -> StoreUnavailable:
    """A signal handler called the store inside an operation: waiting for that would never end."""
    return StoreUnavailable(
        f"{where}: a signal handler made this call while its own thread was in the middle of an"
        " operation of the store. Nothing was sent. Set a flag in the handler, or hand the call to"
        " another thread, and make it there."
    )


LARGE_B = 4 << 20  # whatever takes too long and is larger than this takes long because of it


class TooLarge(StoreUnavailable):
    """The store refused a value for its size, and will again. Nothing of it was written."""

    retriable = False
    corrective_action = (
        "Return or pass less: a reference to a large value, not the value. Or let the store take"
        " more."
    )


class StoreUnusable(StoreUnavailable):
    """The store needs a person to change something: the next call fails too. Nothing was sent."""

    code = "STORE_UNUSABLE"
    retriable = False
    corrective_action = (
        "Put the store right, or name another one; the same call would meet the same fault."
    )


def size_b(op: Op[Any]) -> int:
    """How large the value is that an op brings: arguments, or an outcome."""
    return len(op.request.arguments) if isinstance(op, Claim) else len(getattr(op, "outcome", b""))


class Store(Protocol):
    """Applies one op atomically and replies. Raises `StoreUnavailable` when it cannot say."""

    @property
    def capabilities(self) -> Capabilities: ...

    def apply(self, op: Op[R], /) -> R: ...

    async def aapply(self, op: Op[R], /) -> R: ...

    def close(self) -> None: ...


@runtime_checkable
class ExaminableStore(Protocol):
    """A store that knows how it is set up."""

    def examine(self) -> tuple[Finding, ...]:
        """Look at everything that safety and speed rest on: durability, schema, clock, what is
        due. Raises `StoreUnavailable`.
        """


@runtime_checkable
class PausableStore(Protocol):
    """A store with cells, which says so: tools can be paused in it."""

    has_cells: bool


@runtime_checkable
class LocalStore(Protocol):
    """Read without a round trip: a repeated call looks for its outcome first and claims nothing."""

    def look(self, request: Request, /) -> Recorded | None:
        """Exactly this request's known outcome. Never waits; None does not mean there is none."""


class RolledBack(StoreUnavailable):
    """COMMIT was answered, and refused: nothing of this transaction stays."""


class Transaction(Protocol):
    """An open transaction: the connection for the tool, and the record's write in the same COMMIT.

    `complete` replies `Applied` only if it changed the record. A record that is done already was
    done by another worker, or by an older run whose COMMIT was not answered: then this run's
    writes must not stay.

    `commit` raises `RolledBack` only if it is certain that nothing stays; after any other
    `StoreUnavailable` it is not known what stays.
    """

    connection: Any
    # no other caller writes to the store while it is open: no lease can be renewed, and none be
    # taken over
    exclusive: bool

    @property
    def broken(self) -> bool:
        """Was the connection lost under the tool? Then its error is that, and nothing stays."""

    def complete(self, op: Complete, /) -> Applied | Refused: ...

    def commit(self) -> None: ...


class AsyncTransaction(Protocol):
    """The same for async."""

    connection: Any
    exclusive: bool

    @property
    def broken(self) -> bool: ...

    async def complete(self, op: Complete, /) -> Applied | Refused: ...

    async def commit(self) -> None: ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store with `capabilities.transactions`. Leaving the block without `commit()` rolls back."""

    def transaction(self) -> AbstractContextManager[Transaction]: ...

    def atransaction(self) -> AbstractAsyncContextManager[AsyncTransaction]: ...
