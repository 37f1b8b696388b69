"""A Hypothesis state machine that drives a store and the reference side by side, op by op.

    from effectonce.testing.machine import store_machine

    TestMyStore = store_machine(lambda clock, path: MyStore(path / "my.db", clock=clock)).TestCase

Every program is a random history of callers that claim, send, fail, vanish, wake up late, forge
tokens and repeat themselves, on a few keys that share a latch and a sequence, under a clock that
jumps. After each op both stores must have replied the same, and hold the same record.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from msgspec.structs import replace

from effectonce._core import ops
from effectonce._core.guarantees import Capability, Kind
from effectonce._core.record import TRIED, Request, State
from effectonce.stores.base import Store
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance.bench import (
    KEYED,
    LEASE_S,
    PROBED,
    RESEND_S,
    TRANSACTED,
    WINDOW_S,
    request,
    terms,
)

Opener = Callable[[FakeClock, Path], Store]
Owner = tuple[str, str, int, int]  # key, token, epoch, sends, as some caller believes them to be

TERMS = (
    terms(),
    KEYED,
    replace(KEYED, stores_rejections=True),
    replace(PROBED, delay_s=60.0),
    replace(PROBED, delay_s=60.0, kind=Kind.IRREVERSIBLE),
    TRANSACTED,
    terms(Capability.NONE, Kind.IDEMPOTENT_WRITE, resend_s=inf),
    terms(resend_s=inf, tombstone_s=0.0, rerun=True),
    terms(tombstone_s=WINDOW_S),
)
REQUESTS = tuple(
    request(f"k{n}", on=on, fingerprint=this, latch="step" * (n % 2), after="k0" * (n == 7))
    for n, on in enumerate(TERMS)
    for this in ("this", "that")
)
PAUSES_S = (0.0, 1.0, LEASE_S, LEASE_S + 60.5, RESEND_S, WINDOW_S, WINDOW_S + 1)


def store_machine(open_store: Opener) -> type[RuleBasedStateMachine]:
    """A state machine that holds the store that *open_store* opens against the reference."""

    class StoreMachine(RuleBasedStateMachine):
        owners = Bundle("owners")

        def __init__(self) -> None:
            super().__init__()
            self.clock = FakeClock()
            self.folder = tempfile.TemporaryDirectory()
            self.store = open_store(self.clock, Path(self.folder.name))
            self.reference = MemoryStore(clock=self.clock)
            self.tokens = 0
            self.touched: set[str] = set()

        def teardown(self) -> None:
            self.store.close()
            self.folder.cleanup()

        def both(self, op: ops.Op[Any], *, again: bool = False) -> Any:
            """Apply it to both; *again*, twice. The first reply."""
            self.touched.add(getattr(op, "key", "k0"))
            expected, got = self.reference.apply(op), self.store.apply(op)
            assert got == expected, f"{op}\n  replied {got}\n  not     {expected}"
            if again:
                self.both(op)
            return got

        @initialize(target=owners)
        def a_forger(self) -> Owner:
            return ("k0", "forged", 1, 1)

        @rule(
            target=owners,
            asked=st.sampled_from(REQUESTS),
            dispatch=st.booleans(),
            again=st.booleans(),
        )
        def claim(self, asked: Request, *, dispatch: bool, again: bool) -> Any:
            self.tokens += 1
            op = ops.Claim(asked, f"t{self.tokens}", LEASE_S, dispatch, again)
            reply = self.both(op, again=again)
            if isinstance(reply, ops.Held):
                return asked.key, op.token, reply.epoch, reply.sends
            return multiple()

        @rule(target=owners, owner=owners)
        def inquire(self, owner: Owner) -> Any:
            self.tokens += 1
            reply = self.both(ops.Inquire(owner[0], f"t{self.tokens}", LEASE_S))
            if isinstance(reply, ops.Held):
                return owner[0], f"t{self.tokens}", reply.epoch, reply.sends
            return multiple()

        @rule(target=owners, owner=owners, again=st.booleans())
        def send(self, owner: Owner, *, again: bool) -> Any:
            key, token, epoch, sends = owner
            op = ops.Dispatch(key, token, epoch, sends + 1, LEASE_S)
            reply = self.both(op, again=again)
            return (key, token, epoch, sends + 1) if isinstance(reply, ops.Applied) else multiple()

        @rule(target=owners, owner=owners, keep=st.booleans(), again=st.booleans())
        def take_back(self, owner: Owner, *, keep: bool, again: bool) -> Any:
            key, token, epoch, sends = owner
            op = ops.Unsend(key, token, epoch, sends, LEASE_S if keep else 0)
            reply = self.both(op, again=again)
            if isinstance(reply, ops.Applied):
                return key, token, reply.epoch, sends - 1
            return multiple()

        @rule(
            owner=owners,
            outcome=st.sampled_from((b"", b"one", b"two")),
            by=st.sampled_from(("", "probe")),
            again=st.booleans(),
        )
        def complete(self, owner: Owner, outcome: bytes, by: str, *, again: bool) -> None:
            self.both(ops.Complete(*owner[:3], outcome, by), again=again)

        @rule(
            owner=owners,
            which=st.sampled_from(("fail", "doubt", "renew", "let go", "rerun")),
            again=st.booleans(),
        )
        def write(self, owner: Owner, which: str, *, again: bool) -> None:
            mine = owner[:3]
            op: ops.Op[Any] = {
                "fail": ops.Fail(*mine, b"no"),
                "doubt": ops.Doubt(*mine, "?"),
                "renew": ops.Renew(*mine, LEASE_S),
                "let go": ops.Renew(*mine, 0),
                "rerun": ops.Rerun(*mine, LEASE_S),
            }[which]
            self.both(op, again=again)

        @rule(
            key=st.sampled_from(REQUESTS),
            which=st.sampled_from(("confirm", "refute", "rearm", "attest", "tried")),
            again=st.booleans(),
        )
        def settle(self, key: Request, which: str, *, again: bool) -> None:
            op: ops.Op[Any] = {
                "confirm": ops.Confirm(key.key, b"seen", "ada", "seen"),
                "refute": ops.Refute(key.key, b"unseen", "ada", "not seen"),
                "rearm": ops.Rearm(key.key, "ada", "again"),
                "attest": ops.Attest(key.key, "late", b"late"),
                "tried": ops.Attest(key.key, TRIED, b"no answer", at=1.5),
            }[which]
            self.both(op, again=again)

        @rule(limit=st.integers(1, 4))
        def sweep(self, limit: int) -> None:
            # otherwise which ones come first is the store's choice
            if sum(self.reference.apply(ops.Tally()).values()) <= limit:
                self.both(ops.Sweep(limit))

        @rule(pause_s=st.sampled_from(PAUSES_S))
        def time_passes(self, pause_s: float) -> None:
            self.clock.advance(pause_s)

        @rule(state=st.sampled_from([s for s in State if s is not State.ABSENT]))
        def browse(self, state: State) -> None:
            self.both(ops.Browse(state))
            self.both(ops.Search(state=state))
            self.both(ops.Search(limit=3))
            self.both(ops.Tally())

        @invariant()
        def records_are_equal(self) -> None:
            for key in self.touched:
                assert self.store.apply(ops.Find(key)) == self.reference.apply(ops.Find(key))
            self.touched.clear()

    return StoreMachine
