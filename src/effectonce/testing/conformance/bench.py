"""One store, sync or async, with a hand-cranked clock, and the requests that the checks use."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import inf
from typing import Any, Literal, Self, TypeVar, cast

from msgspec.structs import replace

from effectonce._core.guarantees import Capability, Kind, Terms
from effectonce._core.ops import Applied, Claim, Complete, Doubt, Find, Held, Inquire, Op, Refused
from effectonce._core.record import Record, Request, State
from effectonce.stores.base import Store, TransactionalStore
from effectonce.testing.clock import FakeClock

R = TypeVar("R")
Mode = Literal["sync", "async"]
MODES: tuple[Mode, ...] = ("sync", "async")
LEASE_S, WINDOW_S, RESEND_S = 30.0, 3600.0, 600.0
RACERS = 20
MEETING_S = 0.2
GATE_S = 60.0  # how long racers wait for one that does not come


class Bench:
    """One store, sync or async, with a hand-cranked clock."""

    def __init__(self, open_store: Callable[[FakeClock], Store], mode: Mode) -> None:
        self.clock, self.mode = _Clock(), mode
        self._open_store = open_store
        self.store = open_store(self.clock)
        self._loop = asyncio.new_event_loop()
        self._tokens, self._again = count(1), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close()
        self.store.close()

    def reopen(self) -> None:
        """Close the store and open it anew, as the next process would."""
        self.store.close()
        self.store = self._open_store(self.clock)

    def apply(self, op: Op[R]) -> R:
        """Apply one op, sync or async as the bench is."""
        if self.mode == "sync":
            return self.store.apply(op)
        return self._loop.run_until_complete(self.store.aapply(op))

    def in_transaction(self, op: Complete, *, commit: bool) -> Applied | Refused:
        """Complete a record inside a transaction of the store, and commit it or not."""
        store = cast(TransactionalStore, self.store)
        if self.mode == "async":
            return self._loop.run_until_complete(_transact(store, op, commit=commit))
        with store.transaction() as transaction:
            reply = transaction.complete(op)
            if commit:
                transaction.commit()
            return reply

    def race(self, ops: Sequence[Op[R]]) -> list[R]:
        """Apply all ops at the same instant, from as many threads or tasks."""
        if self.mode == "async":
            return self._loop.run_until_complete(_gather(self.store, ops))
        gate = threading.Barrier(len(ops), timeout=GATE_S)
        replies, errors = list[R](), list[Exception]()

        def racer(op: Op[R]) -> None:
            try:
                gate.wait()
                replies.append(self.store.apply(op))
            except Exception as error:  # noqa: BLE001
                # raised below: in this thread it would be lost
                errors.append(error)

        threads = [threading.Thread(target=racer, args=(op,)) for op in ops]
        with self.clock.crowded():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
        return replies

    def token(self) -> str:
        """A token that no other claim has."""
        return f"token-{next(self._tokens)}"

    def claim(
        self, request: Request, *, dispatch: bool = True, lease_s: float = LEASE_S
    ) -> tuple[str, Any]:
        """Claim as a new caller; returns its token and the reply."""
        # every other one says that it asks again: no reply may depend on it
        token, self._again = self.token(), not self._again
        return token, self.apply(Claim(request, token, lease_s, dispatch, self._again))

    def held(self, request: Request, *, dispatch: bool = True) -> tuple[str, int]:
        """Claim and expect to hold it; returns token and epoch."""
        token, reply = self.claim(request, dispatch=dispatch)
        assert isinstance(reply, Held), reply
        return token, reply.epoch

    def claiming(self, request: Request) -> Claim:
        """The op of a new caller that claims and sends."""
        return Claim(request, self.token(), LEASE_S, dispatch=True)

    def done(self, request: Request, outcome: bytes = b"done") -> tuple[str, int]:
        """Claim and complete it; returns token and epoch."""
        token, epoch = self.held(request)
        self.apply(Complete(request.key, token, epoch, outcome))
        return token, epoch

    def inquired(self, key: str = "k", lease_s: float = LEASE_S) -> tuple[str, int]:
        """Inquire as a new reconciler; returns token and epoch."""
        token = self.token()
        reply = self.apply(Inquire(key, token, lease_s))
        assert isinstance(reply, Held), reply
        return token, reply.epoch

    def record(self, request: Request) -> Record:
        """The record as it is now."""
        record = self.apply(Find(request.key))
        assert record is not None, f"{request.key} has no record"
        return record

    def state(self, request: Request) -> State:
        return self.record(request).state

    def lease_ends(self) -> None:
        """Let every lease run out."""
        self.clock.advance(LEASE_S + 1)

    def in_doubt(self, request: Request) -> tuple[str, int]:
        """Bring a request in doubt; returns the sender's token and epoch."""
        token, epoch = self.held(request)
        assert isinstance(self.apply(Doubt(request.key, token, epoch, "no answer")), Applied)
        return token, epoch


class _Clock(FakeClock):
    """In a race, a caller that looks at it waits until another caller looks too.

    A store that decides on what it read before has company there, however the threads are
    scheduled. In a store that lets one in at a time no other comes: the first waits for
    MEETING_S in vain, and no later one waits.
    """

    _meeting: threading.Barrier | None = None

    def __call__(self) -> float:
        if self._meeting is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                self._meeting.wait(MEETING_S)
        return self.now

    @contextlib.contextmanager
    def crowded(self) -> Iterator[None]:
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self._meeting = threading.Barrier(2)
        try:
            yield
        finally:
            self._meeting = None
            sys.setswitchinterval(interval_s)


async def _transact(store: TransactionalStore, op: Complete, *, commit: bool) -> Applied | Refused:
    async with store.atransaction() as transaction:
        reply = await transaction.complete(op)
        if commit:
            await transaction.commit()
        return reply


async def _gather(store: Store, ops: Sequence[Op[R]]) -> list[R]:
    return list(await asyncio.gather(*(store.aapply(op) for op in ops)))


def terms(
    downstream: Capability = Capability.NONE, kind: Kind = Kind.WRITE, **changes: Any
) -> Terms:
    """Terms as the checks use them: an hour's window, ten minutes to re-send under a key."""
    resend = {Capability.KEY: RESEND_S, Capability.TRANSACTION: inf}.get(downstream, 0.0)
    base = Terms(
        tool="pay",
        version="1",
        kind=kind,
        downstream=downstream,
        window_s=WINDOW_S,
        resend_s=resend,
    )
    return replace(base, **changes)


def request(key: str = "k", *, on: Terms | None = None, **changes: Any) -> Request:
    """A request as the checks use it."""
    return replace(Request(key, f"fingerprint of {key}", on or terms(), "main"), **changes)


KEYED = terms(Capability.KEY)
PROBED = terms(Capability.PROBE)
TRANSACTED = terms(Capability.TRANSACTION)
