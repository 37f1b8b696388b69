"""How much a tenant may ask for, by a clock of the test's own."""

import pytest

from effectonce import ContractViolation
from effectonce.http.server.quota import TENANTS_MAX, Meter, Quota, Spending


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_it_begins_full_and_fills_evenly(clock):
    meter = Meter(Quota(keys=2, per_s=60), clock)

    waits = [meter.take("alice", keys=1, bytes=0) for _ in range(3)]
    clock.now = 29
    early = meter.take("alice", keys=1, bytes=0)
    clock.now = 30
    in_time = meter.take("alice", keys=1, bytes=0)

    assert waits == [0, 0, 30]
    assert (early, in_time) == (pytest.approx(1), 0)


def test_it_is_never_more_than_full(clock):
    meter = Meter(Quota(keys=2, per_s=60), clock)

    meter.add("alice", keys=5)
    clock.now = 1000

    assert [meter.take("alice", keys=1, bytes=0) > 0 for _ in range(3)] == [False, False, True]


def test_the_scarcer_of_the_two_decides_and_nothing_is_taken_by_halves(clock):
    meter = Meter(Quota(keys=10, bytes=100, per_s=100), clock)

    first, refused = meter.take("alice", keys=1, bytes=90), meter.take("alice", keys=1, bytes=30)

    assert (first, refused) == (0, 20)
    assert [meter.take("alice", keys=9, bytes=0), meter.take("alice", keys=1, bytes=0) > 0] == [
        0,
        True,
    ]


def test_a_body_that_is_more_than_the_quota_takes_all_of_it_and_is_paid_off(clock):
    meter = Meter(Quota(bytes=100, per_s=100), clock)

    assert meter.take("alice", keys=1, bytes=250) == 0
    assert meter.take("alice", keys=1, bytes=1) == 151
    clock.now = 151
    assert meter.take("alice", keys=1, bytes=1) == 0


def test_what_is_only_known_afterwards_may_overdraw_it(clock):
    meter = Meter(Quota(bytes=100, per_s=100), clock)
    spending = Spending(meter, "alice", 0)

    assert spending.count_body(60) == 0
    spending.count_kept(60)
    spending.close()

    assert meter.take("alice", keys=1, bytes=1) == 21


def test_many_tenants_take_no_more_memory_than_some(clock):
    meter = Meter(Quota(keys=1), clock)

    for number in range(TENANTS_MAX + 5):
        meter.take(f"tenant-{number}", keys=1, bytes=0)

    assert len(meter) == TENANTS_MAX
    assert meter.take(f"tenant-{TENANTS_MAX}", keys=1, bytes=0) > 0


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"keys": 0},
        {"bytes": -1},
        {"keys": 1.5},
        {"keys": 1, "per_s": 0},
        {"keys": 1, "per_s": "h"},
    ],
)
def test_a_quota_that_allows_nothing_is_refused(given):
    with pytest.raises(ContractViolation):
        Quota(**given)
