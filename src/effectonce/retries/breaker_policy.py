"""When a breaker opens and how it closes: a policy, checked when it is made."""

from __future__ import annotations

from math import inf

from msgspec import Struct
from msgspec.structs import force_setattr

from effectonce._core.breaker.machine import NEVER_COUNTED, UNHEALTHY, Limits
from effectonce._core.classification.classify import Bucket
from effectonce._validate import flags, numbers, require, whole

# so many failures in a row open a breaker that was not configured with when to open
CONSECUTIVE = 5


class Breaker(Struct, frozen=True, kw_only=True):
    """When to stop asking a dependency that is unwell, and how to find out that it is well again.

    It opens after so many *consecutive* failures, or so many *failures* in the window, or when
    the *rate* of failures or the *slow_rate* of calls of *slow_s* and longer is reached in the
    window, if that holds at least *minimum* calls. The window is the last *window_s* seconds or,
    if given, the last *window_calls* calls. Any one that is given opens it; if none is, five
    consecutive failures do.
    """

    consecutive: int | None = None
    failures: int | None = None
    rate: float | None = None
    slow_rate: float | None = None
    slow_s: float | None = None
    window_s: float = 30.0
    window_calls: int | None = None
    minimum: int = 10
    open_s: float = 10.0
    open_max_s: float = 300.0
    growth: float = 2.0
    jitter: float = 0.2
    retry_after_max_s: float = 3600.0
    probes: int = 1
    probe_lease_s: float = 60.0
    successes: int = 1
    counts_as_failure: frozenset[Bucket] = UNHEALTHY
    counts_as_success: frozenset[Bucket] = frozenset()
    shadow: bool = False  # refuse no call, and report what would have happened
    refresh_s: float = 5.0  # how often processes that share it exchange what they found
    quorum: float = 0.5  # more than this share of them, and at least two, open the circuit of all

    def __post_init__(self) -> None:
        opens = (self.consecutive, self.failures, self.rate, self.slow_rate)
        if all(given is None for given in opens):
            force_setattr(self, "consecutive", CONSECUTIVE)
        _check_types(self)
        _check_opening(self)
        _check_open_time(self)
        _check_counting(self)

    @property
    def limits(self) -> Limits:
        """The part that the machine works with."""
        given = {name: getattr(self, name) for name in Limits.__struct_fields__}
        return Limits(**given | {"slow_s": inf if self.slow_s is None else self.slow_s})


_COUNTS = ("consecutive", "failures", "window_calls", "minimum", "probes", "successes")

_MEASURES = (
    "rate", "slow_rate", "slow_s", "window_s", "open_s", "open_max_s", "growth", "jitter",
    "retry_after_max_s", "probe_lease_s", "refresh_s", "quorum",
)  # fmt: skip

_NONE_IS_FINE = ("consecutive", "failures", "rate", "slow_rate", "slow_s", "window_calls")


def _check_types(policy: Breaker) -> None:
    for check, names in ((whole, _COUNTS), (numbers, _MEASURES)):
        for name in names:
            value = getattr(policy, name)
            if value is not None or name not in _NONE_IS_FINE:
                check(**{name: value})
    flags(shadow=policy.shadow)


def _check_opening(policy: Breaker) -> None:
    slow_rate, slow_s = policy.slow_rate, policy.slow_s
    for name, count in (("consecutive", policy.consecutive), ("failures", policy.failures)):
        require(count is None or count >= 1, f"{name}={count}: it takes at least one to open")
    for name, rate in (("rate", policy.rate), ("slow_rate", slow_rate)):
        share = f"{name}={rate}: a share of the calls, above 0 and up to 1"
        require(rate is None or 0 < rate <= 1, share)
    require(
        (slow_rate is None) == (slow_s is None),
        f"slow_rate={slow_rate} and slow_s={slow_s}: one needs the other",
    )
    require(slow_s is None or 0 < slow_s < inf, f"slow_s={slow_s}: how many seconds are slow?")
    require(
        0 < policy.window_s < inf,
        f"window_s={policy.window_s}: the window must be positive and end some day",
    )
    require(policy.minimum >= 1, f"minimum={policy.minimum}: a rate is of at least one call")
    if policy.window_calls is not None:
        _check_window_of(policy, policy.window_calls)


def _check_window_of(policy: Breaker, calls: int) -> None:
    failures, rated = policy.failures, policy.rate is not None or policy.slow_rate is not None
    require(calls >= 1, f"window_calls={calls}: a window holds at least one call")
    require(
        rated or failures is not None,
        f"window_calls={calls}: a window needs failures, a rate or a slow_rate to watch",
    )
    require(
        calls >= policy.minimum or not rated,
        f"window_calls={calls} and minimum={policy.minimum}: a window that never holds the minimum"
        " never opens",
    )
    require(
        failures is None or calls >= failures,
        f"window_calls={calls} and failures={failures}: they never fit the window",
    )


def _check_open_time(policy: Breaker) -> None:
    base_s, max_s = policy.open_s, policy.open_max_s
    require(
        0 < base_s <= max_s < inf,
        f"open_s={base_s} and open_max_s={max_s}: need 0 < open_s <= open_max_s, and an end",
    )
    require(
        1 <= policy.growth <= 10,
        f"growth={policy.growth}: the open time stays (1) or grows up to tenfold each time",
    )
    require(0 <= policy.jitter <= 1, f"jitter={policy.jitter}: a share of the open time, 0 to 1")
    require(
        policy.retry_after_max_s >= 0,
        f"retry_after_max_s={policy.retry_after_max_s}: waiting cannot be negative",
    )
    require(policy.probes >= 1, f"probes={policy.probes}: without a probe it would never close")
    require(
        policy.probe_lease_s > 0, f"probe_lease_s={policy.probe_lease_s}: a probe needs some time"
    )
    require(policy.successes >= 1, f"successes={policy.successes}: it takes at least one to close")
    require(policy.refresh_s > 0, f"refresh_s={policy.refresh_s}: an exchange needs some time")
    require(
        0 <= policy.quorum < 1,
        f"quorum={policy.quorum}: a share of the processes, from 0 to below 1",
    )


def _check_counting(policy: Breaker) -> None:
    bad, good = policy.counts_as_failure, policy.counts_as_success
    require(
        all(isinstance(bucket, Bucket) for bucket in (*bad, *good)),
        f"counts_as_failure={bad} and counts_as_success={good}: give sets of Bucket",
    )
    both = sorted(frozenset(bad) & frozenset(good))
    require(not both, f"{', '.join(both)} cannot count both as failure and as success")
    never = sorted((frozenset(bad) | frozenset(good)) & (NEVER_COUNTED | {Bucket.OK}))
    require(
        not never,
        f"{', '.join(never)}: this is no failure and no success of a dependency, so it cannot count"
        " as one",
    )
