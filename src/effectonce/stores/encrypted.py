"""A store that keeps nothing readable: whatever a caller or a downstream sent is sealed on its
way in and opened on its way out.

Sealed are arguments, results and failures, evidence, and reasons, which quote error messages. In
the clear are what a store decides by, and what a person looks for: keys, fingerprints, states,
times, tenant, tool, scope, step, and the names of people: who settled a doubt, who asked for an
approval and who gave it. Cells too: they count, and hold no content of a call.

What does not open is replaced by the reason why, in the codec's own words for a result that is
lost. The record still says what happened, so the effect is not run again.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from effectonce._core.codec import SEALED, closed
from effectonce._core.ops import (
    Applied,
    Approve,
    Attest,
    Claim,
    Complete,
    Confirm,
    Doubt,
    Doubtful,
    Fail,
    ListCells,
    Op,
    Rearm,
    Recorded,
    Refused,
    Refute,
    Together,
)
from effectonce._core.pages import Recently
from effectonce._core.record import APPROVED, ASKED_BY, Evidence, Record, Request
from effectonce._validate import of_type
from effectonce.errors import ContractViolation
from effectonce.stores.base import (
    AsyncTransaction,
    Capabilities,
    ExaminableStore,
    LocalStore,
    PausableStore,
    Store,
    Transaction,
    TransactionalStore,
)
from effectonce.stores.keyring import Keyring, NotOpened

R = TypeVar("R")
_TEXT = SEALED.decode()


class Sealed:
    """*store*, what is confidential sealed by *keyring*. It can do just what the store can."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring
        # What only some stores have is here only if this one has it: the guard looks. Not bound
        # to self: a circle would keep files open.
        if isinstance(store, LocalStore):
            self.look = partial(_look, store, keyring)
        if isinstance(store, PausableStore):
            self.has_cells = store.has_cells
        if isinstance(store, ExaminableStore):
            self.examine = store.examine
        if isinstance(store, TransactionalStore):
            self.transaction = partial(_transaction, store, keyring)
            self.atransaction = partial(_atransaction, store, keyring)

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def apply(self, op: Op[R], /) -> R:
        return cast(R, _opened(self._store.apply(_sealed(op, self._keyring)), op, self._keyring))

    async def aapply(self, op: Op[R], /) -> R:
        return cast(
            R, _opened(await self._store.aapply(_sealed(op, self._keyring)), op, self._keyring)
        )

    def close(self) -> None:
        self._store.close()


# ---------------------------------------------------------------- in


def _sealed(op: Op[R], ring: Keyring) -> Op[R]:
    changed: Op[Any]
    match op:
        case Claim(request):
            arguments = ring.seal(request.arguments, request.key, "arguments")
            changed = replace(op, request=replace(request, arguments=arguments))
        case Complete(key, outcome=outcome) | Fail(key, outcome=outcome):
            changed = replace(op, outcome=ring.seal(outcome, key, "outcome"))
        case Confirm(key, outcome, _, reason) | Refute(key, outcome, _, reason):
            changed = replace(
                op, outcome=ring.seal(outcome, key, "outcome"), reason=_seal_text(reason, key, ring)
            )
        case Doubt(key, reason=reason) | Rearm(key, reason=reason) | Approve(key, reason=reason):
            changed = replace(op, reason=_seal_text(reason, key, ring))
        case Attest(key, outcome=outcome):
            changed = replace(op, outcome=ring.seal(outcome, key, "evidence"))
        case Together(ops):
            changed = Together(tuple([_sealed(each, ring) for each in ops]))
        case _:
            return op
    return cast("Op[R]", changed)


def _seal_text(text: str, key: str, ring: Keyring) -> str:
    """The same as text, as stores keep a reason in a text column: `v1 sealed <key id> <base64>`."""
    if text == "":
        return text
    _, _, name, sealed = ring.seal(text.encode("utf-8", "surrogatepass"), key, "reason").split(
        b" ", 3
    )
    return f"{_TEXT}{name.decode()} {base64.b64encode(sealed).decode()}"


# ---------------------------------------------------------------- out


def _opened(reply: Any, op: Op[Any], ring: Keyring) -> Any:
    if isinstance(op, Together):
        return tuple(
            [_opened(each, asked, ring) for each, asked in zip(reply, op.ops, strict=True)]
        )
    match reply:
        case Recorded():
            return _open_recorded(reply, cast(Claim, op).key, ring)
        case Doubtful(since_s, reason):
            return Doubtful(since_s, _open_text(reason, cast(Claim, op).key, ring))
        case Record():
            return _open_record(reply, ring)
        case Recently(records, further):
            opened = tuple(_open_record(record, ring) for record in records)
            return Recently(opened, None if further is None else _open_record(further, ring))
        case tuple() if not isinstance(op, ListCells):
            return tuple(_open_record(record, ring) for record in reply)
        case _:
            return reply


def _open_recorded(recorded: Recorded, key: str, ring: Keyring) -> Recorded:
    try:
        return replace(recorded, outcome=ring.open(recorded.outcome, key, "outcome"))
    except NotOpened as error:
        # No time remains for it, so no cache keeps it: the missing key may be added in a moment.
        return replace(recorded, outcome=closed(str(error)), remaining_s=0.0)


def _open_record(record: Record, ring: Keyring) -> Record:
    key = record.request.key
    return replace(
        record,
        request=replace(
            record.request, arguments=_open(record.request.arguments, key, "arguments", ring)
        ),
        outcome=_open(record.outcome, key, "outcome", ring),
        reason=_open_text(record.reason, key, ring),
        evidence=tuple(_open_evidence(each, key, ring) for each in record.evidence),
    )


def _open_evidence(entry: Evidence, key: str, ring: Keyring) -> Evidence:
    """Who asked for an approval, and who gave it, are names; the reason for it was sealed."""
    if entry.note == ASKED_BY:
        return entry
    if entry.note == APPROVED:
        by, sealed, reason = entry.outcome.decode().rpartition(f": {_TEXT}")
        if sealed:
            return replace(entry, outcome=f"{by}: {_open_text(_TEXT + reason, key, ring)}".encode())
    return replace(entry, outcome=_open(entry.outcome, key, "evidence", ring))


def _open(data: bytes, key: str, field: str, ring: Keyring) -> bytes:
    try:
        return ring.open(data, key, field)
    except NotOpened as error:
        return closed(str(error))


def _open_text(text: str, key: str, ring: Keyring) -> str:
    """A reason that the store itself gave was never sealed, and says nothing that needs to be."""
    if not text.startswith(_TEXT):
        return text
    name, _, encoded = text[len(_TEXT) :].partition(" ")
    try:
        sealed = SEALED + name.encode() + b" " + base64.b64decode(encoded, validate=True)
        return ring.open(sealed, key, "reason").decode("utf-8", "surrogatepass")
    except (NotOpened, binascii.Error) as error:
        return f"a reason that cannot be read: {error}"


# ---------------------------------------------------------------- what only some stores have


def _look(store: LocalStore, ring: Keyring, request: Request, /) -> Recorded | None:
    known = store.look(request)
    return None if known is None else _open_recorded(known, request.key, ring)


@contextlib.contextmanager
def _transaction(store: TransactionalStore, ring: Keyring) -> Iterator[Transaction]:
    with store.transaction() as transaction:
        yield _SealedTransaction(transaction, ring)


@contextlib.asynccontextmanager
async def _atransaction(
    store: TransactionalStore, ring: Keyring
) -> AsyncIterator[AsyncTransaction]:
    async with store.atransaction() as transaction:
        yield _AsyncSealedTransaction(transaction, ring)


class _SealedTransaction:
    def __init__(self, transaction: Transaction, ring: Keyring) -> None:
        self._transaction, self._ring = transaction, ring
        self.connection, self.exclusive = transaction.connection, transaction.exclusive

    @property
    def broken(self) -> bool:
        return self._transaction.broken

    def complete(self, op: Complete, /) -> Applied | Refused:
        return self._transaction.complete(cast(Complete, _sealed(op, self._ring)))

    def commit(self) -> None:
        self._transaction.commit()


class _AsyncSealedTransaction:
    def __init__(self, transaction: AsyncTransaction, ring: Keyring) -> None:
        self._transaction, self._ring = transaction, ring
        self.connection, self.exclusive = transaction.connection, transaction.exclusive

    @property
    def broken(self) -> bool:
        return self._transaction.broken

    async def complete(self, op: Complete, /) -> Applied | Refused:
        return await self._transaction.complete(cast(Complete, _sealed(op, self._ring)))

    async def commit(self) -> None:
        await self._transaction.commit()


def sealed(store: Store, keyring: Keyring | None, secret: bytes) -> Store:
    """The store of a guard that has a keyring: what it holds cannot be read without it."""
    if not isinstance(secret, bytes):
        raise ContractViolation(
            "secret is no bytes. Give them as secret=os.environ['SECRET'].encode()."
        )
    of_type("keyring", keyring, Keyring, "a keyring, such as keyring=Keyring.from_env()")
    if keyring is None:
        return store
    if not secret:
        raise ContractViolation(
            "a keyring needs a secret: without one, keys and fingerprints are plain digests, from"
            " which sealed arguments can be guessed. Give the guard both, Guard(..., keyring=...,"
            " secret=...), and keep the secret: keys that are made with another one differ."
        )
    return Sealed(store, keyring)
