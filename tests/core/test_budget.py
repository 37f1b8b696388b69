"""Budgets: tokens of a dependency, and what a turn may spend, in this process and in others."""

import pytest

from effectonce import Bucket, Budget, Certainty, ContractViolation, RetryBudget, Verdict
from effectonce._core.budget import Purchase, TokenBucket, TurnState
from effectonce._core.ops import Cell, ReadCell, Unavailable, WriteCell
from effectonce._drivers import drive
from effectonce._runtime.plain_performers import Plain
from effectonce.errors import StoreUnavailable
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

DOWN = Verdict(Bucket.SERVER_ERROR, Certainty.AMBIGUOUS)
BUSY = Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED)


def charge(budget, verdict=DOWN, store=None):
    return drive(budget.charge(verdict), Plain(store))


# ---------------------------------------------------------------- tokens


def test_a_bucket_is_never_overdrawn_and_never_overfull():
    bucket = TokenBucket(10)
    assert [bucket.charge(4), bucket.charge(4), bucket.charge(4)] == [True, True, False]
    assert bucket.level == 2
    bucket.earn(100)
    assert bucket.level == 10
    assert TokenBucket(10, level=99).level == 10


def test_a_budget_stops_retries_when_nobody_answers_and_allows_them_again_when_somebody_does():
    budget = RetryBudget("stripe", capacity=28)
    assert [charge(budget) for _ in range(3)] == [True, True, False]
    for _ in range(13):
        budget.succeeded()
    assert not charge(budget)
    budget.succeeded()
    assert charge(budget)
    assert budget.level == 0


def test_a_throttled_retry_is_cheaper():
    budget = RetryBudget("stripe", capacity=14)
    assert [charge(budget, BUSY) for _ in range(3)] == [True, True, False]
    assert not charge(budget, DOWN)


def test_a_retry_that_succeeds_gives_its_cost_back_and_no_more_than_that():
    budget = RetryBudget("stripe", capacity=28)
    assert [charge(budget), charge(budget, BUSY), charge(budget)] == [True, True, False]

    budget.refund(BUSY)
    after = budget.level
    budget.refund(DOWN)
    budget.refund(DOWN)

    assert (after, budget.level) == (28 - 14, 28)


def test_a_retry_that_cost_nothing_earns_what_a_success_earns():
    budget = RetryBudget("stripe", capacity=28, costs={Bucket.RATE_LIMIT: 0.0})
    charge(budget)

    budget.refund(BUSY)

    assert budget.level == 15


def test_what_is_given_back_is_shared_with_the_next_charge():
    store = MemoryStore()
    ours, theirs = (RetryBudget("stripe", capacity=28, shared=True) for _ in range(2))
    assert [charge(ours, store=store), charge(ours, store=store)] == [True, True]

    ours.refund(DOWN)

    assert not charge(theirs, store=store)  # it has not heard of it
    assert charge(ours, store=store)
    assert not charge(ours, store=store)


def test_costs_are_the_users():
    budget = RetryBudget("stripe", capacity=6, cost=3, costs={Bucket.SERVER_ERROR: 6.0})
    assert charge(budget, DOWN)
    assert not charge(budget, BUSY)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"name": ""}, "needs the name"),
        ({"capacity": 0}, "holds some tokens"),
        ({"capacity": float("inf")}, "holds some tokens"),
        ({"cost": -1}, "negative"),
        ({"costs": {Bucket.QUOTA: float("nan")}}, "negative"),  # it would make every retry free
        ({"costs": {Bucket.QUOTA: -1}}, "negative"),
        ({"earns": -1}, "negative"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(settings, complaint):
    with pytest.raises(ContractViolation, match=complaint):
        RetryBudget(**{"name": "stripe"} | settings)


def test_a_shared_budget_is_one_for_all_processes():
    store = MemoryStore()
    ours, theirs = (RetryBudget("stripe", capacity=28, shared=True) for _ in range(2))
    assert [charge(ours, store=store), charge(theirs, store=store)] == [True, True]
    assert [charge(ours, store=store), charge(theirs, store=store)] == [False, False]
    assert ours.level == theirs.level == 0
    for _ in range(14):
        theirs.succeeded()
    assert charge(theirs, store=store)
    assert not charge(ours, store=store)


def test_what_was_earned_is_shared_though_the_retry_that_tells_it_is_refused():
    store = MemoryStore()
    ours, theirs = (RetryBudget("stripe", capacity=14, shared=True) for _ in range(2))
    assert charge(ours, store=store)
    for _ in range(13):
        ours.succeeded()
    assert not charge(ours, store=store)
    theirs.succeeded()
    assert charge(theirs, store=store)


def test_to_look_at_a_shared_budget_changes_nothing():
    """A metric that is read every few seconds would otherwise keep the successes from all other
    processes.
    """
    budget = RetryBudget("stripe", capacity=14, shared=True)
    empty = Cell(0.0, b"\xcb\x00\x00\x00\x00\x00\x00\x00\x00", 2)
    assert answered(budget.charge(DOWN), empty)[0] is False
    for _ in range(14):
        budget.succeeded()
    assert [budget.level, budget.level] == [14, 14]
    assert answered(budget.charge(DOWN), empty, None)[0] is True


def test_a_shared_budget_without_its_store_counts_for_itself():
    class Away(MemoryStore):
        def apply(self, op):
            raise StoreUnavailable("gone")

    for store in (None, Away()):
        budget = RetryBudget("stripe", capacity=28, shared=True)
        assert [charge(budget, store=store) for _ in range(3)] == [True, True, False]


def answered(flow, *replies):
    """Drive a flow by hand."""
    op, asked = next(flow), []
    for reply in replies:
        asked.append(op)
        try:
            op = flow.send(reply)
        except StopIteration as done:
            return done.value, asked
    raise AssertionError(f"it goes on with {op}")


def test_whoever_was_faster_is_seen():
    budget = RetryBudget("stripe", capacity=28, shared=True)
    faster = Cell(0.0, b"\xcb@,\x00\x00\x00\x00\x00\x00", 2)  # 14.0
    charged, asked = answered(budget.charge(DOWN), Cell(0.0), faster, None)
    assert charged is True
    assert [type(op) for op in asked] == [ReadCell, WriteCell, WriteCell]
    assert asked[-1].revision == 2
    assert budget.level == 0


def test_what_others_spend_all_the_time_is_not_spent_once_more():
    budget = RetryBudget("stripe", capacity=28, shared=True)
    busy = Cell(0.0, b"", 1)
    assert answered(budget.charge(DOWN), *[busy] * 21)[0] is False
    turn = TurnState("turn", Budget(steps=8, attempts=3, repairs=1).limits, "turn 7")
    refusal, asked = answered(turn.spend(Purchase("a")), *[Cell(0.0)] * 27)
    assert refusal == "turn 7 is being spent by others"
    assert len(asked) == 1 + 26  # as often as others can have bought something, and once more


def test_a_budget_that_stays_as_it_is_is_not_written():
    budget = RetryBudget("stripe", capacity=28, shared=True)
    empty = Cell(0.0, b"\xcb\x00\x00\x00\x00\x00\x00\x00\x00", 2)
    charged, asked = answered(budget.charge(DOWN), empty)
    assert charged is False
    assert [type(op) for op in asked] == [ReadCell]


# ---------------------------------------------------------------- turns


class Spending:
    def __init__(self, store=None, **limits):
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock) if store is None else store
        self.budget = Budget(**limits)

    def spend(self, step="a", after=None, *, again=False, repair=False):
        turn = TurnState("turn", self.budget.limits, "turn 7")  # each time another process
        refusal = drive(turn.spend(Purchase(step, again, after, repair)), Plain(self.store))
        self.left_s = turn.left_s
        return refusal


def test_a_step_has_so_many_attempts_and_a_turn_so_many_steps():
    turn = Spending(attempts=2, steps=2)
    assert [turn.spend("a"), turn.spend("a", again=True), turn.spend("b")] == ["", "", ""]
    assert turn.spend("a", again=True) == "this step of turn 7 has had its 2 attempt(s)"
    assert turn.spend("c") == "turn 7 has taken its 2 steps"
    assert turn.spend("b", again=True) == ""


def test_what_a_step_does_for_the_first_time_is_no_other_attempt_and_writes_nothing():
    turn = Spending(attempts=1, steps=1)
    assert [turn.spend("a") for _ in range(5)] == [""] * 5
    asked = []
    turn.store.apply, applied = (lambda op: asked.append(op) or applied(op)), turn.store.apply
    assert turn.spend("a") == ""
    assert [type(op) for op in asked] == [ReadCell]


def test_a_turn_has_so_much_time_by_the_stores_clock():
    turn = Spending(wall_s=90)
    assert turn.spend() == ""
    turn.clock.advance(30)
    assert turn.spend() == ""
    assert turn.left_s == 60
    turn.clock.advance(60)
    assert turn.spend("b") == "turn 7 has taken its 90 s"


def test_a_turn_has_so_many_repair_prompts():
    turn = Spending(repairs=1)
    assert turn.spend(repair=True) == ""
    assert turn.spend(repair=True) == "turn 7 has had its 1 repair prompt(s)"


def test_a_turn_retries_one_kind_of_error_so_often():
    turn = Spending(attempts=9, by_bucket={Bucket.RATE_LIMIT: 1, Bucket.SERVER_ERROR: 0})
    assert turn.spend("a", Bucket.RATE_LIMIT) == ""
    assert turn.spend("b", Bucket.RATE_LIMIT) == "turn 7 has retried rate_limit 1 time(s)"
    assert turn.spend("a", Bucket.SERVER_ERROR) == "turn 7 has retried server_error 0 time(s)"
    assert turn.spend("a", Bucket.NO_ANSWER) == ""


def test_what_is_refused_is_not_spent():
    turn = Spending(attempts=1, steps=2)
    assert turn.spend("a") == ""
    assert turn.spend("c", again=True) != ""
    assert turn.spend("b") == ""


def test_a_store_that_cannot_be_asked_stops_nobody():
    turn = TurnState("turn", Budget().limits, "turn 7")
    gone = Unavailable(StoreUnavailable("gone"))
    assert answered(turn.spend(Purchase("a")), gone)[0] == ""
    assert answered(turn.spend(Purchase("a")), Cell(0.0), gone)[0] == ""


def test_while_the_store_cannot_be_asked_a_turn_counts_for_itself():
    turn = TurnState("turn", Budget(repairs=2, attempts=2).limits, "turn 7")
    gone, repair, again = (
        Unavailable(StoreUnavailable("gone")),
        Purchase(repair=True),
        Purchase("a", again=True),
    )

    assert answered(turn.spend(repair), Cell(0.0), None)[0] == ""  # the store knows of this one
    assert answered(turn.spend(repair), gone)[0] == ""
    assert answered(turn.spend(repair), gone)[0] == "turn 7 has had its 2 repair prompt(s)"
    assert answered(turn.spend(again), gone)[0] == ""
    assert answered(turn.spend(again), gone)[0] == "this step of turn 7 has had its 2 attempt(s)"


@pytest.mark.parametrize(
    "limits",
    [
        {"attempts": 0},
        {"steps": 0},
        {"wall_s": 0},
        {"wall_s": float("inf")},
        {"repairs": -1},
        {"by_bucket": {"often": 1}},
    ],
)
def test_limits_that_make_no_sense_are_refused(limits):
    with pytest.raises(ContractViolation):
        Budget(**limits)
