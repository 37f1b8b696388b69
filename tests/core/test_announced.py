"""A tool with `separate_dispatch` whose record says *dispatched* from the entry of `sending()`
on, and not before.
"""

import asyncio
import contextlib
import signal
import threading
from functools import partial

import httpx
import pytest
from msgspec.structs import replace

from effectonce import (
    ContractViolation,
    EffectOnceError,
    Guard,
    InDoubt,
    NotSent,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce.effect import OVER
from effectonce.http.client import protect
from tests.core.helpers import awaited, done, in_a_loop, in_colour
from tests.flaky import FlakyStore

ONCE = Retry(attempts=1, base_s=0, cap_s=0)
TWICE = Retry(attempts=2, base_s=0, cap_s=0)


class Pays:
    """A tool that does something *before* `sending()`, and pays inside of it."""

    def __init__(
        self,
        colour,
        *,
        before=lambda: None,
        inside=lambda: None,
        skips=False,
        store=None,
        **contract,
    ):
        self.store, self.paid, self.states = store or FlakyStore(), 0, []
        self.guard = Guard(self.store, cache=0)
        declared = {
            "kind": "write",
            "separate_dispatch": True,
            "retry": ONCE,
            "wait_s": 0,
        } | contract

        def pay(order: int) -> str:
            self.look()
            before()
            if skips:
                return "nothing to pay"
            with current_effect().sending():
                self.look()
                inside()
                self.paid += 1
                return "paid"

        async def apay(order: int) -> str:
            self.look()
            await awaited(before())
            if skips:
                return "nothing to pay"
            async with current_effect().sending():
                self.look()
                inside()
                self.paid += 1
                return "paid"

        self.tool = self.guard.tool(name="pay", **declared)(pay if colour == "sync" else apay)

    def look(self):
        self.states.append(str(self.guard.find(current_effect().ref.key).state))

    def call(self):
        with self.guard.step("chat", "pay"):
            return done(self.tool(1))

    @property
    def writes(self):
        return writes(self.store)


def writes(store):
    """The names of the ops that write, without what is said about attempts."""
    return [name for name in store.log if name not in ("Find", "Attest")]


def client_of(colour, answer):
    """A protected client of this colour; *answer* makes the response of a request."""
    made = httpx.AsyncClient if colour == "async" else httpx.Client
    return protect(made(transport=httpx.MockTransport(answer)), retry=ONCE)


def test_it_is_claimed_before_and_dispatched_inside(colour):
    pays = Pays(colour)

    assert [pays.call(), pays.call()] == ["paid", "paid"]
    assert (pays.states, pays.paid) == (["claimed", "dispatched"], 1)


def test_without_the_declaration_there_is_no_write_more(colour):
    declared, not_declared = Pays(colour), Pays(colour, separate_dispatch=False)
    declared.call(), not_declared.call()

    assert declared.writes == ["Claim", "Dispatch", "Complete"]
    assert not_declared.writes == ["Claim", "Complete"]
    assert not_declared.states == ["dispatched", "dispatched"]


def test_an_error_before_it_leaves_a_claim_that_was_let_go(colour):
    errors = [ValueError("bad sku")]

    def before():
        if errors:
            raise errors.pop()

    pays = Pays(colour, before=before)

    with pytest.raises(ValueError, match="bad sku"):
        pays.call()
    assert pays.writes == ["Claim", "Renew"]
    assert pays.call() == "paid"


def test_an_error_inside_it_is_a_doubt(colour):
    def inside():
        raise ValueError("somewhere on the way")

    pays = Pays(colour, inside=inside)

    for _ in range(2):
        with pytest.raises(InDoubt):
            pays.call()
    assert pays.writes[:3] == ["Claim", "Dispatch", "Doubt"]


def test_an_attempt_that_had_no_effect_is_dispatched_anew(colour):
    errors = [NotSent("refused")]

    def inside():
        if errors:
            raise errors.pop()

    pays = Pays(colour, inside=inside, retry=Retry(attempts=2, base_s=0, cap_s=0))

    assert pays.call() == "paid"
    assert pays.writes == ["Claim", "Dispatch", "Unsend", "Dispatch", "Complete"]
    assert pays.states == ["claimed", "dispatched"] * 2


def test_a_tool_that_returns_without_it_is_done(colour):
    pays = Pays(colour, skips=True)

    assert [pays.call(), pays.call()] == ["nothing to pay", "nothing to pay"]
    assert pays.states == ["claimed"]


def test_the_end_of_such_a_tool_is_written_when_the_store_is_back(colour):
    pays = Pays(colour, skips=True)
    pays.store.fail(ops.Dispatch, times=2)

    assert pays.call() == "nothing to pay"
    assert pays.guard.counts() == {"completed": 1}


def test_nothing_is_sent_if_the_store_cannot_be_told(colour):
    pays = Pays(colour)
    pays.store.fail(ops.Dispatch, times=9)

    with pytest.raises(StoreUnavailable):
        pays.call()
    assert (pays.paid, pays.states) == (0, ["claimed"])


def test_nothing_is_sent_by_an_owner_that_was_overtaken(colour):
    """Another caller took the claim over while the tool prepared what it sends."""
    pays = Pays(colour, before=lambda: taken_over())

    def taken_over():
        key = current_effect().ref.key
        record = pays.guard.find(key)
        pays.store.apply(ops.Renew(key, record.token, record.epoch, 0))
        pays.store.apply(ops.Claim(record.request, "another caller", 30, dispatch=True))

    with pytest.raises(EffectOnceError):
        pays.call()
    assert pays.paid == 0


def test_nothing_is_sent_beside_another_call_of_the_same_step(colour):
    pays = Pays(colour, before=lambda: sent_by_another_call())

    def sent_by_another_call():
        request = replace(pays.guard.find(current_effect().ref.key).request, key="another call")
        assert request.latch
        pays.store.apply(ops.Claim(request, "its caller", 30, dispatch=True))

    with pytest.raises(EffectOnceError):
        pays.call()
    assert pays.paid == 0


@in_a_loop
async def test_the_loop_of_an_async_tool_that_does_not_wait_for_its_record_does():
    guard, states = Guard("memory://", cache=0), []

    @guard.tool(kind="write", separate_dispatch=True, retry=ONCE)
    async def pay(order: int) -> str:
        with current_effect().sending():
            states.append(guard.find(current_effect().ref.key).state)
        return "paid"

    with guard.step("chat", "pay"):
        assert await pay(1) == "paid"
    assert (states, guard.counts()) == (["dispatched"], {"completed": 1})


class PaysThrough:
    """A tool that sends through a protected client, and declares so."""

    def __init__(self, colour, *, store=None, **contract):
        self.store, self.states = store or FlakyStore(), []
        self.guard = Guard(self.store, cache=0)
        client = client_of(colour, self._answer)
        declared = {"kind": "write", "retry": ONCE, "wait_s": 0, "through": client} | contract

        def pay(order: int) -> str:
            self.key = current_effect().ref.key
            self._look()
            return client.post("http://shop/pay").text

        async def apay(order: int) -> str:
            self.key = current_effect().ref.key
            self._look()
            return (await awaited(client.post("http://shop/pay"))).text

        self.tool = self.guard.tool(name="pay", **declared)(pay if colour == "sync" else apay)

    def _look(self):
        self.states.append(str(self.guard.find(self.key).state))

    def _answer(self, request):
        self._look()
        return httpx.Response(200, text="paid")

    def call(self):
        with self.guard.step("chat", "pay"):
            return done(self.tool(1))

    @property
    def writes(self):
        return writes(self.store)


through_each = pytest.mark.parametrize("colour", ["sync", "async", "sync in async"])


@through_each
@pytest.mark.parametrize("downstream", ["none", "probe"])
@pytest.mark.parametrize("kind", ["write", "irreversible"])
def test_where_a_crash_would_cost_a_person_a_protected_client_dispatches(kind, downstream, colour):
    """It declares `through` and no more: nothing is said to have left before something does."""
    pays = PaysThrough(colour, kind=kind, downstream=downstream, accept_store_loss=True)

    assert pays.call() == "paid"
    assert pays.states == ["claimed", "dispatched"]
    assert pays.writes == ["Claim", "Dispatch", "Complete"]


@through_each
@pytest.mark.parametrize(
    "declared",
    [{"downstream": "key"}, {"kind": "idempotent_write"}, {"separate_dispatch": False}],
    ids=str,
)
def test_where_it_would_cost_none_there_is_no_write_more(declared, colour):
    pays = PaysThrough(colour, **declared)

    assert pays.call() == "paid"
    assert pays.writes == ["Claim", "Complete"]


class Talks:
    """A tool that opens a connection by `GET` through which it talks in its own way."""

    def __init__(self, colour, *, before=lambda: None):
        self.store, self.states = FlakyStore(), []
        self.guard = Guard(self.store, cache=0)
        client = client_of(colour, lambda asked: self._look() or httpx.Response(101))
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}

        def talk(order: int) -> str:
            self.key = current_effect().ref.key
            before()
            client.get("http://shop/talk", headers=upgrade)
            self._look()
            return "bought"

        async def atalk(order: int) -> str:
            self.key = current_effect().ref.key
            before()
            await client.get("http://shop/talk", headers=upgrade)
            self._look()
            return "bought"

        declared = {"kind": "write", "retry": ONCE, "wait_s": 0, "through": client, "name": "talk"}
        self.tool = self.guard.tool(**declared)(atalk if colour == "async" else talk)

    def _look(self):
        self.states.append(str(self.guard.find(self.key).state))

    def call(self):
        with self.guard.step("chat", "talk"):
            return done(self.tool(1))


def test_a_connection_of_which_nothing_is_seen_is_written_down_before_it_is_handed_out(colour):
    talks = Talks(colour)

    said = talks.call()

    assert (said, talks.states) == ("bought", ["claimed", "dispatched"])


def test_nobody_gets_such_a_connection_if_the_store_cannot_be_told(colour):
    talks = Talks(colour)
    talks.store.fail(ops.Dispatch, times=99)

    with pytest.raises(StoreUnavailable):
        talks.call()

    assert talks.states == ["claimed"]


def test_nor_once_its_attempt_counts_as_not_sent(colour):
    talks = Talks(colour, before=lambda: current_effect().used.add(OVER))

    with pytest.raises(ContractViolation, match="was not sent"):
        talks.call()

    assert talks.states == ["claimed"]


@in_a_loop
async def test_what_a_tool_leaves_behind_may_send_when_its_end_is_written():
    store, states, left = FlakyStore(), [], []
    guard = Guard(store, cache=0)

    def answer(request):
        (record,) = store.inner.apply(ops.Search())
        states.append(str(record.state))
        return httpx.Response(200, text="paid")

    client = client_of("async", answer)

    @guard.tool(kind="write", through=client, retry=ONCE, wait_s=0)
    async def pay(order: int) -> str:
        left.append(asyncio.ensure_future(client.post("http://shop/pay")))
        return "on its way"

    with guard.step("chat", "pay"):
        assert await pay(1) == "on its way"
    assert (await left[0]).text == "paid"
    assert (states, writes(store)) == (["completed"], ["Claim", "Dispatch", "Complete"])


class Insists:
    """A tool that sends once more, to another place, if its first send fails; and together: both
    at the same time.
    """

    def __init__(self, how):
        self.store, self.sent, self.before = FlakyStore(), [], lambda: None
        self.guard = Guard(self.store, cache=0)
        self.client = client_of("async", self._answer)
        ways = {"one after the other": self._one_after_the_other, "together": self._together}
        self.work = ways[how]

        @self.guard.tool(kind="write", through=self.client, retry=ONCE, wait_s=1, lease_s=0.2)
        async def pay(order: int) -> str:
            self.before()
            return await self.work()

        self.tool = pay

    def _answer(self, request):
        self.sent.append(request.url.path)
        return httpx.Response(200, text="paid")

    async def _one_after_the_other(self):
        for path in ("a", "b"):
            try:
                return (await self.client.post(f"http://shop/{path}")).text
            except EffectOnceError as refused:
                error = refused
        raise error

    async def _together(self):
        posts = [self.client.post(f"http://shop/{path}") for path in ("a", "b")]
        first, second = await asyncio.gather(*posts, return_exceptions=True)
        if isinstance(first, BaseException) and isinstance(second, BaseException):
            raise first
        return "paid"

    async def call(self):
        with self.guard.step("chat", "pay"):
            return await self.tool(1)


each_way = pytest.mark.parametrize("how", ["one after the other", "together"])


@each_way
def test_what_may_not_leave_may_not_leave_when_it_is_tried_again(how):
    pays = Insists(how)
    pays.store.fail(ops.Dispatch, times=99)

    with pytest.raises(StoreUnavailable):
        asyncio.run(pays.call())
    assert pays.sent == []
    pays.store.faults.clear()
    assert asyncio.run(pays.call()) == "paid"
    assert pays.sent == (["/a"] if how == "one after the other" else ["/a", "/b"])


@each_way
def test_nor_beside_an_owner_that_took_it_over(how):
    pays = Insists(how)

    def taken_over():
        key = current_effect().ref.key
        record = pays.guard.find(key)
        pays.store.apply(ops.Renew(key, record.token, record.epoch, 0))
        pays.store.apply(ops.Claim(record.request, "another caller", 30, dispatch=True))

    pays.before = taken_over
    with pytest.raises(EffectOnceError):
        asyncio.run(pays.call())
    assert pays.sent == []


class AnswersOneWriteOfTwo(FlakyStore):
    """Two ask it for the same write at once: the first gets it, and then the other gets no
    answer.
    """

    def __init__(self):
        super().__init__()
        self.asked, self.first_is_let_go = 0, threading.Event()
        self.inner_lock = threading.Lock()
        self.both_ask = threading.Barrier(2)

    def apply(self, op):
        if not isinstance(op, ops.Dispatch):
            return super().apply(op)
        with self.inner_lock:
            self.asked += 1
            mine = self.asked
        if mine <= 2:
            self.both_ask.wait(30)
        if mine == 1:
            return super().apply(op)
        assert self.first_is_let_go.wait(30)
        raise StoreUnavailable("the connection was lost")

    async def aapply(self, op):
        return await asyncio.to_thread(self.apply, op)


def paid_and_notified(colour, store, sent):
    """A tool that makes two requests at once, and can do without the answer of the second."""

    def answer(asked):
        sent.append(asked.url.path)
        store.first_is_let_go.set()
        return httpx.Response(200, text="ok")

    client = client_of(colour, answer)
    post = client.post if colour == "async" else partial(asyncio.to_thread, client.post)
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", through=client, retry=ONCE, wait_s=0)
    async def pay(order: int) -> str:
        posts = [post(url) for url in ("http://shop/pay", "http://shop/notify")]
        await asyncio.gather(*posts, return_exceptions=True)
        return "paid"

    def call():
        with guard.step("chat", "pay"):
            return done(pay(1))

    return call


def test_a_write_that_got_no_answer_takes_nothing_back_that_another_was_let_do(colour):
    store, sent = AnswersOneWriteOfTwo(), []
    call = paid_and_notified(colour, store, sent)

    said = [call(), call()]

    assert said == ["paid", "paid"]
    assert len(sent) == len(set(sent))


def test_what_is_refused_to_one_that_sends_says_nothing_about_another_that_was_let(colour):
    """The other call of its step ends between the two."""
    refusals, sent = [ops.Refused(None)], []

    class Refuses(FlakyStore):
        def apply(self, op):
            refused = isinstance(op, ops.Dispatch) and refusals
            return refusals.pop() if refused else super().apply(op)

    guard = Guard(Refuses(), cache=0)
    client = client_of(colour, lambda asked: sent.append(1) or httpx.Response(200))

    @guard.tool(kind="write", through=client, retry=ONCE, wait_s=0)
    async def pay(order: int) -> None:
        try:
            await awaited(client.post("http://shop/a"))
        except NotSent:
            await awaited(client.post("http://shop/b"))
            raise

    for _ in range(2):
        with guard.step("chat", "pay"), pytest.raises(InDoubt):
            done(pay(1))
    assert sent == [1]


class StallsOneWrite(FlakyStore):
    """Its first dispatch waits until it is let go, and is then done, or gets no answer."""

    def __init__(self):
        super().__init__()
        self.asked, self.go_on, self.stalled = asyncio.Event(), asyncio.Event(), False

    async def aapply(self, op):
        if isinstance(op, ops.Dispatch) and not self.stalled:
            self.stalled = True
            self.asked.set()
            await self.go_on.wait()
        return await super().aapply(op)


def shop(sent):
    def answer(asked):
        sent.append(asked.url.path)
        return httpx.Response(200, text="paid")

    return client_of("async", answer)


@pytest.mark.parametrize("apart", [None, False])
@in_a_loop
async def test_a_task_that_is_on_its_way_when_its_tool_says_not_sent_sends_nothing(apart):
    sent, left = [], []
    guard, client = Guard(FlakyStore(), cache=0), shop(sent)

    async def later(again):
        await again.wait()
        await client.post("http://shop/late")

    @guard.tool(kind="write", through=client, retry=TWICE, wait_s=0, separate_dispatch=apart)
    async def pay(order: int) -> str:
        if not left:
            left.append((again := asyncio.Event(), asyncio.ensure_future(later(again))))
            raise NotSent("the address service says no")
        left[0][0].set()
        await asyncio.wait([left[0][1]])
        return (await client.post("http://shop/pay")).text

    with guard.step("chat", "pay"):
        said = await pay(1)

    assert (said, sent) == ("paid", ["/pay"])
    assert "was not sent" in str(left[0][1].exception())


def test_what_waits_for_its_record_when_its_tool_says_not_sent_sends_nothing():
    sent, left, store = [], [], StallsOneWrite()
    guard, client = Guard(store, cache=0), shop(sent)

    @guard.tool(kind="write", through=client, retry=TWICE, wait_s=0)
    async def pay(order: int) -> str:
        if not left:
            left.append(asyncio.ensure_future(client.post("http://shop/late")))
            await store.asked.wait()
            raise NotSent("the address service says no")
        return (await client.post("http://shop/pay")).text

    async def call():
        with guard.step("chat", "pay"):
            said = await pay(1)
        store.go_on.set()
        await asyncio.wait(left)
        return said

    said = asyncio.run(call())

    assert (said, sent) == ("paid", ["/pay"])
    assert "was not sent" in str(left[0].exception())


@in_a_loop
async def test_what_waits_for_its_record_when_another_was_not_let_sends_nothing():
    sent, left, store = [], [], StallsOneWrite()
    guard, client = Guard(store, cache=0), shop(sent)

    @guard.tool(kind="write", through=client, retry=ONCE, wait_s=0)
    async def pay(order: int) -> str:
        left.append(asyncio.ensure_future(client.post("http://shop/late")))
        await store.asked.wait()
        store.fail(ops.Dispatch, times=3)
        return (await client.post("http://shop/pay")).text

    with guard.step("chat", "pay"), pytest.raises(StoreUnavailable):
        await pay(1)
    store.go_on.set()
    await asyncio.wait(left)

    assert sent == []
    assert "was not sent" in str(left[0].exception())


class SoftTimeLimit(Exception):
    pass


@contextlib.contextmanager
def time_limit():
    """A signal raises in the main thread, as a worker's soft time limit does."""

    def strike(*_):
        raise SoftTimeLimit

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("landed", [True, False], ids=["it had landed", "it had not"])
@pytest.mark.parametrize("lost", [0, 1], ids=["", "what takes it back is asked for twice"])
def test_a_time_limit_that_strikes_while_the_record_is_written_leaves_no_doubt(landed, lost):
    class Struck(FlakyStore):
        def apply(self, op):
            strikes = isinstance(op, ops.Dispatch) and "Dispatch" not in self.log
            if not strikes:
                return super().apply(op)
            self.fail(ops.Unsend, "unacknowledged", times=lost)
            self.fail(ops.Renew, "unacknowledged", times=lost)
            if landed:
                super().apply(op)
            self.log.append("Dispatch")
            return signal.raise_signal(signal.SIGUSR1)

    pays = PaysThrough("sync", store=Struck())

    with time_limit(), pytest.raises(SoftTimeLimit):
        pays.call()

    assert pays.guard.counts() == {"claimed": 1}
    assert pays.call() == "paid"
    assert pays.states == ["claimed", "claimed", "dispatched"]


@pytest.mark.parametrize("fails", [0, 99])
def test_a_tool_that_stops_waiting_for_its_record_was_not_cancelled_by_its_caller(fails):
    class Slow(FlakyStore):
        async def aapply(self, op, /):
            if isinstance(op, ops.Dispatch) and not timed_out.is_set():
                await timed_out.wait()
            return await super().aapply(op)

    sent, timed_out = [], asyncio.Event()
    store = Slow()
    store.fail(ops.Dispatch, times=fails)
    guard = Guard(store, cache=0)
    client = client_of("async", lambda asked: sent.append(1) or httpx.Response(200, text="ok"))

    @guard.tool(kind="write", through=client, retry=ONCE, wait_s=0)
    async def pay(order: int) -> str:
        waits = asyncio.ensure_future(client.post("http://shop/a"))
        await asyncio.sleep(0)
        waits.cancel()
        timed_out.set()
        await asyncio.wait([waits])
        return (await client.post("http://shop/b")).text

    with guard.step("chat", "pay"):
        if fails:
            with pytest.raises(StoreUnavailable):
                done(pay(1))
        else:
            assert done(pay(1)) == "ok"
    assert len(sent) == (0 if fails else 1)


def test_a_tool_that_runs_another_is_dispatched_before_it_does(colour):
    """Whatever that one sends, and wherever its record is."""
    guard, states = Guard(FlakyStore(), cache=0), []

    def look(key):
        states.append(str(guard.find(key).state))

    inner = Guard("memory://", cache=0).tool(kind="write", through="protected", name="inner")
    outer = guard.tool(kind="write", through="protected", name="outer", retry=ONCE)

    note = inner(in_colour(colour, look))

    def pay(order: int) -> None:
        look(current_effect().ref.key)
        note(current_effect().ref.key)

    async def apay(order: int) -> None:
        look(current_effect().ref.key)
        await note(current_effect().ref.key)

    paying = outer(pay if colour == "sync" else apay)
    for order in range(2):
        with guard.step("chat", "pay"):
            done(paying(order))
    assert states == ["claimed", "dispatched"] * 2


def one_inside_another(colour, outer_guard, inner_guard, ran, before=lambda: None):
    """A call of a tool that runs another."""
    declared = {"kind": "write", "retry": ONCE, "wait_s": 0}
    inner = inner_guard.tool(name="inner", **declared)
    outer = outer_guard.tool(name="outer", through="protected", **declared)

    note = inner(in_colour(colour, lambda order: ran.append(order)))

    def pay(order: int) -> None:
        before()
        note(order)

    async def apay(order: int) -> None:
        before()
        await note(order)

    paying = outer(pay if colour == "sync" else apay)

    def call():
        with outer_guard.step("chat", "pay"):
            done(paying(1))

    return call


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "two stores"])
def test_a_tool_inside_another_whose_record_cannot_be_written_was_not_started(colour, shared):
    store, ran = FlakyStore(), []
    guard = Guard(store, cache=0)
    inner_guard = guard if shared else Guard(FlakyStore(), cache=0)
    call = one_inside_another(colour, guard, inner_guard, ran)
    store.fail(ops.Dispatch, times=3)

    with pytest.raises(StoreUnavailable):
        call()
    counts = inner_guard.counts()
    call()

    assert "in_doubt" not in counts
    assert ran == [1]


def test_a_tool_inside_one_that_counts_as_not_sent_is_not_started(colour):
    ran, inner_guard = [], Guard(FlakyStore(), cache=0)
    over = [lambda: current_effect().used.add(OVER)]
    call = one_inside_another(
        colour, Guard(FlakyStore(), cache=0), inner_guard, ran, lambda: over and over.pop()()
    )

    with pytest.raises(EffectOnceError, match="that was stopped"):
        call()

    assert (ran, inner_guard.counts()) == ([], {"claimed": 1})


def test_a_protected_client_outside_of_it_is_a_dispatch_too(colour):
    """A log-in before `sending()`: what it did is not known after a crash, so it counts as sent."""
    seen = []

    def answer(request):
        seen.extend(pays.guard.find(key).state for key in keys)
        return httpx.Response(200, text="in")

    keys, client = [], client_of(colour, answer)

    def before():
        keys.append(current_effect().ref.key)
        return client.post("http://shop/login")

    pays = Pays(colour, before=before)

    assert pays.call() == "paid"
    assert seen == ["dispatched"]
    assert pays.writes == ["Claim", "Dispatch", "Complete"]


def test_a_call_that_is_cancelled_while_the_record_is_written_sent_nothing():
    class Slow(FlakyStore):
        async def aapply(self, op, /):
            if isinstance(op, ops.Dispatch):
                task.cancel()
                await asyncio.sleep(0)
            return await super().aapply(op)

    pays = Pays("async", store=Slow())

    async def main():
        nonlocal task
        with pays.guard.step("chat", "pay"):
            task = asyncio.ensure_future(pays.tool(1))
            with pytest.raises(asyncio.CancelledError):
                await task

    task = None
    asyncio.run(main())

    assert (pays.paid, pays.guard.counts()) == (0, {"claimed": 1})
