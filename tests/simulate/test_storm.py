"""After the outage: who comes back, how much is sent, what happens twice."""

import pytest

from effectonce._core.budget import TokenBucket
from effectonce.simulate import storm

SEEDS = (7, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)))


@pytest.fixture(scope="module", params=SEEDS)
def storms(request):
    return {one.policy: one for one in storm.simulate(seed=request.param).policies}


def test_everybody_is_well_before_the_outage(storms):
    assert all(one.goodput_before >= 0.97 for one in storms.values())


@pytest.mark.parametrize("policy", ["naive", "naive + keys", "jitter", "one layer"])
def test_retries_keep_the_outage_alive(storms, policy):
    assert storms[policy].goodput <= 0.05
    assert not storms[policy].recovered


@pytest.mark.parametrize("policy", ["no retries", "budget", "breaker", "whole"])
def test_who_stops_asking_comes_back(storms, policy):
    assert storms[policy].goodput >= 0.95
    assert storms[policy].recovered


def test_the_whole_policy_comes_back_and_sends_little(storms):
    whole = storms["whole"]

    assert whole.goodput >= 0.99
    assert whole.amplification <= 1.2
    assert whole.worst <= 1.5


def test_layers_multiply(storms):
    assert storms["naive"].amplification > 3
    assert storms["naive"].amplification > 2 * storms["one layer"].amplification


def test_keys_keep_effects_apart_and_change_nothing_else(storms):
    assert storms["naive"].duplicates > 100
    assert storms["naive + keys"].duplicates == 0
    assert storms["naive + keys"].answered == storms["naive"].answered
    assert storms["whole"].duplicates == 0


def test_retries_are_of_use_on_a_good_day(storms):
    assert storms["whole"].goodput > storms["no retries"].goodput


def test_a_seed_is_a_history():
    few = {"rate": 10, "policies": storm.POLICIES[:1]}

    assert storm.simulate(seed=3, **few) == storm.simulate(seed=3, **few)
    assert storm.simulate(seed=3, **few) != storm.simulate(seed=4, **few)


def test_the_budget_and_the_breaker_are_the_shipped_ones(monkeypatch):
    """With a budget that pays for everything and a breaker that never opens, nobody comes back."""
    monkeypatch.setattr(TokenBucket, "charge", lambda self, cost: True)
    monkeypatch.setattr(storm.Machine, "failed", lambda self, *told: None)

    theirs = [one for one in storm.POLICIES if one.name in ("budget", "breaker", "whole")]

    storms = storm.simulate(seed=7, policies=theirs).policies

    assert [one.recovered for one in storms] == [False] * 3


def test_a_longer_outage_and_more_load_are_harder_to_come_back_from():
    easy = storm.simulate(rate=10, outage=storm.Outage(load=0.3, outage_s=5.0, left=0.5))
    hard = storm.simulate(rate=10, outage=storm.Outage(load=0.9, outage_s=30.0, left=0.0))

    assert all(one.recovered for one in easy.policies)
    assert sum(one.recovered for one in hard.policies) < len(hard.policies)


@pytest.mark.parametrize(
    ("name", "value"),
    [("load", 0), ("load", 2), ("outage_s", 61), ("left", -0.1), ("lost", 0.9), ("queue_s", 0)],
)
def test_an_outage_outside_its_ranges_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name}={value:g}: choose a number from"):
        storm.Outage(**{name: value})
