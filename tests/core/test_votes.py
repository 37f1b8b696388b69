"""How processes find out together that a dependency is unwell: the exchange and the count of
votes.
"""

import pytest

from effectonce._core.breaker.votes import TRIES, Quorum, Vote, carried, exchange, standing
from effectonce._core.ops import ReadCell, WriteCell
from effectonce._drivers import drive
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

CELL = "breaker/bank"


@pytest.fixture
def clock():
    return FakeClock(1000.0)


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


def vote(store, node, open_s=0.0):
    return drive(exchange(CELL, node, open_s, refresh_s=5.0), store.apply)


def test_everybody_sees_what_everybody_has_found(store):
    vote(store, "a", 30.0)
    votes = vote(store, "b")

    assert votes == {"a": Vote(1000.0, 1030.0), "b": Vote(1000.0, 0.0)}


def test_who_has_not_been_seen_for_long_is_not_counted(store, clock):
    vote(store, "a", 300.0)
    clock.advance(15.0)
    vote(store, "b")
    clock.advance(10.0)

    assert set(vote(store, "c")) == {"b", "c"}


def test_a_vote_is_written_again_when_somebody_else_was_faster(store):
    flow = exchange(CELL, "a", 0.0, refresh_s=5.0)
    cell = store.apply(next(flow))
    mine = flow.send(cell)
    vote(store, "b")

    again = flow.send(store.apply(mine))

    assert isinstance(again, WriteCell)
    assert store.apply(again) is None
    assert set(vote(store, "c")) == {"a", "b", "c"}


def test_it_gives_up_writing_when_others_are_always_faster(store):
    flow = exchange(CELL, "a", 0.0, refresh_s=5.0)
    op, writes = next(flow), 0

    with pytest.raises(StopIteration) as done:
        while True:
            writes += isinstance(op, WriteCell)
            if isinstance(op, WriteCell):
                vote(store, f"other-{writes}")
            op = flow.send(store.apply(op))

    assert writes == TRIES
    assert "a" in done.value.value


def test_a_cell_that_cannot_be_read_is_written_anew(store):
    store.apply(WriteCell(CELL, 0, b"something else", 60.0))

    assert set(vote(store, "a")) == {"a"}
    assert store.apply(ReadCell(CELL)).value != b"something else"


@pytest.mark.parametrize(
    ("against", "nodes", "enough"),
    [
        (1, 1, False),
        (1, 2, False),
        (2, 2, True),
        (2, 3, True),
        (2, 4, False),
        (3, 4, True),
        (1, 100, False),
    ],
)
def test_it_takes_more_than_half_and_at_least_two(against, nodes, enough):
    assert carried(Quorum(0.0, nodes, against), 0.5) is enough


def test_votes_that_are_over_or_were_followed_before_do_not_count():
    votes = {
        "over": Vote(100.0, 99.0),
        "followed": Vote(100.0, 120.0),
        "new": Vote(100.0, 130.0),
        "me": Vote(100.0),
    }

    seen = standing(votes, "me", followed_until=120.0)

    assert (seen.nodes, seen.against, seen.first_until, seen.last_until) == (4, 1, 130.0, 130.0)
    assert seen.why == "1 of 4 processes have found it unhealthy"


def test_without_any_vote_there_is_nothing_to_follow():
    assert standing({"me": Vote(100.0)}, "me", 0.0) == Quorum(100.0, 1)
