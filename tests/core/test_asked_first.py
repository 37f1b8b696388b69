"""`Downstream.probe(before_sending=True)`: the service is asked before the first send, too. So what
the store has lost, or another program has done, is not done again.
"""

import asyncio
import subprocess
import sys
import threading
import time

import httpx
import pytest
from msgspec import structs

from effectonce import (
    Allowance,
    CannotTell,
    CircuitOpen,
    ContractViolation,
    Downstream,
    Found,
    GaveUp,
    Guard,
    InFlight,
    LimitReached,
    NotFound,
    NotSent,
    Retry,
    RetryBudget,
    StoreUnavailable,
    ToolPaused,
)
from effectonce.http.client import protect
from effectonce.http.server import IdempotencyMiddleware, Route
from effectonce.providers.probes import mangopay
from effectonce.providers.probes._asking import asking, since_s
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Run
from tests.core.helpers import QUICK, done, in_a_loop, in_colour

ASKED_FIRST = Downstream.probe(before_sending=True)


class Bank:
    """What it did, what it was asked, and what it is to answer instead."""

    def __init__(self):
        self.done, self.asked, self.answers, self.failures = [], [], [], []

    def pay(self, invoice):
        if self.failures:
            raise self.failures.pop(0)
        self.done.append(invoice)
        return f"paid {invoice}"

    def find(self, invoice):
        self.asked.append(invoice)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            return answer
        return Found(f"paid {invoice}") if invoice in self.done else NotFound()


def payer(guard, bank, *, colour="sync", probed=True, **contract):
    """A function that pays an invoice once."""
    settings = {"kind": "irreversible", "downstream": ASKED_FIRST, "retry": QUICK, "wait_s": 0}
    declare = guard.tool(**settings | {"accept_store_loss": True} | contract)

    def pay(invoice: str) -> str:
        return bank.pay(invoice)

    def find(invoice: str):
        return bank.find(invoice)

    paying = declare(in_colour(colour, pay))
    if probed:
        paying.probe(in_colour(colour, find))

    def call(invoice="inv_1"):
        with guard.step("month end", invoice):
            return done(guard.call(paying, {"invoice": invoice}))

    return call


def test_what_the_store_has_lost_is_found_and_not_sent_again(any_store, colour):
    bank, guard = Bank(), Guard(any_store, cache=0)
    bank.done.append("inv_1")
    call = payer(guard, bank, colour=colour)

    found, again = call(), call()

    assert (found.unwrap(), found.settled_by, found.replayed) == ("paid inv_1", "probe", False)
    assert (again.unwrap(), again.replayed) == ("paid inv_1", True)
    assert bank.done == ["inv_1"]
    assert bank.asked == ["inv_1"], "what is known needs no probe"
    guard.close()


def test_what_has_not_happened_is_sent_and_asked_about_once(any_store, colour):
    bank, guard = Bank(), Guard(any_store, cache=0)
    bank.failures = [NotSent("no connection")]
    call = payer(guard, bank, colour=colour)

    assert [call().unwrap() for _ in range(3)] == ["paid inv_1"] * 3
    assert bank.done == ["inv_1"]
    assert bank.asked == ["inv_1"]
    guard.close()


def test_a_tool_that_sends_through_a_protected_client_is_recorded_in_the_same_way(guard, colour):
    bank = Bank()
    bank.done.append("inv_1")
    client = protect((httpx.AsyncClient if colour == "async" else httpx.Client)())
    call = payer(guard, bank, colour=colour, through=client)

    assert call().unwrap() == "paid inv_1"
    assert guard.find(call().effect.key).state == "completed"
    assert bank.done == ["inv_1"]


@pytest.mark.parametrize(
    "answer", [CannotTell("it is closed"), ConnectionError("no route")], ids=["closed", "no route"]
)
def test_a_probe_that_cannot_tell_yet_is_asked_again(guard, colour, answer):
    bank = Bank()
    bank.answers = [answer]

    assert payer(guard, bank, colour=colour)().unwrap() == "paid inv_1"
    assert bank.asked == ["inv_1"] * 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CannotTell("it is closed"), "the probe could not tell \\(it is closed\\)"),
        (ConnectionError("no route"), "the probe failed \\(ConnectionError: no route\\)"),
        (RuntimeError("no session"), "the probe failed \\(RuntimeError: no session\\)"),
    ],
)
def test_while_nothing_can_be_learned_nothing_is_sent_and_no_person_is_needed(
    guard, colour, answer, why
):
    bank = Bank()
    bank.answers = [answer] * 3
    call = payer(guard, bank, colour=colour)

    with pytest.raises(GaveUp, match=f"was not sent: .*{why}") as raised:
        call()

    assert raised.value.retriable
    assert bank.done == []
    assert guard.find(raised.value.effect.key).sends == 0
    assert [letter.effect for letter in guard.dead_letters.list()] == [raised.value.effect]
    bank.answers.clear()
    assert call().unwrap() == "paid inv_1"


def test_an_answer_that_cannot_be_read_is_a_fault_of_the_probe(guard, colour):
    bank = Bank()
    bank.answers = ["yes"]

    with pytest.raises(ContractViolation, match="the probe returned str instead of Found"):
        payer(guard, bank, colour=colour)()
    assert (bank.done, bank.asked) == ([], ["inv_1"])


def test_who_interrupts_the_probe_gets_its_own_interruption(guard):
    bank = Bank()
    bank.answers = [KeyboardInterrupt()]
    call = payer(guard, bank)

    with pytest.raises(KeyboardInterrupt):
        call()

    assert bank.done == []
    assert call().unwrap() == "paid inv_1"


def test_while_one_caller_asks_no_other_sends(guard):
    bank = Bank()
    asking, go_on = threading.Event(), threading.Event()

    def slow(invoice):
        asking.set()
        assert go_on.wait(30)
        return NotFound()

    bank.find = slow
    call = payer(guard, bank)
    first = threading.Thread(target=call)
    first.start()
    assert asking.wait(30)

    with pytest.raises(InFlight):
        call()
    go_on.set()
    first.join()

    assert bank.done == ["inv_1"]


def test_without_a_probe_nothing_is_sent(guard):
    bank = Bank()
    call = payer(guard, bank, probed=False)

    with pytest.raises(ContractViolation, match="and it has none here"):
        call()
    assert bank.done == []


def test_what_is_known_needs_no_probe(store):
    bank = Bank()
    payer(Guard(store, cache=0), bank)()

    assert payer(Guard(store, cache=0), bank, probed=False)().unwrap() == "paid inv_1"


def test_only_a_probe_can_be_asked():
    with pytest.raises(ContractViolation, match="before_sending=True asks a probe"):
        structs.replace(Downstream.key(), before_sending=True)


def test_a_route_of_http_has_no_probe(guard):
    route = Route("/pay", downstream=ASKED_FIRST)
    with pytest.raises(ContractViolation, match="/pay"):
        IdempotencyMiddleware(lambda *_: None, guard, tenant=str, routes=[route])


def test_what_is_found_is_spent_and_what_could_not_be_asked_is_not(guard):
    bank = Bank()
    bank.done.append("inv_1")
    bank.answers = [CannotTell()] * 3
    call = payer(guard, bank, allowance=Allowance("payments", limit=2))

    with pytest.raises(GaveUp):
        call()
    assert [account.spent for account in guard.allowances.list()] == []
    call()
    assert [account.spent for account in guard.allowances.list()] == [1]


def test_a_ready_made_probe_that_finds_nothing_lets_it_be_sent(guard):
    bank = Bank()
    bank.find = asking("some-provider", lambda invoice: [], str, 60.0)

    assert payer(guard, bank)().unwrap() == "paid inv_1"


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (asking("some-provider", lambda invoice: [since_s()], str, 60.0), "from the first send on"),
        (mangopay.answered(None, "/v2.01/us", "/payouts"), "keeps answers for a day"),
    ],
    ids=["since", "mangopay"],
)
def test_a_ready_made_probe_that_cannot_be_asked_before_a_send_says_so(guard, probe, why):
    bank = Bank()
    bank.find = probe

    with pytest.raises(ContractViolation, match=why):
        payer(guard, bank)()
    assert bank.done == []


def test_what_is_found_counts_as_prevented_and_no_send_is_reported():
    bank, events = Bank(), []
    bank.done.append("inv_1")
    guard = Guard(MemoryStore(), cache=0, observers=[events.append])

    found = payer(guard, bank)()

    record = guard.find(found.effect.key)
    assert (record.state, record.sends, record.first_dispatch_at) == ("completed", 0, 0.0)
    assert not {"dispatched", "settled"} & {event.name for event in events}
    total = guard.report().total
    assert (total.landed, total.prevented) == (0, 1)
    guard.close()


def test_what_another_owner_sends_meanwhile_is_in_flight(store, clock, colour):
    bank, rival = Bank(), Bank()
    started, go_on = threading.Event(), threading.Event()
    rival.pay = lambda invoice: started.set() or go_on.wait(30)
    sends = threading.Thread(target=payer(Guard(store, cache=0), rival))

    def late(invoice):
        clock.advance(3600)  # the lease of this call is over
        sends.start()
        assert started.wait(30)
        return Found("paid elsewhere")

    bank.find = late
    client = protect((httpx.AsyncClient if colour == "async" else httpx.Client)())

    with pytest.raises(InFlight):
        payer(Guard(store, cache=0), bank, colour=colour, through=client)()
    go_on.set()
    sends.join()


def test_a_probe_that_outlasts_the_call_lets_nothing_leave(guard):
    bank = Bank()
    bank.find = lambda invoice: time.sleep(0.05) or NotFound()  # a slow service

    with pytest.raises(GaveUp, match="the time that it may take is over. Nothing was") as raised:  # noqa: RUF043
        payer(guard, bank, retry=Retry(deadline_s=0.01))()
    assert raised.value.retriable
    assert raised.value.effectonce_verdict.certainty == "not_sent"
    assert bank.done == []


def test_what_was_sent_before_goes_on_however_late_it_is(guard, clock):
    bank = Bank()
    bank.failures = [KeyboardInterrupt()]  # its process dies
    settings = {"kind": "idempotent_write", "downstream": "none", "probed": False}
    settings["allowance"] = Allowance("payments", limit=9)
    with pytest.raises(KeyboardInterrupt):
        payer(guard, bank, **settings)()
    clock.advance(3600)
    held = guard.store.apply
    guard.store.apply = lambda op: time.sleep(0.02) or held(op)  # a slow store

    assert payer(guard, bank, retry=Retry(deadline_s=0.01), **settings)().unwrap() == "paid inv_1"


def test_how_long_a_service_asks_to_wait_is_passed_on(guard):
    bank = Bank()
    bank.answers = [CircuitOpen("the bank is down", retry_after_s=3600)]

    with pytest.raises(GaveUp) as raised:
        payer(guard, bank)()
    assert raised.value.retry_after_s == 3600


def test_a_probe_that_answers_when_it_is_asked_again_earns_its_retry_back(guard):
    bank, budget = Bank(), RetryBudget("bank", capacity=28)
    call = payer(guard, bank, retry=QUICK, budget=budget)

    for number in range(40):
        bank.answers = [CannotTell("busy")]
        call(f"inv_{number}")


@in_a_loop
async def test_who_is_cancelled_before_it_is_asked_again_lets_the_next_caller_go_on(guard):
    bank, retry = Bank(), Retry(attempts=3, base_s=60, cap_s=60)

    @guard.tool(kind="write", downstream=ASKED_FIRST, retry=retry, wait_s=0)
    async def pay(invoice: str) -> str:
        return bank.pay(invoice)

    async def call():
        async with guard.step("month end", "inv_1"):
            return await pay("inv_1")

    asked = asyncio.Event()

    @pay.probe
    async def find(invoice: str):
        asked.set()
        return CannotTell("busy") if bank.answers else NotFound()

    bank.answers = ["busy"]
    first = asyncio.create_task(call())
    await asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    bank.answers.clear()
    assert await call() == "paid inv_1"
    assert bank.done == ["inv_1"]


def test_what_is_found_while_the_store_is_away_is_found_again(guard, clock):
    bank, apply = Bank(), guard.store.apply
    bank.done.append("inv_1")

    def find_and_lose_the_store(invoice):
        guard.store.apply = away
        return Found("paid inv_1")

    def away(op):
        raise StoreUnavailable("the store is away")

    found = bank.find
    bank.find = find_and_lose_the_store
    call = payer(guard, bank, allowance=Allowance("payments", limit=2))
    with pytest.raises(StoreUnavailable):
        call()
    guard.store.apply, bank.find = apply, found
    clock.advance(3600)

    assert call().unwrap() == "paid inv_1"
    assert bank.done == ["inv_1"]


def test_an_undo_is_not_asked_about_by_the_probe_of_its_tool(guard):
    undone = []

    @guard.tool(kind="write", downstream=ASKED_FIRST)
    def pay(invoice: str) -> str:
        return f"paid {invoice}"

    @pay.probe
    def find(invoice: str):
        return NotFound()

    @pay.undo
    def give_back(invoice: str) -> None:
        undone.append(invoice)

    with guard.step("month end", "inv_1"):
        effect = guard.call(pay, {"invoice": "inv_1"}).effect
    guard.undo(effect.key, by="ada", reason="it was wrong")
    assert undone == ["inv_1"]


def test_a_tool_that_is_paused_while_its_probe_is_asked_sends_nothing(guard):
    bank = Bank()

    def find(invoice):
        guard.pause_tool("pay", by="ada", reason="the bank is down")
        return NotFound()

    bank.find = find
    with pytest.raises(ToolPaused):
        payer(guard, bank)()
    assert bank.done == []


def test_after_a_doubt_it_is_asked_once(guard, clock):
    bank, settings = Bank(), {"kind": "write", "retry": Retry(attempts=1)}
    downstream = Downstream.probe(delay=0, before_sending=True)
    call = payer(guard, bank, downstream=downstream, **settings)
    bank.failures = [TimeoutError("lost")]
    assert call().status == "in_doubt"
    bank.asked.clear()
    clock.advance(3600)

    assert call().unwrap() == "paid inv_1"
    assert bank.asked == ["inv_1"]


def test_a_step_of_a_workflow_is_asked_about_first(guard):
    bank = Bank()
    bank.done.append("inv_1")

    @guard.tool(kind="idempotent_write", downstream=ASKED_FIRST)
    def pay(invoice: str) -> str:
        return bank.pay(invoice)

    @pay.probe
    def find(invoice: str):
        return bank.find(invoice)

    @guard.workflow
    def month_end(run: Run, invoice: str) -> str:
        return run.step("pay", pay, invoice)

    assert month_end("inv_1") == "paid inv_1"
    assert bank.done == ["inv_1"]


def test_what_happened_elsewhere_is_found_although_nothing_is_left_to_spend(guard):
    bank = Bank()
    call = payer(guard, bank, allowance=Allowance("payments", limit=1))
    call("inv_1")
    bank.done.append("inv_2")

    assert call("inv_2").unwrap() == "paid inv_2"
    with pytest.raises(LimitReached):
        call("inv_3")


def test_it_is_true_or_false():
    with pytest.raises(ContractViolation, match="before_sending"):
        Downstream.probe(before_sending="yes")


DIES_WHILE_IT_ASKS = """
import os, sys
from effectonce import Downstream, Guard
from tests.core.test_asked_first import Bank, payer

bank = Bank()
bank.find = lambda invoice: os._exit(9)
payer(Guard(sys.argv[1]), bank, lease_s=1)()
"""


def test_a_process_that_dies_while_it_asks_leaves_no_doubt(tmp_path):
    url = f"sqlite:///{tmp_path}/effects.db"
    died = subprocess.run(
        [sys.executable, "-c", DIES_WHILE_IT_ASKS, url],
        capture_output=True,
        check=False,
    )
    assert died.returncode == 9, died.stderr

    guard, bank = Guard(url, cache=0), Bank()
    call = payer(guard, bank, wait_s=60)

    assert call().unwrap() == "paid inv_1"
    assert bank.done == ["inv_1"]
    guard.close()
