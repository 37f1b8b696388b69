"""What can happen next: the environment, and the workers that the environment answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from effectonce._core.backoff import Jitter
from effectonce._core.endings import Fresh, NothingSent, Rejection, Replay
from effectonce._core.guarantees import Capability
from effectonce._core.guards import resendable
from effectonce._core.ops import (
    Approve,
    Ask,
    Busy,
    Claim,
    Complete,
    Confirm,
    Doubt,
    Fail,
    Found,
    Held,
    Interrupted,
    Invoke,
    NotFound,
    NotStarted,
    Ok,
    Raised,
    Rearm,
    Refused,
    Refute,
    Sleep,
    Sweep,
    Transact,
    Unavailable,
    Unconfirmed,
)
from effectonce._core.record import Request, State
from effectonce._core.retry_state import Plan, Retrying
from flows import DEADLINE_S, IDLE, Answer, Flows, Move
from ledger import ABSENT, LEASE_S, SCENE, Ledger
from world import (
    CANCELLED,
    FALSE_NOTHING,
    FIRST_RESULT,
    NOT_SENT,
    NOTHING_REMEMBERED,
    REFUSAL_REMEMBERED,
    REFUSED,
    REJECTED,
    SENT,
    SILENT,
    THROTTLED,
    TIMED_OUT,
    TOLD_FAILED,
    TOLD_FIRST,
    TOLD_OTHER,
    TOLD_RECORDED,
    TRY_LATER,
    UNREACHABLE,
    VERDICTS,
    Case,
    Worker,
    World,
)

Step = tuple[str, World]  # what happened, and how the world is then


def _encode(result: int) -> bytes:
    return b"result %d" % result


def _told(result: int) -> int:
    return TOLD_FIRST if result == 1 else TOLD_OTHER


class Moves:
    """What can happen next in each world of one case."""

    def __init__(self, case: Case) -> None:
        plan = Plan(
            lease_s=LEASE_S,
            wait_s=DEADLINE_S,
            retrying=Retrying(
                attempts=case.attempts,
                throttled_attempts=case.attempts,
                deadline_s=DEADLINE_S,
                base_s=0.0,
                throttled_base_s=0.0,
                cap_s=0.0,
                jitter=Jitter.FULL,
                classify=VERDICTS.__getitem__,
            ),
            separate_dispatch=case.separate_dispatch,
            has_probe=case.has_probe,
            encode=_encode,
            encode_partial=lambda _: None,
        )
        request = Request("key", "fingerprint", case.terms, "tenant")
        self.case = case
        self.keyed = case.terms.downstream is Capability.KEY
        self.ledger = Ledger(case.rules)
        self.flows = Flows(case.flow, request, plan, sleeps_show=case.cancels > 0)
        self._other = Request("key", "other fingerprint", case.terms, "tenant")
        self._sweep = self.ledger.op_number(Sweep())

    def first(self) -> World:
        c = self.case
        return World(
            ABSENT, (Worker(),) * c.workers, c.owners, c.cuts, c.cancels, c.closings, c.losses
        )

    def of(self, world: World) -> Iterator[Step]:
        """Everything that can happen next. Workers have no names, so worlds that differ in their
        order only are the same.
        """
        for label, after in self._all(world):
            yield label, after._replace(workers=tuple(sorted(after.workers)))

    def _all(self, world: World) -> Iterator[Step]:
        yield from self._time(world)
        yield from self._network(world)
        yield from self._misfortunes(world)
        if self.case.person:
            yield from self._person(world)
        for worker in set(world.workers):
            i = world.workers.index(worker)
            if worker.pose == IDLE:
                yield from self._write(self.begin(world, i), i)
            else:
                yield from self._crash(world, i, worker)
                yield from self.undisturbed(world, i)

    def begin(self, world: World, i: int = 0) -> World:
        """Worker *i* begins a call: it is about to claim."""
        return _put(world, i, Worker(self.flows.begin(self._fresh(world))))

    # ------------------------------------------------------------ environment

    def _time(self, world: World) -> Iterator[Step]:
        ledger, number = self.ledger, world.record
        changes = [
            ("the lease ends", ledger.lapse(number)),
            ("the sweeper comes by", ledger.apply(number, self._sweep).record),
        ]
        if world.closings:
            closed = ledger.close(number)
            if closed != number:
                yield (
                    "the key's window ends",
                    world._replace(record=closed, closings=world.closings - 1),
                )
        if self.case.ages:
            changes.append(("the window for sending again ends", ledger.age(number)))
        if self.case.terms.delay_s is not None and not self._in_the_air(world):
            changes.append(("the delay bound has passed", ledger.calm(number)))
        yield from (
            (label, world._replace(record=after)) for label, after in changes if after != number
        )

    def _in_the_air(self, world: World) -> bool:
        """May an earlier send still land? Bounded delay means: not once its bound has passed."""
        return world.requests > 0 or any(
            isinstance(self.flows.ops[w.pose], Invoke) and w.net in (SILENT, SENT)
            for w in world.workers
        )

    def _network(self, world: World) -> Iterator[Step]:
        if world.requests:
            fewer = world._replace(requests=world.requests - 1)
            yield "a late request is lost", fewer
            yield from (("a late request lands", landed) for landed, _ in self._deliver(fewer))
        for i, op in enumerate(world.writes):
            fewer = world._replace(writes=world.writes[:i] + world.writes[i + 1 :])
            yield f"a late write lands: {_name(self.ledger.ops[op])}", self._land(fewer, op)

    def _deliver(self, world: World) -> Iterator[tuple[World, int]]:
        """The downstream handles one request: the world after it, and its answer."""
        if world.memory == REFUSAL_REMEMBERED:
            yield world, REFUSED
        elif world.memory != NOTHING_REMEMBERED:
            yield world, FIRST_RESULT + world.memory - 1
        else:
            result = world.effects + 1
            memory = result if self.keyed else NOTHING_REMEMBERED
            yield world._replace(effects=result, memory=memory), FIRST_RESULT + result - 1
            if world.effects == 0:
                memory = (
                    REFUSAL_REMEMBERED if self.case.terms.stores_rejections else NOTHING_REMEMBERED
                )
                yield world._replace(memory=memory), REFUSED
        if self.case.throttles:
            yield world, THROTTLED

    def _land(self, world: World, op: int) -> World:
        """A store write arrives and nobody hears what came of it."""
        transact = self.ledger.ops[op]
        if isinstance(transact, Transact):
            return self._commit(world, transact)[0]
        return self._written(world, op)

    def _written(self, world: World, op: int) -> World:
        written = self.ledger.apply(world.record, op)
        return world._replace(record=written.record, flaw=world.flaw or written.flaw)

    def _misfortunes(self, world: World) -> Iterator[Step]:
        if world.losses and world.record != ABSENT:
            yield (
                "THE STORE FORGETS the record",
                world._replace(record=ABSENT, losses=world.losses - 1),
            )
        if world.memory > NOTHING_REMEMBERED and (
            self.case.forgets_early or self._key_ran_out(world)
        ):
            yield "the downstream forgets our key", world._replace(memory=NOTHING_REMEMBERED)

    def _key_ran_out(self, world: World) -> bool:
        record = self.ledger.records[world.record]
        too_old = record is not None and record.sends > 0 and not resendable(record, None, SCENE)
        return too_old and not self._in_the_air(world)

    def _person(self, world: World) -> Iterator[Step]:
        """Somebody looks at the downstream itself, and decides what is true; or discards what
        was never sent, and looks at nothing. Where an approval is needed, it is given, or another
        caller asks with other arguments.
        """
        decisions: list[Any] = [Rearm("key", "ann", "asked the bank")]
        record = self.ledger.records[world.record]
        never_sent = record is not None and record.state is State.CLAIMED and record.sends == 0
        if self.case.terms.approval:
            decisions += [
                Approve("key", "fingerprint", 100.0, "ann", "it may be sent"),
                Claim(self._other, "other", LEASE_S, dispatch=False),
            ]
        if world.effects > 0:
            decisions.append(Confirm("key", _encode(1), "ann", "asked the bank"))
        if never_sent or (world.effects == 0 and not self._in_the_air(world)):
            decisions.append(Refute("key", b"no", "ann", "asked the bank"))
        for op in decisions:
            after = self._written(world, self.ledger.op_number(op))
            if after != world:
                yield f"a person: {_name(op)}", after

    # ------------------------------------------------------------ workers

    def undisturbed(self, world: World, i: int = 0) -> Iterator[Step]:
        """What worker *i* may do or hear next, as long as it lives; the best first."""
        worker = world.workers[i]
        match self.flows.ops[worker.pose]:
            case Invoke() | Transact() | Ask() if self.flows.cancelled[worker.pose]:
                yield self._hear(
                    world, i, NotStarted(CANCELLED), "was cancelled and does not begin"
                )
            case Sleep() if self.flows.cancelled[worker.pose]:
                yield self._hear(
                    world, i, Interrupted(CANCELLED), "was cancelled and does not wait"
                )
            case Invoke():
                yield from self._invoke(world, i, worker)
            case Transact() as op:
                yield from self._transact(world, i, op)
            case Ask():
                found = Ok(Found(1)) if world.effects else Ok(NotFound())
                yield self._hear(
                    world, i, found, "probe finds it" if world.effects else "probe finds nothing"
                )
            case Sleep():
                yield self._hear(world, i, None, "waits")
                if world.cancels:
                    yield self._hear(
                        _cancel(world), i, Interrupted(CANCELLED), "is cancelled while it waits"
                    )
            case _:
                yield from self._write(world, i)

    def _crash(self, world: World, i: int, worker: Worker) -> Iterator[Step]:
        who = self._who(worker)
        after = _put(world, i, Worker())
        if worker.net == SENT:
            after = after._replace(requests=world.requests + 1)
        yield f"{who} dies", after
        op = self.flows.ops[worker.pose]
        if world.cuts and not isinstance(op, Invoke | Ask | Sleep):
            yield f"{who} dies while it asks for {_name(op)}", self._cut(after, op)

    def _write(self, world: World, i: int) -> Iterator[Step]:
        op = self.flows.ops[world.workers[i].pose]
        written = self.ledger.apply(world.record, self.ledger.op_number(op))
        if isinstance(op, Claim) and isinstance(written.reply, Busy):
            return  # it polls: the same claim again, until something else has happened
        if written.changed and isinstance(written.reply, Held):
            if world.owners == 0:
                return
            world = world._replace(owners=world.owners - 1)
        after = world._replace(record=written.record, flaw=world.flaw or written.flaw)
        yield self._hear(after, i, written.reply, f"{_name(op)} -> {_name(written.reply)}")
        if world.cuts:
            cut, no_answer = self._cut(world, op), Unavailable(UNREACHABLE)
            yield self._hear(cut, i, no_answer, f"{_name(op)} -> no answer")
            if isinstance(op, Complete | Fail | Doubt):
                yield self._hear(
                    cut,
                    i,
                    no_answer,
                    f"{_name(op)} -> no answer, and its deadline passes",
                    too_late=True,
                )

    def _cut(self, world: World, op: Any) -> World:
        """A store write goes unanswered. It lands now, later, or never."""
        return world._replace(
            cuts=world.cuts - 1, writes=tuple(sorted((*world.writes, self.ledger.op_number(op))))
        )

    def _invoke(self, world: World, i: int, worker: Worker) -> Iterator[Step]:
        who = self._who(worker)
        if worker.net == SILENT:
            yield f"{who} sends its request", _put(world, i, worker._replace(net=SENT))
            yield self._hear(world, i, Raised(NOT_SENT), "could not send")
            if world.cancels:
                yield self._hear(
                    _cancel(world), i, NotStarted(CANCELLED), "is cancelled before it sends"
                )
            return
        given_up = world
        if worker.net == SENT:
            given_up = world._replace(requests=world.requests + 1)
            for landed, net in self._deliver(world):
                yield (
                    f"the request of {who} lands: {_answer_name(net)}",
                    _put(landed, i, worker._replace(net=net)),
                )
        else:
            yield self._hear(world, i, _answer(worker.net), f"hears {_answer_name(worker.net)}")
        given_up = _put(given_up, i, worker._replace(risky=True))
        yield self._hear(given_up, i, Raised(TIMED_OUT), "times out")
        if world.cancels:
            yield self._hear(
                _cancel(given_up),
                i,
                Raised(CANCELLED),
                "is cancelled while it waits for the answer",
            )

    def _transact(self, world: World, i: int, op: Transact) -> Iterator[Step]:
        committed, done = self._commit(world, op)
        if done:
            yield self._hear(committed, i, Ok(committed.effects), "commits effect and outcome")
        else:
            yield self._hear(world, i, Refused(None), "rolls back: not its record any more")
        yield self._hear(world, i, Raised(REJECTED), "rolls back: refused for good")
        yield self._hear(world, i, Raised(TIMED_OUT), "rolls back: some error")
        if world.cuts:
            yield self._hear(
                self._cut(world, op),
                i,
                Unconfirmed(world.effects + 1, UNREACHABLE),
                "COMMIT -> no answer",
            )
        if world.cancels:
            yield self._hear(
                _cancel(world), i, NotStarted(CANCELLED), "is cancelled and rolls back"
            )

    def _commit(self, world: World, op: Transact) -> tuple[World, bool]:
        """The effect and its outcome in one transaction, as the drivers do it: both or neither."""
        result = world.effects + 1
        complete = self.ledger.op_number(Complete(op.key, op.token, op.epoch, _encode(result)))
        if not self.ledger.apply(world.record, complete).changed:
            return world, False
        return self._written(world, complete)._replace(effects=result), True

    def _hear(
        self, world: World, i: int, reply: Any, label: str, *, too_late: bool = False
    ) -> Step:
        """Worker *i* gets its answer and goes on to the next thing it asks for."""
        worker = world.workers[i]
        move = self.flows.hear(worker.pose, Answer(reply, self._fresh(world), too_late))
        after = _put(world, i, Worker(move.pose, SILENT, worker.risky and move.pose != IDLE))
        if move.ending is not None and not move.cancelled:
            after = self._tell(after, move, worker)
            label = f"{label}; its caller is told {_name(move.ending)}"
        return f"{self._who(worker)} {label}", after

    def _tell(self, world: World, move: Move, worker: Worker) -> World:
        match move.ending:
            case Fresh(value, recorded=recorded):
                return world._replace(
                    told=world.told | _told(value) | (TOLD_RECORDED if recorded else 0)
                )
            case Replay(recorded) if recorded.state is State.COMPLETED:
                first = recorded.outcome == _encode(1)
                return world._replace(
                    told=world.told | (TOLD_FIRST if first else TOLD_OTHER) | TOLD_RECORDED
                )
            case Rejection() | Replay():
                return world._replace(told=world.told | TOLD_FAILED)
            case NothingSent() if worker.risky and world.effects and not self.case.losses:
                return world._replace(flaw=world.flaw or FALSE_NOTHING)
            case _:
                # in flight, in doubt, expired, gave up, store unavailable, lease lost: that says
                # nothing about the effect
                return world

    # ------------------------------------------------------------ names

    def _who(self, worker: Worker) -> str:
        """A worker is known by its token: no two calls share one."""
        return self.flows.names[worker.pose]

    def _fresh(self, world: World) -> str:
        """A token that nobody uses. One that is in use nowhere is as good as one that never was."""
        used = set().union(*(self.flows.tokens[w.pose] for w in world.workers))
        used.update(getattr(self.ledger.ops[op], "token", "") for op in world.writes)
        record = self.ledger.records[world.record]
        if record is not None:
            used.update((record.token, record.dtoken))
        number = 1
        while f"t{number}" in used:
            number += 1
        return f"t{number}"


def _put(world: World, i: int, worker: Worker) -> World:
    workers = list(world.workers)
    workers[i] = worker
    return world._replace(workers=tuple(workers))


def _cancel(world: World) -> World:
    return world._replace(cancels=world.cancels - 1)


def _answer(net: int) -> Ok | Raised:
    refusals = {REFUSED: Raised(REJECTED), THROTTLED: Raised(TRY_LATER)}
    return refusals.get(net) or Ok(net - FIRST_RESULT + 1)


def _answer_name(net: int) -> str:
    return {REFUSED: "refused", THROTTLED: "not now"}.get(net, f"result {net - FIRST_RESULT + 1}")


def _name(value: Any) -> str:
    return type(value).__name__
