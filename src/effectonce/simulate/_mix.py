"""What the day of turns is made of: every number, where it is from, and how far off it may be.

Published numbers have their source, second-hand ones say so, and the rest are assumptions.
Several were settled after results were seen: `docs/explanation/simulations.md` says which, and
what comes out otherwise. Move any number with `--set name=value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from effectonce.policy import Retry
from effectonce.retries.breaker_policy import CONSECUTIVE

FIXTURE = (
    "TCC editorial, agent retry policy, 2026: 180,000 turns a day, four vendors, at most 8 steps"
    " and 90 s for a turn"
)
DATADOG = (
    "the sum: Datadog, State of AI Engineering 2026, as devlery.com reports it (in March 2 % of LLM"
    " calls failed, 70 % of these not on rate limits); the split is an assumption"
)
UPTIME = (
    "aicheckerhub.com/status-history-archive, 90 days; not compared with the vendors' own pages"
)
AWS = "botocore 1.44, standard mode"
OURS = "assumption"
POLICY = Retry()
DEFAULT, BUDGET = "`Retry` as it comes", "`RetryBudget` as it comes"


class Assumption(Struct, frozen=True):
    name: str
    value: float
    low: float
    high: float
    says: str
    source: str = OURS
    whole: bool = False  # it is counted


def _of(
    vendor: str,
    uptime: float,
    window_s: float,
    source: str,
    *,
    refills: bool,
    tells: bool,
    seen: str,
) -> tuple[Assumption, ...]:
    share = f"share of the turns that go to {vendor}"
    up = "what its status page says; the rest of the time is a partial outage"
    window = "over what time its limit is enforced"
    refill = "1: the limit refills all the time; 0: with every window"
    tell = "1: a 429 says how long to wait"
    return (
        Assumption(f"{vendor}.share", 0.25, 0, 1, share),
        Assumption(f"{vendor}.uptime", uptime, 0.5, 1, up, seen),
        Assumption(f"{vendor}.window_s", window_s, 1, 60, window, source),
        Assumption(f"{vendor}.refills", float(refills), 0, 1, refill, source, whole=True),
        Assumption(f"{vendor}.tells", float(tells), 0, 1, tell, source, whole=True),
    )


ASSUMPTIONS: tuple[Assumption, ...] = (
    Assumption("turns", 180_000, 1_000, 1_000_000, "turns in 24 hours", FIXTURE, whole=True),
    Assumption("steps_mean", 3, 1, 8, "model calls in a turn, on average"),
    Assumption("steps_max", 8, 1, 50, "model calls in a turn, at most", FIXTURE, whole=True),
    Assumption(
        "step_s", 4, 0.5, 30, "how long a model call takes, median: 300 tokens at 75 in a second"
    ),
    Assumption("step_spread", 0.6, 0, 1.5, "sigma of the log of that time"),
    Assumption("peak", 1.8, 1, 4, "load of the busiest hour, over the mean of the day"),
    Assumption(
        "scheduled",
        0.15,
        0,
        0.5,
        "share of the turns that start together, by a schedule: set so that naive callers get a 429"
        " for 3.8 % of their calls",
        "TCC editorial: 3.8 % before jitter; Datadog, as devlery.com reports it: 3 % in February"
        " 2026",
    ),
    Assumption("schedule_s", 300, 60, 3600, "how often a schedule starts turns"),
    Assumption("headroom", 1.25, 1, 100, "the rate limit, over the mean load of the busiest hour"),
    Assumption(
        "server_error",
        0.004,
        0,
        0.02,
        "share of calls that fail on their side, outside incidents; with the six faults below it is"
        " 1.3 %",
        DATADOG,
    ),
    Assumption("no_answer", 0.001, 0, 0.02, "share of calls that never answer"),
    Assumption(
        "parse",
        0.007,
        0,
        0.3,
        "share of answers that are not valid JSON",
        "Interfaze, Structured Output Benchmark, 2026-04, as cloudai.pt reports it: 99.3 % valid"
        " for the best model, 97 % or more for all",
    ),
    Assumption("context_length", 0.001, 0, 0.05, "share of calls whose context is too long"),
    Assumption("schema", 0.0001, 0, 0.05, "share of requests that are wrong and stay wrong"),
    Assumption("content_policy", 0.00015, 0, 0.05, "share of requests that a policy refuses"),
    Assumption("auth", 0.00005, 0, 0.05, "share of requests with credentials that do not do"),
    Assumption(
        "parse_again",
        0.5,
        0,
        1,
        "share of invalid answers that are invalid again if the same prompt is sent again",
    ),
    Assumption("spell_s", 2, 0, 60, "how long a server error lasts for who met it, on average"),
    Assumption(
        "incident_share",
        0.3,
        0.05,
        1,
        "share of calls that fail during an incident",
        "status pages count a partial outage as 30 % of a major one"
        " (instatus.com/help/status-page/uptime-colors)",
    ),
    Assumption(
        "incidents",
        4,
        1,
        24,
        "into how many pieces the incident time of an average day falls, so that one day stands for"
        " many",
    ),
    Assumption("refusal_s", 0.1, 0, 1, "how soon a 429 or 400 comes"),
    Assumption("error_s", 0.5, 0, 10, "how soon a server error comes"),
    Assumption("time_out_s", 30, 5, 600, "how long a caller waits for an answer"),
    Assumption(
        "naive_attempts",
        3,
        1,
        10,
        "attempts of the naive policy: two retries, as many as SDKs make by default, but at once",
        whole=True,
    ),
    Assumption(
        "alike_attempts",
        8,
        1,
        20,
        "attempts for a step, of the two other policies that treat all errors alike",
        whole=True,
    ),
    Assumption(
        "attempts",
        POLICY.attempts,
        1,
        20,
        "how often a step may fail, of the whole policy",
        DEFAULT,
        whole=True,
    ),
    Assumption(
        "throttled_attempts",
        POLICY.throttled_attempts,
        1,
        50,
        "attempts for a step, of the whole policy, with those that a 429 or an overload put off",
        DEFAULT,
        whole=True,
    ),
    Assumption("fixed_s", 1, 0, 60, "the fixed delay", FIXTURE),
    Assumption(
        "base_s",
        1,
        0.05,
        5,
        "the first ceiling of the jitter; AWS SDKs use 1 s after throttling",
        AWS,
    ),
    Assumption(
        "other_base_s",
        POLICY.base_s,
        0.05,
        5,
        "the same, of the whole policy, after anything else than throttling",
        DEFAULT,
    ),
    Assumption("cap_s", 20, 1, 120, "its highest ceiling", FIXTURE),
    Assumption("deadline_s", 90, 10, 600, "time for a turn's retries, of all policies", FIXTURE),
    Assumption(
        "breaker_consecutive",
        CONSECUTIVE,
        1,
        1e6,
        "the breaker of the whole policy opens after so many failures in a row",
        "`Breaker` as it comes",
        whole=True,
    ),
    Assumption(
        "budget", 500, 1, 10_000, "tokens for retries in each process, of the whole policy", BUDGET
    ),
    Assumption(
        "processes",
        20,
        1,
        1000,
        "processes that share the load, each with its own budget and breaker",
        whole=True,
    ),
    Assumption("budget_cost", 14, 1, 100, "what a retry costs", BUDGET),
    Assumption("budget_cost_429", 5, 1, 100, "what a retry after a 429 or overload costs", BUDGET),
    *_of(
        "anthropic",
        0.9963,
        60,
        "docs.anthropic.com, Rate limits: per minute, `retry-after`; that it is a bucket which"
        " refills all the time is second-hand",
        refills=True,
        tells=True,
        seen=UPTIME,
    ),
    *_of(
        "openai",
        0.9971,
        10,
        "OpenAI's guide, as quoted on community.openai.com: may be enforced over shorter periods;"
        " learn.microsoft.com for Azure: 1 or 10 s",
        refills=False,
        tells=True,
        seen=UPTIME,
    ),
    *_of(
        "google",
        0.9918,
        60,
        "ai.google.dev, Rate limits: requests and tokens per minute; `RetryInfo` is in the body of"
        " its 429s",
        refills=False,
        tells=True,
        seen=UPTIME,
    ),
    *_of(
        "bedrock",
        0.999,
        60,
        "repost.aws, bedrock-throttling-error: requests and tokens per minute; no delay is named"
        " there",
        refills=False,
        tells=False,
        seen="its service level agreement, second-hand (callsphere.ai)",
    ),
)
VENDORS = ("anthropic", "openai", "google", "bedrock")
Mix = Mapping[str, float]
DEFAULTS: Mix = MappingProxyType({a.name: a.value for a in ASSUMPTIONS})


def changed(changes: Mapping[str, float]) -> Mix:
    """The defaults with some of them moved, within their ranges."""
    known = {a.name: a for a in ASSUMPTIONS}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"there is no assumption {name!r}: there are {', '.join(known)}")
        low, high, whole = known[name].low, known[name].high, known[name].whole
        if not low <= value <= high or (whole and value != int(value)):
            wanted = f"choose a {'whole ' * whole}number from {low:g} to {high:g}"
            raise ValueError(f"{name}={value:g}: {wanted}")
    return MappingProxyType({**DEFAULTS, **changes})


def markdown() -> str:
    """The table on the page about simulations."""
    lines = ["| name | value | range | what it says | source |", "|---|---|---|---|---|"]
    lines += [
        f"| `{a.name}` | {a.value:g} | {a.low:g} to {a.high:g} | {a.says} | {a.source} |"
        for a in ASSUMPTIONS
    ]
    return "\n".join(lines)
