"""A contract that changed while a record was open: what was sent is judged by the terms under
which it was sent.
"""

import pytest

from effectonce import Downstream, GaveUp, Guard, InDoubt, State, current_effect
from effectonce._core.guarantees import Capability
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK

CONTRACTS = {
    f"{kind}/{downstream}": {
        "kind": kind,
        "downstream": Downstream.probe(delay=0) if downstream == "probe" else downstream,
    }
    for kind in ("idempotent_write", "write", "irreversible")
    for downstream in ("none", "key", "probe", "transaction")
}


class Downstreams:
    """Counts requests by their key; one without a key is always new."""

    def __init__(self):
        self.sent = []

    def effects(self):
        keyed = {key for key in self.sent if key is not None}
        return len(keyed) + self.sent.count(None)


def deployed(store, contract, body):
    guard = Guard(store, cache=0)

    @guard.tool(retry=QUICK, wait_s=0, lease_s=30, accept_store_loss=True, **contract)
    def pay(order: str):
        return body()

    return guard, pay


def called(guard, pay):
    with guard.step("chat", "pay"):
        return pay("o1")


@pytest.fixture
def sqlite(tmp_path, clock):
    store = SqliteStore(str(tmp_path / "effects.db"), clock=clock)
    yield store
    store.close()


class Died(BaseException):
    pass


def abandoned(store, clock, contract, world):
    """An owner that sent it, or is in its transaction, and dies: its record stays as it was."""
    keyed = contract["downstream"] == "key"

    def body():
        if contract["downstream"] == "transaction":
            current_effect().connection.execute("CREATE TABLE IF NOT EXISTS paid (one)")
        else:
            world.sent.append(current_effect().downstream_key if keyed else None)
        raise Died

    guard, pay = deployed(store, contract, body)
    before = store.apply

    def dead_after_the_claim(op):
        if type(op).__name__ not in ("ReadCell", "Claim", "Find"):
            raise Died
        return before(op)

    store.apply = dead_after_the_claim
    with pytest.raises(Died):
        called(guard, pay)
    store.apply = before
    clock.advance(31)


@pytest.mark.parametrize("new", CONTRACTS)
@pytest.mark.parametrize("old", CONTRACTS)
def test_no_change_of_a_contract_makes_a_second_effect_or_a_loop(sqlite, clock, old, new):
    world, runs = Downstreams(), []
    abandoned(sqlite, clock, CONTRACTS[old], world)
    contract = CONTRACTS[new]

    def body():
        runs.append(1)
        assert len(runs) < 10, "it loops"
        if contract["downstream"] == "transaction":
            current_effect().connection.execute("CREATE TABLE IF NOT EXISTS paid (one)")
            current_effect().connection.execute("INSERT INTO paid VALUES (1)")
        else:
            world.sent.append(
                current_effect().downstream_key if contract["downstream"] == "key" else None
            )
        return "paid"

    guard, pay = deployed(sqlite, contract, body)
    for _ in range(3):
        try:
            called(guard, pay)
        except (InDoubt, GaveUp):
            clock.advance(31)

    harmless = old.startswith("idempotent") and new.startswith("idempotent")
    assert len(runs) <= 1
    assert harmless or world.effects() + ("transaction" in new and len(runs)) <= 1


def test_a_key_that_the_first_send_did_not_carry_is_no_help(sqlite, clock):
    world = Downstreams()
    abandoned(sqlite, clock, CONTRACTS["idempotent_write/none"], world)
    guard, pay = deployed(
        sqlite, CONTRACTS["write/key"], lambda: world.sent.append(current_effect().downstream_key)
    )

    for _ in range(2):
        with pytest.raises(InDoubt, match="the contract has changed since"):
            called(guard, pay)

    assert world.sent == [None]


def test_what_was_sent_under_a_key_is_not_run_again_in_a_transaction(sqlite, clock):
    world = Downstreams()
    abandoned(sqlite, clock, CONTRACTS["write/key"], world)
    guard, pay = deployed(
        sqlite, CONTRACTS["write/transaction"], lambda: pytest.fail("it was sent before")
    )

    with pytest.raises(InDoubt):
        called(guard, pay)


def test_as_long_as_nothing_was_sent_the_contract_of_today_holds(sqlite, clock):
    world = Downstreams()
    abandoned(sqlite, clock, CONTRACTS["write/transaction"], world)
    guard, pay = deployed(sqlite, CONTRACTS["write/key"], lambda: current_effect().downstream_key)

    assert called(guard, pay).startswith("eo_")

    with guard.step("chat", "pay"):
        record = guard.find(pay.explain("o1").key)
    assert (record.state, record.request.terms.downstream) == (State.COMPLETED, Capability.KEY)
