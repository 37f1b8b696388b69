"""`Downstream.probe(before_sending=True)`: the service is asked before the first send, too. So what
the store has lost, or another program has done, is not done again.
"""

import asyncio
import subprocess
import sys
import threading

import httpx
import pytest

from effectonce import (
    Allowance,
    CannotTell,
    ContractViolation,
    Downstream,
    Found,
    GaveUp,
    Guard,
    InFlight,
    NotFound,
    NotSent,
)
from effectonce.http.client import protect
from effectonce.providers.probes._asking import asking, since_s
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK
from tests.servers import redis

ASKED_FIRST = Downstream.probe(before_sending=True)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def any_store(request, tmp_path, store):
    match request.param:
        case "memory":
            return store
        case "sqlite":
            return SqliteStore(tmp_path / "effects.db")
        case "postgres":
            return request.getfixturevalue("database")
        case "redis":
            return redis.emptied(redis.server()).url


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


def payer(guard, bank, *, on_loop=False, probed=True, **contract):
    """A function that pays an invoice once."""
    settings = {"kind": "irreversible", "downstream": ASKED_FIRST, "retry": QUICK, "wait_s": 0}
    declare = guard.tool(**settings | {"accept_store_loss": True} | contract)
    if on_loop:

        @declare
        async def pay(invoice: str) -> str:
            return bank.pay(invoice)

        async def find(invoice: str):
            return bank.find(invoice)
    else:

        @declare
        def pay(invoice: str) -> str:
            return bank.pay(invoice)

        def find(invoice: str):
            return bank.find(invoice)

    if probed:
        pay.probe(find)

    async def awaited(invoice):
        return await guard.call(pay, {"invoice": invoice})

    def call(invoice="inv_1"):
        with guard.step("month end", invoice):
            return (
                asyncio.run(awaited(invoice)) if on_loop else guard.call(pay, {"invoice": invoice})
            )

    return call


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def on_loop(request):
    return request.param


def test_what_the_store_has_lost_is_found_and_not_sent_again(any_store, on_loop):
    bank, guard = Bank(), Guard(any_store, cache=0)
    bank.done.append("inv_1")
    call = payer(guard, bank, on_loop=on_loop)

    found, again = call(), call()

    assert (found.unwrap(), found.settled_by, found.replayed) == ("paid inv_1", "probe", False)
    assert (again.unwrap(), again.replayed) == ("paid inv_1", True)
    assert bank.done == ["inv_1"]
    assert bank.asked == ["inv_1"], "what is known needs no probe"
    guard.close()


def test_what_has_not_happened_is_sent_and_asked_about_once(any_store, on_loop):
    bank, guard = Bank(), Guard(any_store, cache=0)
    bank.failures = [NotSent("no connection")]
    call = payer(guard, bank, on_loop=on_loop)

    assert [call().unwrap() for _ in range(3)] == ["paid inv_1"] * 3
    assert bank.done == ["inv_1"]
    assert bank.asked == ["inv_1"]
    guard.close()


def test_a_tool_that_sends_through_a_protected_client_is_recorded_in_the_same_way(guard, on_loop):
    bank = Bank()
    bank.done.append("inv_1")
    client = protect((httpx.AsyncClient if on_loop else httpx.Client)())
    call = payer(guard, bank, on_loop=on_loop, through=client)

    assert call().unwrap() == "paid inv_1"
    assert guard.find(call().effect.key).state == "completed"
    assert bank.done == ["inv_1"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CannotTell("it is closed"), "could not tell \\(it is closed\\)"),
        (ConnectionError("no route"), "the probe failed \\(ConnectionError: no route\\)"),
        ("yes", "returned str instead of Found"),
    ],
)
def test_while_nothing_can_be_learned_nothing_is_sent_and_no_person_is_needed(
    guard, on_loop, answer, why
):
    bank = Bank()
    bank.answers = [answer]
    call = payer(guard, bank, on_loop=on_loop)

    with pytest.raises(GaveUp, match=f"was not sent: .*{why}") as raised:
        call()

    assert raised.value.retriable
    assert bank.done == []
    assert guard.find(raised.value.effect.key).sends == 0
    assert call().unwrap() == "paid inv_1"
    assert bank.asked == ["inv_1"] * 2


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

    with pytest.raises(ContractViolation, match="has no probe that could be asked"):
        call()

    assert bank.done == []


def test_what_is_found_is_spent_and_what_could_not_be_asked_is_given_back(guard):
    bank = Bank()
    bank.done.append("inv_1")
    bank.answers = [CannotTell()]
    call = payer(guard, bank, allowance=Allowance("payments", limit=2))

    with pytest.raises(GaveUp):
        call()
    assert [account.spent for account in guard.allowances.list()] == [0]
    call()
    assert [account.spent for account in guard.allowances.list()] == [1]


def test_a_ready_made_probe_that_finds_nothing_lets_it_be_sent(guard):
    bank = Bank()
    bank.find = asking("some-provider", lambda invoice: [], str, 60.0)

    assert payer(guard, bank)().unwrap() == "paid inv_1"


def test_a_ready_made_probe_that_looks_from_the_first_send_on_says_that_it_cannot(guard):
    bank = Bank()
    bank.find = lambda invoice: since_s()

    with pytest.raises(GaveUp, match="looks from the first send on"):
        payer(guard, bank)()
    assert bank.done == []


def test_it_is_true_or_false():
    with pytest.raises(ContractViolation, match="before_sending"):
        Downstream.probe(before_sending="yes")


DIES_WHILE_IT_ASKS = """
import os, sys
from effectonce import Downstream, Guard
from tests.core.test_asked_first import Bank, payer

bank = Bank()
bank.find = lambda invoice: os._exit(9)
payer(Guard(sys.argv[1]), bank)()
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
