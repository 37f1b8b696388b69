"""64 callers at once, each of whom is to get an answer of its own: what each asks, and what it
must be told.
"""

import asyncio

from effectonce import Guard, StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import Scene, State
from effectonce._core.transitions import transition
from tests.stores.helpers import claim, complete

CALLERS = 64
HELD = ops.Held(1, 1, dispatched=True)


def born(op):
    """The record of a first claim, born at time zero."""
    return transition(None, op, Scene(0.0)).after


async def at_once(store, asked):
    """Apply all of these while the only connection is busy with a question that was asked
    before: they wait, and go together.
    """
    return (
        await asyncio.gather(
            *(store.aapply(op) for op in (ops.Find("nobody's"), *asked)), return_exceptions=True
        )
    )[1:]


def claims(count=CALLERS, begin=0, **changes):
    """All have one fingerprint: nothing but its key keeps one from another's outcome."""
    return [
        claim(
            f"k{n}", f"t{n}", latch=f"step {n}", scope=f"chat {n}", fingerprint="alike", **changes
        )
        for n in range(begin, begin + count)
    ]


def outcome_of(key):
    return f"outcome of {key}".encode()


def completions(count=CALLERS):
    return [complete(f"k{n}", f"t{n}", outcome=outcome_of(f"k{n}")) for n in range(count)]


def is_recorded(outcome):
    return lambda reply: (
        isinstance(reply, ops.Recorded)
        and (reply.state, reply.outcome) == (State.COMPLETED, outcome)
    )


def is_a(kind):
    return lambda reply: isinstance(reply, kind)


def is_just(value):
    return lambda reply: reply == value


async def prepare(store):
    """Records that claims and completions meet."""
    for key in ("done", "also done", "done for another"):
        await store.aapply(claim(key))
        await store.aapply(complete(key, outcome=outcome_of(key)))
    for key in ("held", "finishing", "wrong token", "wrong epoch", "doubtful"):
        await store.aapply(claim(key, latch=f"step of {key}"))
    await store.aapply(ops.Doubt("doubtful", "t", 1, "nobody answered"))


CLAIMS = [  # what is asked, and how the reply is recognised
    (claim("done", "other"), is_recorded(b"outcome of done")),
    (claim("also done", "other"), is_recorded(b"outcome of also done")),
    (claim("done for another", "other", fingerprint="another"), is_a(ops.Mismatch)),
    # one batch asks for this record twice
    (claim("done", "another", fingerprint="another"), is_a(ops.Mismatch)),
    (claim("held", "other"), is_a(ops.Busy)),
    (claim("held", "t"), is_just(HELD)),  # the very same write again
    (claim("doubtful", "other"), is_a(ops.Doubtful)),
    (claim("beside held", latch="step of held"), is_a(ops.Latched)),
    (claim("beside doubtful", latch="step of doubtful"), is_a(ops.Latched)),
]
RIVALS = [  # of each of these one is held, and the others are told so
    ([claim("key of two", f"t{n}") for n in range(2)], ops.Busy),
    ([claim(f"latch of two {n}", latch="step of two") for n in range(2)], ops.Latched),
]
COMPLETIONS = [
    (complete("finishing"), is_just(ops.Applied(1))),
    (complete("wrong token", "other"), is_just(ops.Refused(State.DISPATCHED))),
    (complete("wrong epoch", epoch=2), is_just(ops.Refused(State.DISPATCHED))),
    (complete("nobody's record"), is_just(ops.Refused(None))),
    # the very same write again
    (complete("done", outcome=b"outcome of done"), is_just(ops.Applied(1))),
    (complete("also done", outcome=b"another outcome"), is_just(ops.Refused(State.COMPLETED))),
    (complete("doubtful"), is_just(ops.Applied(3))),  # the only send that there ever was
]


async def everybody_gets_an_answer_of_its_own(store):
    """Claims and completions that go well, beside those that are refused, in conflict, latched,
    or replayed.
    """
    await prepare(store)
    rivals = [op for some, _ in RIVALS for op in some]
    well = claims(CALLERS - len(CLAIMS) - len(rivals))
    replies = await at_once(store, [*(op for op, _ in CLAIMS), *rivals, *well])
    for op, expected in CLAIMS:
        reply = replies.pop(0)
        assert expected(reply), (op, reply)
    for some, loser in RIVALS:
        kinds = {type(replies.pop(0)) for _ in some}
        assert kinds == {ops.Held, loser}, some
    assert replies == [HELD] * len(well)
    for op in well:
        assert (await store.aapply(ops.Find(op.key))).request == op.request

    await store.aapply(ops.Doubt("k0", "t0", 1, "?"))  # one of the batch below is in doubt by then
    replies = await at_once(store, [*(op for op, _ in COMPLETIONS), *completions(len(well))])
    for op, expected in COMPLETIONS:
        reply = replies.pop(0)
        assert expected(reply), (op, reply)
    assert replies == [ops.Applied(3), *[ops.Applied(1)] * (len(well) - 1)]
    record = await store.aapply(ops.Find("k1"))
    assert (record.state, record.outcome, record.dedup_until - record.decided_at) == (
        State.COMPLETED,
        b"outcome of k1",
        record.request.terms.window_s,
    )
    assert record.first_dispatch_at == record.created_at < record.decided_at

    for again in (True, False):
        asked = claims(len(well), again=again)
        replies = await at_once(
            store, [claim("done", "late", fingerprint="another", again=again), *asked]
        )
        assert isinstance(replies.pop(0), ops.Mismatch)
        assert [reply.outcome for reply in replies] == [outcome_of(op.key) for op in asked]


async def a_lost_answer_is_asked_for_again(store, lose):
    """*lose* makes the next write disappear, before it is done or after. Every caller is told
    so, and finds out by asking again.
    """
    await store.aapply(ops.Tally())
    for asked, expected in ((claims(), HELD), (completions(), ops.Applied(1))):
        lose()
        replies = await at_once(store, asked)
        lost = [reply for reply in replies if isinstance(reply, StoreUnavailable)]
        assert lost, "nothing was lost"
        assert [reply for reply in replies if reply != expected] == lost
        assert await at_once(store, asked) == [expected] * CALLERS
    tally = await store.aapply(ops.Tally())
    assert tally == {State.COMPLETED: CALLERS}
    assert {(await store.aapply(ops.Find(f"k{n}"))).sends for n in range(CALLERS)} == {1}


async def one_slow_tool_holds_up_nobody(store):
    """The others are answered while one caller is between its two writes."""
    guard, answered = Guard(store, cache=0), asyncio.Event()

    @guard.tool(kind="write")
    async def pay(invoice: str) -> str:
        if invoice == "slow":
            await answered.wait()
        return invoice

    async def call(invoice):
        async with guard.step("chat", f"pay {invoice}"):
            return await pay(invoice)

    slow = asyncio.create_task(call("slow"))
    invoices = [f"inv {n}" for n in range(CALLERS - 1)]
    assert await asyncio.gather(*map(call, invoices)) == invoices
    assert not slow.done()
    answered.set()
    assert await slow == "slow"
