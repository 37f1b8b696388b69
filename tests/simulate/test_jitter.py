"""Brooker's figures come out, from the delays that are shipped."""

import pytest

from effectonce.simulate import jitter

BROOKER = {  # 100 clients: calls, and ms until all are done
    "none": (2423, 2038),
    "exponential": (1863, 64263),
    "equal": (813, 6683),
    "full": (795, 4866),
    "decorrelated": (1002, 4743),
}


@pytest.fixture(scope="module")
def result():
    return jitter.simulate()


@pytest.mark.parametrize("policy", BROOKER)
def test_the_figures_are_brookers(result, policy):
    found = next(p for p in result.policies if p.policy == policy)
    calls, completion_ms = BROOKER[policy]

    assert found.calls == pytest.approx(calls, rel=0.1)
    assert found.completion_ms == pytest.approx(completion_ms, rel=0.1)


def test_a_seed_is_a_history():
    few = {"clients": 10, "runs": 2}

    assert jitter.simulate(seed=1, **few) == jitter.simulate(seed=1, **few)
    assert jitter.simulate(seed=1, **few) != jitter.simulate(seed=2, **few)


def test_the_delays_are_the_shipped_ones(monkeypatch):
    """Broken delays break the figures: nothing here has a copy of them."""
    monkeypatch.setattr(jitter, "full_jitter", lambda attempt, base_s, cap_s, rng: 0.0)

    broken = {p.policy: p for p in jitter.simulate(clients=30, runs=3).policies}

    assert broken["full"].calls == pytest.approx(broken["none"].calls, rel=0.1)
    assert broken["equal"].calls < 0.8 * broken["none"].calls


def test_everybody_writes_at_least_once():
    assert all(p.calls >= 12 for p in jitter.simulate(clients=12, runs=1).policies)


def test_longer_delays_make_fewer_calls_and_take_longer():
    short, long = (
        jitter.simulate(clients=20, runs=5, waits=jitter.Waits(base_ms=base_ms))
        for base_ms in (5.0, 50.0)
    )
    full = [
        next(one for one in result.policies if one.policy == "full") for result in (short, long)
    ]

    assert full[1].calls < full[0].calls
    assert full[1].completion_ms > full[0].completion_ms
