"""The day of turns: the published figures, and that they follow from what is assumed."""

import re
from pathlib import Path

import pytest

from effectonce import Breaker, Bucket, Retry, RetryBudget
from effectonce.simulate import _mix, turns
from effectonce.simulate._vendors import Prompt, Vendor, Window, verdict_of
from effectonce.simulate._vendors import VendorBucket as Refilling

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "simulations.md"


@pytest.fixture(scope="module")
def day():
    return {one.policy: one for one in turns.simulate().policies}


# ---------------------------------------------------------------- the figures


def test_the_naive_baseline_is_near_six_percent(day):
    assert 0.05 <= day["naive"].unretryable <= 0.07


def test_the_whole_policy_leaves_two_turns_in_a_thousand(day):
    assert round(day["whole"].unretryable, 3) <= 0.002
    assert day["whole"].latency_factor <= 1.08


def test_the_whole_policy_is_the_default_as_it_comes():
    came = RetryBudget("x")._bucket.capacity, RetryBudget("x")._costs
    names = (
        "attempts",
        "throttled_attempts",
        "other_base_s",
        "base_s",
        "cap_s",
        "deadline_s",
        "breaker_consecutive",
    )
    retry = Retry()

    assert [_mix.DEFAULTS[name] for name in names] == [
        *(
            retry.attempts,
            retry.throttled_attempts,
            retry.base_s,
            retry.throttled_base_s,
            retry.cap_s,
            retry.deadline_s,
        ),
        Breaker().consecutive,
    ]
    assert (_mix.DEFAULTS["budget"], _mix.DEFAULTS["budget_cost"]) == (came[0], came[1].other)
    assert set(came[1].by_bucket.values()) == {_mix.DEFAULTS["budget_cost_429"]}


MIXES = {
    "as it is": {},
    "little room": {"headroom": 1.1},
    "herds": {"scheduled": 0.3},
    "whole outages": {"incident_share": 1.0},
    "one process": {"processes": 1.0},
    "mostly bedrock": {
        "bedrock.share": 0.7,
        "openai.share": 0.1,
        "google.share": 0.1,
        "anthropic.share": 0.1,
    },
}


@pytest.mark.parametrize(
    "mix", ["as it is", *(pytest.param(mix, marks=pytest.mark.long) for mix in [*MIXES][1:])]
)
def test_the_default_holds_on_seeds_that_it_was_not_chosen_by(mix):
    found = [
        {
            one.policy: one
            for one in turns.simulate(seed=seed, turns=6000, changes=MIXES[mix]).policies
        }
        for seed in (31, 32)
    ]

    ended = [sum(day[policy].unretryable for day in found) / 2 for policy in ("jitter", "whole")]
    assert ended[1] <= 0.004
    assert ended[1] < ended[0]


def test_jitter_loses_fewer_turns_to_429s_than_a_fixed_delay(day):
    assert day["fixed"].lost_to_429 >= 3.8 / 0.9 * day["jitter"].lost_to_429


def test_who_waits_as_told_gets_the_fewest_429s(day):
    assert (
        day["whole"].answered_429
        < day["naive"].answered_429
        < day["jitter"].answered_429
        < day["fixed"].answered_429
    )


def test_the_ends_add_up(day):
    for one in day.values():
        assert sum(one.ended_by.values()) == pytest.approx(one.unretryable, abs=1e-5)


def test_a_seed_is_a_history():
    few = {"turns": 1000}

    assert turns.simulate(seed=1, **few) == turns.simulate(seed=1, **few)
    assert turns.simulate(seed=1, **few) != turns.simulate(seed=2, **few)


# ---------------------------------------------------------------- moving an assumption moves the
# result


def moved(**changes):
    return {one.policy: one for one in turns.simulate(turns=2000, changes=changes).policies}


def test_429s_come_from_the_limits():
    assert all(one.answered_429 == 0 for one in moved(headroom=100).values())
    assert moved(headroom=1)["whole"].answered_429 > 0.03


def test_without_faults_and_limits_nothing_ends_and_nothing_takes_longer():
    faults = (
        "server_error",
        "no_answer",
        "parse",
        "context_length",
        "schema",
        "content_policy",
        "auth",
    )
    perfect = {f"{vendor}.uptime": 1.0 for vendor in _mix.VENDORS} | dict.fromkeys(faults, 0.0)

    for one in moved(headroom=100, **perfect).values():
        assert (one.unretryable, one.latency_factor, one.calls_per_step) == (0, 1, 1)


def test_what_no_policy_absorbs_is_the_floor():
    assert moved(schema=0.01)["whole"].ended_by["schema"] > 0.02


def test_a_prompt_is_corrected_once_per_turn():
    alone = moved(parse=0.2, parse_again=1.0)

    assert alone["whole"].ended_by["parse"] < 0.5 * alone["jitter"].ended_by["parse"]


def test_a_context_is_shortened():
    day = moved(context_length=0.02)

    assert (
        day["whole"].ended_by.get("context_length", 0)
        < 0.1 * day["jitter"].ended_by["context_length"]
    )


def test_no_policy_retries_after_the_deadline():
    patient, hurried = moved(headroom=1), moved(headroom=1, deadline_s=20)

    for policy in ("fixed", "jitter", "whole"):
        assert hurried[policy].lost_to_429 > patient[policy].lost_to_429
        assert hurried[policy].latency_factor < patient[policy].latency_factor


def test_an_outage_opens_the_breaker_and_saves_calls():
    outage = {"openai.uptime": 0.5, "incident_share": 1.0, "incidents": 1.0}
    outage["processes"] = 1.0
    opened, never = moved(**outage), moved(**outage, breaker_consecutive=1e6)

    assert opened["whole"].ended_by["circuit_open"] > 0
    assert opened["whole"].calls_per_step < 0.95 * never["whole"].calls_per_step


def test_a_spent_budget_ends_turns():
    outage = {"openai.uptime": 0.85, "incidents": 1.0}

    assert (
        moved(**outage, budget=1)["whole"].ended_by["server_error"]
        > 3 * moved(**outage)["whole"].ended_by["server_error"]
    )


def test_an_unknown_assumption_is_refused():
    with pytest.raises(ValueError, match=r"no assumption 'headrom': there are turns, steps_mean"):
        turns.simulate(changes={"headrom": 2})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("spell_s", -1, "spell_s=-1: choose a number from 0 to 60"),
        ("headroom", 0.9, "headroom=0.9: choose a number from 1 to 100"),
        ("cap_s", 1e6, r"cap_s=1e\+06: choose a number from 1 to 120"),
        ("attempts", 2.5, "attempts=2.5: choose a whole number from 1 to 20"),
        ("openai.tells", 0.5, "openai.tells=0.5: choose a whole number from 0 to 1"),
        ("headroom", float("nan"), "headroom=nan: choose a number"),
    ],
)
def test_an_assumption_outside_its_range_is_refused(name, value, told):
    with pytest.raises(ValueError, match=told):
        turns.simulate(changes={name: value})


@pytest.mark.parametrize("name", [one.name for one in _mix.ASSUMPTIONS])
def test_no_extreme_of_an_assumption_breaks_the_day(name):
    """Within its range and at both ends of it, every number gives a result."""
    for value in {one.name: (one.low, one.high) for one in _mix.ASSUMPTIONS}[name]:
        changes = {name: value, "turns": 180_000.0} | ({"turns": value} if name == "turns" else {})
        result = turns.simulate(turns=100, changes=changes)

        assert all(0 <= one.unretryable < 1 for one in result.policies)


def test_a_day_on_which_nobody_succeeds_is_refused():
    with pytest.raises(ValueError, match="hardly any turn succeeds with the policy naive"):
        turns._ended("naive", [], turns=1000, steps=3000)


# ---------------------------------------------------------------- vendors


@pytest.mark.parametrize("vendor", _mix.VENDORS)
@pytest.mark.parametrize(
    ("kind", "buckets"),
    [
        ("rate_limit", {Bucket.RATE_LIMIT}),
        ("server_error", {Bucket.SERVER_ERROR, Bucket.OVERLOADED}),
        ("no_answer", {Bucket.NO_ANSWER}),
        ("parse", {Bucket.PARSE}),
        ("context_length", {Bucket.CONTEXT_LENGTH}),
        ("schema", {Bucket.SCHEMA}),
        ("content_policy", {Bucket.CONTENT_POLICY}),
        ("auth", {Bucket.AUTH}),
    ],
)
def test_the_classifier_knows_every_simulated_answer(vendor, kind, buckets):
    assert verdict_of(vendor, kind).bucket in buckets


@pytest.mark.parametrize("vendor", _mix.VENDORS)
def test_the_classifier_reads_how_long_to_wait(vendor):
    assert verdict_of(vendor, "rate_limit", 7).retry_after_s == 7


def test_a_limit_that_refills_has_room_again_bit_by_bit():
    limit = Refilling(rate=2.0, window_s=2.0)

    assert [limit.refuses(0.0) for _ in range(4)] == [None] * 4
    assert limit.refuses(0.0) == 0.5
    assert limit.refuses(0.5) is None


def test_a_limit_that_is_counted_by_windows_has_room_in_the_next_one():
    limit = Window(rate=2.0, window_s=2.0)

    assert [limit.refuses(0.5) for _ in range(4)] == [None] * 4
    assert limit.refuses(0.5) == 1.5
    assert limit.refuses(2.0) is None


def test_a_vendor_that_does_not_tell_is_not_understood_to():
    silent, telling = (
        Vendor(name, _mix.DEFAULTS, turns.Random(1), rate=1.0, day_s=100.0).verdict(
            "rate_limit", 3.2
        )
        for name in ("bedrock", "openai")
    )

    assert silent.retry_after_s is None
    assert telling.retry_after_s == 4


def test_what_is_wrong_with_a_request_stays_wrong():
    vendor = Vendor(
        "openai", {**_mix.DEFAULTS, "schema": 1.0}, turns.Random(1), rate=1.0, day_s=100.0
    )
    prompt = Prompt()

    assert {vendor.answer(50.0, prompt) for _ in range(5)} == {"schema"}


# ---------------------------------------------------------------- the page


def test_the_page_shows_the_assumptions_as_the_code_has_them():
    """After a change: `effectonce simulate turns --assumptions`, between the two marks."""
    shown = re.search(
        r"<!-- assumptions -->\n(.*?)<!-- /assumptions -->", PAGE.read_text(), re.DOTALL
    )[1]

    assert shown == _mix.markdown() + "\n"


def test_every_assumption_is_within_its_range():
    assert all(one.low <= one.value <= one.high for one in _mix.ASSUMPTIONS)
    assert len(_mix.DEFAULTS) == len(_mix.ASSUMPTIONS)


def rows():
    shown = re.search(r"<!-- moves -->\n(.*?)<!-- /moves -->", PAGE.read_text(), re.DOTALL)[1]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines()[2:]
    ]


def ids(row):
    return row[0].replace("`", "")


@pytest.mark.parametrize(
    "row",
    [rows()[0], *(pytest.param(row, marks=pytest.mark.long) for row in rows()[1:])],
    ids=ids,
)
def test_the_page_shows_what_moves_the_result(row):
    changes = {name: float(value) for name, value in re.findall(r"`(\S+)=(\S+)`", row[0])}

    day = turns.simulate(changes=changes).policies

    assert row[1:] == [*(f"{one.unretryable:.2%}" for one in day), f"{day[-1].latency_factor:.3f}"]
