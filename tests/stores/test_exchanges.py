"""What an exchange promises, on each store behind a wire: the facts that no sequence of ops
shows.
"""

import time

import pytest

from effectonce._core.ops import Claim, Find
from effectonce.stores._roundtrip import CompareAndSwap, Read
from effectonce.stores.postgres import PostgresStore
from effectonce.testing.conformance.bench import LEASE_S, request


def performed(store, exchange):
    return (
        store._perform(exchange, time.monotonic() + 5)
        if isinstance(store, PostgresStore)
        else store._perform(exchange)
    )


@pytest.fixture(params=["postgres", "redis"])
def store(request, open_store):
    return open_store(request.param)


def swaps_nothing_but_what_was_seen(store):
    """The record changed after it was seen: neither a new one nor its end may replace it."""
    store.apply(Claim(request(), "token", LEASE_S, dispatch=True))
    seen = performed(store, Read("k"))
    for after in (seen.record, None):
        assert performed(store, CompareAndSwap("k", seen.revision + 1, after)) is False
        assert performed(store, CompareAndSwap("k", 0, seen.record)) is False
        assert store.apply(Find("k")) == seen.record


def a_swap_makes_old_what_was_seen(store):
    """Two saw the same revision: the slower one decides anew, though the faster one changed
    nothing that shows.
    """
    store.apply(Claim(request(), "token", LEASE_S, dispatch=True))
    seen = performed(store, Read("k"))
    assert performed(store, CompareAndSwap("k", seen.revision, seen.record)) is True
    assert performed(store, CompareAndSwap("k", seen.revision, None)) is False
    assert performed(store, CompareAndSwap("k", seen.revision, seen.record)) is False


def forgets_what_was_seen(store):
    store.apply(Claim(request(), "token", LEASE_S, dispatch=True))
    assert performed(store, CompareAndSwap("k", performed(store, Read("k")).revision, None)) is True
    assert store.apply(Find("k")) is None


FACTS = (swaps_nothing_but_what_was_seen, a_swap_makes_old_what_was_seen, forgets_what_was_seen)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_a_store_behind_a_wire(fact, store):
    fact(store)
