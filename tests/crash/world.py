"""A downstream that counts, a store, a clock, and a driver that dies where it is told to. No
time passes and nothing is random.
"""

import asyncio
import contextlib
import inspect
import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

from effectonce import (
    CannotTell,
    Downstream,
    EffectOnceError,
    Found,
    Guard,
    NotFound,
    NotSent,
    Outcome,
    Rejected,
    current_effect,
)
from effectonce._core.guarantees import GUARANTEES, Capability, Kind
from effectonce._core.ops import Op, Sleep
from effectonce._tools import tool as tool_module
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock

LEASE_S, DELAY_S = 30.0, 60.0


class Tables(NamedTuple):
    """How the tool's own table is made and looked for."""

    create: str
    exists: str


SQLITE = Tables(
    "CREATE TABLE IF NOT EXISTS ledger (n INTEGER PRIMARY KEY)",
    "SELECT count(*) FROM sqlite_schema WHERE name = 'ledger'",
)
POSTGRES = Tables(
    "CREATE TABLE IF NOT EXISTS ledger (n serial PRIMARY KEY)",
    "SELECT count(*) FROM pg_tables WHERE tablename = 'ledger'",
)


class Crash(BaseException):
    """The process dies here: nothing after this line runs."""


@dataclass
class World:
    kind: Kind
    capability: Capability
    colour: str
    # what the downstream does with each send; "ok" once they are used up
    behaviours: tuple[str, ...] = ()
    separate_dispatch: bool = False
    delay_s: float | None = None
    probe: bool = True
    die_at: tuple[int, str] | None = None
    effects: int = 0
    seen: dict = field(default_factory=dict)
    sends: int = 0
    log: list[Op] = field(default_factory=list)

    def __post_init__(self):
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.tables = SQLITE
        self.pending = list(self.behaviours)
        self.ops = itertools.count()

    def use_sqlite(self, path):
        self.store = SqliteStore(path, clock=self.clock)

    def use_postgres(self, url):
        """An empty database, but for the table of the tool's own rows."""
        self.store, self.tables = PostgresStore(url, clock=self.clock), POSTGRES

    @property
    def guarantee(self):
        return GUARANTEES[self.kind, self.capability]

    # -------------------------------------------------------- the downstream

    def send(self):
        self.sends += 1
        behaviour = self.pending.pop(0) if self.pending else "ok"
        effect = current_effect()
        # as it declares
        _ = (
            effect.connection
            if self.capability is Capability.TRANSACTION
            else effect.downstream_key
        )
        if behaviour == "not-sent":
            raise NotSent("connection refused")
        if behaviour == "busy":
            raise Rejected("too many requests", retryable=True)
        if behaviour == "refused":
            raise Rejected("card declined")
        if behaviour == "lost":
            raise TimeoutError("nobody answered, and nothing happened")
        receipt = self._land(effect)
        if behaviour == "landed-unanswered":
            raise TimeoutError("nobody answered, but it happened")
        return receipt

    def _land(self, effect):
        if self.capability is Capability.TRANSACTION:
            awaited = self.colour == "async" and self.tables is POSTGRES
            return self._aland(effect.connection) if awaited else self._insert(effect.connection)
        if self.capability is Capability.KEY and effect.downstream_key in self.seen:
            return self.seen[effect.downstream_key]
        self.effects += 1
        self.seen[effect.downstream_key] = {"receipt": self.effects}
        return {"receipt": self.effects}

    def _insert(self, connection):
        connection.execute(self.tables.create)
        connection.execute("INSERT INTO ledger DEFAULT VALUES")
        return {"receipt": connection.execute("SELECT max(n) FROM ledger").fetchone()[0]}

    async def _aland(self, connection):
        await connection.execute(self.tables.create)
        await connection.execute("INSERT INTO ledger DEFAULT VALUES")
        return {
            "receipt": (await (await connection.execute("SELECT max(n) FROM ledger")).fetchone())[0]
        }

    def count(self):
        """Effects that really happened."""
        if self.capability is not Capability.TRANSACTION:
            return self.effects
        with self.store.transaction() as transaction:
            tables = transaction.connection.execute(self.tables.exists).fetchone()[0]
            return (
                transaction.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]
                if tables
                else 0
            )

    def look_up(self):
        if not self.probe:
            return CannotTell("the enquiry desk is closed")
        return Found({"receipt": 1}) if self.effects else NotFound()

    # -------------------------------------------------------- the agent

    def call(self):
        """One process: a new guard on the same store, one call of the same effect. Returns the
        outcome or the error.
        """
        guard = Guard(self.store)
        downstream = {
            Capability.KEY: Downstream.key(window=3600),
            Capability.PROBE: Downstream.probe(delay=self.delay_s),
            Capability.NONE: Downstream.none(),
            Capability.TRANSACTION: Downstream.transaction(),
        }[self.capability]
        decorate = guard.tool(
            kind=self.kind,
            downstream=downstream,
            lease_s=LEASE_S,
            separate_dispatch=self.separate_dispatch,
            accept_store_loss=True,
        )
        return (
            self._call_sync(guard, decorate)
            if self.colour == "sync"
            else self._call_async(guard, decorate)
        )

    def _call_sync(self, guard, decorate):
        @decorate
        def pay(invoice: str) -> dict:
            return self.send()

        if self.capability is Capability.PROBE:
            pay.probe(lambda invoice: self.look_up())
        with patched(drive=self._drive), guard.step("chat", "pay"):
            try:
                return guard.call(pay, {"invoice": "inv_1"})
            except EffectOnceError as error:
                return error
            except (NotSent, Rejected) as error:
                return error

    def _call_async(self, guard, decorate):
        @decorate
        async def pay(invoice: str) -> dict:
            sent = self.send()
            return await sent if inspect.isawaitable(sent) else sent

        async def look_up(invoice):
            return self.look_up()

        if self.capability is Capability.PROBE:
            pay.probe(look_up)

        async def main():
            with patched(adrive_call=self._adrive), guard.step("chat", "pay"):
                try:
                    return await guard.call(pay, {"invoice": "inv_1"})
                except EffectOnceError as error:
                    return error
                except (NotSent, Rejected) as error:
                    return error

        return asyncio.run(main())

    # -------------------------------------------------------- drivers that die

    def _drive(self, flow, perform):
        op = next(flow)
        while True:
            self._die_if_told(op, "before")
            reply = self.clock.advance(op.seconds) if isinstance(op, Sleep) else perform(op)
            self._die_if_told(op, "after")
            try:
                op = flow.send(reply)
            except StopIteration as done:
                return done.value

    async def _adrive(self, flow, perform):
        op = next(flow)
        while True:
            self._die_if_told(op, "before")
            reply = self.clock.advance(op.seconds) if isinstance(op, Sleep) else await perform(op)
            self._die_if_told(op, "after")
            try:
                op = flow.send(reply)
            except StopIteration as done:
                return done.value

    def _die_if_told(self, op, when):
        if when == "before":
            self.now_at = next(self.ops)
            self.log.append(op)
        if self.die_at == (self.now_at, when):
            raise Crash

    def crashed_call(self):
        """Run a call that may die. True if it died."""
        try:
            self.call()
        except Crash:
            return True
        finally:
            self.die_at = None
        return False


@contextlib.contextmanager
def patched(**names):
    before = {name: getattr(tool_module, name) for name in names}
    for name, value in names.items():
        setattr(tool_module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(tool_module, name, value)


def status(result):
    return result.status if isinstance(result, Outcome) else type(result).__name__
