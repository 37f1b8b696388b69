"""Everything that can happen to one allowance: calls that spend from it, in every order.

Theory of operation. The workers are the real flow (`_core/call.py`, `_core/allowances.py`) and the
store is the reference store with the real table, so nothing here knows the protocol. A worker is
kept as what it has heard: a flow that is told the same does the same, so each (heard, reply) is
computed once. `explore` visits every world that can be reached, breadth first, so the first flaw
that it meets has the shortest way.

  a worker dies before any of its ops; all leases end at any time, whatever their owners do
  a store op is not acknowledged, and was done or was not
  a payment is made, made and not answered, declined, or not sent

Never is more paid than the limit, nor one payment twice. When all have ended or died and the
doubts are settled as the bank says, the account is what was paid, and all that is left can be
spent: nothing leaks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple
from unittest import mock

from effectonce import Allowance, Guard, Retry
from effectonce._core import allowances
from effectonce._core.allowances import Spend
from effectonce._core.call import GuardedCall
from effectonce._core.ops import (
    Applied,
    Flow,
    Invoke,
    Keep,
    Ok,
    Raised,
    ReadCell,
    Sleep,
    Together,
    Unavailable,
)
from effectonce._core.record import State
from effectonce._core.retry_state import Env
from effectonce._tools.registry import tool_of
from effectonce.errors import NotSent, Rejected
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

LEASE_S, YEARS_S = 30.0, 10 * 365 * 86_400
OVERDRAWN, TWICE = "more was paid than the limit", "one payment was made twice"
WRONG, LEAKED = "the account is not what was paid", "what is left cannot be spent"
LOST = Unavailable(ConnectionError("no acknowledgement"))
UNANSWERED = Raised(TimeoutError("no answer"))
DECLINED, UNSENT = Raised(Rejected("no")), Raised(NotSent("no connection"))
LEASES_END = "all leases end"


@dataclass(frozen=True)
class Spending:
    """What is explored, and how much may go wrong."""

    name: str
    amounts: tuple[int, ...]
    callers: tuple[int, ...]  # the payment that each caller makes
    limit: int = 10
    downstream: str = "none"
    deaths: int = 1
    lapses: int = 1
    losses: int = 0
    refusals: int = 1  # of payments: declined, or not sent
    expect: str = ""
    sabotage: Callable[[], AbstractContextManager[Any]] | None = None


class Books(NamedTuple):
    """What the store holds."""

    records: tuple[tuple[str, Any], ...]
    cells: tuple[tuple[str, Any], ...]


class BookStore(MemoryStore):
    """The reference store, which can be put back to any moment."""

    def load(self, books: Books) -> None:
        self._records, self._cells = dict(books.records), dict(books.cells)
        self._revisions = count(1 + max((r for _, (_, r, _) in books.cells), default=0))

    def books(self) -> Books:
        return Books(tuple(sorted(self._records.items())), tuple(sorted(self._cells.items())))


class SpendingWorld(NamedTuple):
    """One moment. A worker is the number of what it has heard; -1: it is gone."""

    books: Books
    workers: tuple[int, ...]
    paid: frozenset[int]
    now: float
    deaths: int
    lapses: int
    losses: int
    refusals: int


class Workers:
    """The flows, by what they have heard."""

    def __init__(self, begin: Callable[[int], Flow[Any]]) -> None:
        self._begin = begin
        self._heard: list[tuple[int, tuple[Any, ...]]] = []
        self.ops: list[Any] = []  # what each asks for now
        self._next: dict[tuple[int, Any], int] = {}

    def first(self, worker: int) -> int:
        return self._known(worker, (None,))

    def told(self, pose: int, reply: Any) -> int:
        """The pose after this reply; -1: its call has ended."""
        place = (pose, reply)
        if place not in self._next:
            worker, heard = self._heard[pose]
            self._next[place] = self._known(worker, (*heard, reply))
        return self._next[place]

    def _known(self, worker: int, heard: tuple[Any, ...]) -> int:
        flow, op = self._begin(worker), None
        try:
            for reply in heard:
                op = flow.send(reply)
                while isinstance(op, Sleep | Keep):
                    op = flow.send(None)
        except StopIteration:
            return -1
        self._heard.append((worker, heard))
        self.ops.append(op)
        return len(self.ops) - 1


class Shop:
    """The moves of one case."""

    def __init__(self, case: Spending) -> None:
        self.case, self._clock = case, FakeClock()
        self._store = BookStore(clock=self._clock)
        self._guard = Guard(self._store, cache=0, reconcile=False)

        @self._guard.tool(
            kind="write",
            downstream=case.downstream,
            retry=Retry(attempts=1),
            wait_s=0,
            lease_s=LEASE_S,
            allowance=Allowance("money", limit=case.limit, per=YEARS_S),
            spends="amount",
        )
        def pay(number: int, amount: int) -> int:
            raise AssertionError("the world pays")

        self._tool = tool_of(pay)
        self._workers = Workers(lambda w: self._flow(f"w{w}", self.number(w), self.amount(w)))
        self._began = self._clock()

    def _flow(self, name: str, number: int, amount: int) -> Flow[Any]:
        with self._guard.step("work", number):
            prepared = self._tool.prepare((number, amount), {})
        tokens = count(1)
        env = Env(now=lambda: 0.0, new_token=lambda: f"{name}.{next(tokens)}", rng=lambda: 0.0)
        call = GuardedCall(prepared.request, self._tool.plan, env)
        self._tool.spending.applied_to(call, prepared)
        return call.flow()

    def number(self, worker: int) -> int:
        return self.case.callers[worker]

    def amount(self, worker: int) -> int:
        return self.case.amounts[self.number(worker)]

    def first(self) -> SpendingWorld:
        case = self.case
        poses = tuple(self._workers.first(worker) for worker in range(len(case.callers)))
        left = (case.deaths, case.lapses, case.losses, case.refusals)
        return SpendingWorld(Books((), ()), poses, frozenset(), self._began, *left)

    # ------------------------------------------------------------ what can happen

    def of(self, world: SpendingWorld) -> Iterator[tuple[str, SpendingWorld]]:
        for worker, pose in enumerate(world.workers):
            if pose < 0:
                continue
            who = f"caller {worker} of payment {self.number(worker)}"
            moves = self._paying if isinstance(self._workers.ops[pose], Invoke) else self._asking
            for what, reply, after in moves(world, worker, pose):
                told = self._workers.told(pose, reply)
                yield f"{who} {what}", after._replace(workers=_put(after.workers, worker, told))
            if world.deaths:
                gone = _put(world.workers, worker, -1)
                yield f"{who} dies", world._replace(workers=gone, deaths=world.deaths - 1)
        if world.lapses and max(world.workers) >= 0:
            yield LEASES_END, world._replace(now=world.now + LEASE_S + 1, lapses=world.lapses - 1)

    def _asking(
        self, world: SpendingWorld, _worker: int, pose: int
    ) -> Iterator[tuple[str, Any, SpendingWorld]]:
        op = self._workers.ops[pose]
        self._open(world)
        reply = self._store.apply(op)
        after = world._replace(books=self._store.books())
        yield f"does {type(op).__name__}", reply, after
        if world.losses:
            yield f"hears nothing of its {type(op).__name__}", LOST, _loss(after)
            yield f"could not do {type(op).__name__}", LOST, _loss(world)

    def _paying(
        self, world: SpendingWorld, worker: int, _pose: int
    ) -> Iterator[tuple[str, Any, SpendingWorld]]:
        number = self.number(worker)
        after = world._replace(paid=world.paid | {number})
        known = self.case.downstream == "key" and number in world.paid
        if number in world.paid and not known:
            after = after._replace(paid=after.paid | {-1})  # twice
        yield "pays", Ok(number), after
        yield "pays and gets no answer", UNANSWERED, after
        if world.refusals:
            refused = world._replace(refusals=world.refusals - 1)
            yield "sends nothing", UNSENT, refused
            if not known:
                yield "is declined", DECLINED, refused

    def _open(self, world: SpendingWorld) -> None:
        self._clock.advance(world.now - self._clock())
        self._store.load(world.books)

    # ------------------------------------------------------------ safety

    def flaw(self, world: SpendingWorld) -> str:
        """What must never be, in any world."""
        if -1 in world.paid:
            return TWICE
        spent = sum(self.case.amounts[number] for number in world.paid)
        return OVERDRAWN if spent > self.case.limit else ""

    def flaw_at_the_end(self, world: SpendingWorld) -> str:
        """All have ended or died. Doubts are settled as the bank says, each payment is asked for
        once more, and then what is left, and one more.
        """
        self._open(world)
        self._clock.advance(LEASE_S + 1)
        paid = {number: self.case.amounts[number] for number in world.paid}
        self._guard.sweep()
        for record in self._guard.in_doubt():
            number = self._tool.signature.decode(record.request.arguments)["number"]
            if number in paid:
                self._guard.confirm(record.request.key, result=number, by="ada", reason="paid")
            else:
                self._guard.refute(record.request.key, by="ada", reason="not paid")
        for number, amount in enumerate(self.case.amounts):
            self._alone(number, amount, paid)
        rest, limit = len(self.case.amounts), self.case.limit
        self._alone(rest, limit - sum(paid.values()), paid)
        self._alone(rest + 1, 1, paid)
        if rest not in paid:
            return LEAKED
        if sum(paid.values()) > limit:
            return OVERDRAWN
        (account,) = self._guard.allowances.list()
        full = (account.spent, account.reserved, account.in_doubt) == (limit, 0, 0)
        return "" if full else WRONG

    def _alone(self, number: int, amount: int, paid: dict[int, int]) -> None:
        """One call that nothing goes wrong for."""
        flow = self._flow(f"alone{number}", number, amount)
        try:
            op = flow.send(None)
            while True:
                if isinstance(op, Invoke):
                    paid[number] = amount
                    op = flow.send(Ok(number))
                else:
                    op = flow.send(None if isinstance(op, Sleep | Keep) else self._store.apply(op))
        except StopIteration:
            return


def _put(workers: tuple[int, ...], worker: int, pose: int) -> tuple[int, ...]:
    return (*workers[:worker], pose, *workers[worker + 1 :])


def _loss(world: SpendingWorld) -> SpendingWorld:
    return world._replace(losses=world.losses - 1)


# ---------------------------------------------------------------- exploring


@dataclass
class Explored:
    """What exploring a case showed."""

    case: Spending
    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    flaw: str = ""
    trace: tuple[str, ...] = ()

    @property
    def as_expected(self) -> bool:
        return self.flaw == self.case.expect


def explore(case: Spending) -> Explored:
    """Visit every world of *case*; stop at the first flaw."""
    report, started = Explored(case), time.perf_counter()
    with ExitStack() as sabotaged:
        if case.sabotage is not None:
            sabotaged.enter_context(case.sabotage())
        _visit(Shop(case), report)
    report.seconds = time.perf_counter() - started
    return report


def _visit(shop: Shop, report: Explored) -> None:
    first = shop.first()
    came: dict[SpendingWorld, tuple[str, SpendingWorld | None]] = {first: ("", None)}
    queue = deque([first])
    while queue and not report.flaw:
        world = queue.popleft()
        for what, after in shop.of(world):
            report.transitions += 1
            if after in came:
                continue
            came[after] = (what, world)
            report.flaw = shop.flaw(after)
            if not report.flaw and max(after.workers) < 0:
                report.flaw = shop.flaw_at_the_end(after)
            if report.flaw:
                report.trace = _way(came, after)
                break
            queue.append(after)
    report.states = len(came)


def _way(
    came: dict[SpendingWorld, tuple[str, SpendingWorld | None]], world: SpendingWorld
) -> tuple[str, ...]:
    """What happened on the shortest way here."""
    steps: list[str] = []
    at: SpendingWorld | None = world
    while at is not None:
        what, at = came[at]
        steps.append(what)
    return tuple(reversed(steps[:-1]))


# ---------------------------------------------------------------- cases


def _whoever_asks(spend: Spend, owner: Any, env: Any, *, anyway: bool) -> Flow[Any]:
    flow, reply = _HOLD(spend, owner, env, anyway=anyway), None
    try:
        while True:
            op = flow.send(reply)
            reply = yield op
            if isinstance(op, Together):
                reply = (reply[0], Applied(owner.epoch))
    except StopIteration as done:
        return done.value


def _as_if_unsent(record: Any, _now: float, _env: Any) -> Flow[str]:
    return "spent" if record is not None and record.state is State.COMPLETED else "nothing"
    yield


def _without_taking(record: Any, now: float, env: Any) -> Flow[str]:
    if record is not None and record.state is State.CLAIMED and record.sends == 0:
        return "nothing"
    return (yield from _BECAME(record, now, env))


def _whose_ever(spend: Spend, key: str, _token: str, *, spent: bool) -> Flow[None]:
    cell: Any = yield ReadCell(spend.cell)
    account = allowances.account_of(cell, spend)
    if key in account.held:
        after = account.paid(key) if spent else account.given_back(key)
        yield allowances._written(spend, cell, after)  # noqa: SLF001


_HOLD, _BECAME = allowances.hold, allowances._became  # noqa: SLF001
_broken = partial(partial, mock.patch.object)

RACE = Spending("LIMIT  two payments that do not both fit", (6, 5), (0, 1))
HEIR = Spending("LIMIT  two callers of one payment", (4,), (0, 0))
CROWD = Spending("LIMIT  two callers of one payment, and another", (6, 5), (0, 0, 1))
_LOST, _KEYED = "lost acknowledgements", "by key"
GOOD = (
    replace(RACE, lapses=2),
    replace(RACE, name=f"{RACE.name}, {_LOST}", deaths=0, losses=1),
    replace(HEIR, deaths=2, lapses=2),
    replace(HEIR, name=f"{HEIR.name}, {_LOST}", losses=1),
    replace(HEIR, name=f"{HEIR.name}, {_KEYED}", downstream="key", lapses=2),
    replace(CROWD, deaths=0, refusals=0),
)
QUICK = (RACE, HEIR)
BAD = (
    replace(
        HEIR,
        name="X15 an amount is held by one that may not be the owner any more",
        sabotage=_broken(allowances, "hold", _whoever_asks),
        expect=LEAKED,
    ),
    replace(
        RACE,
        name="X16 what was sent and has no outcome is given back",
        sabotage=_broken(allowances, "_became", _as_if_unsent),
        expect=OVERDRAWN,
    ),
    replace(
        RACE,
        name="X17 what was not sent is given back, and its owner not stopped",
        sabotage=_broken(allowances, "_became", _without_taking),
        expect=OVERDRAWN,
    ),
    replace(
        HEIR,
        name="X18 an amount is given back by one that does not hold it",
        sabotage=_broken(allowances, "settle", _whose_ever),
        expect=OVERDRAWN,
    ),
)
