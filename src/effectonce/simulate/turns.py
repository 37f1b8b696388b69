"""A day of agent turns over four vendors: how many end in an error or get a 429, and their time.

A turn is some model calls, one after the other, at one vendor. Every policy lives through a day
of the same turns at the same times. A model call changes nothing, so whatever is worth another
attempt may have one; what the policies differ in is which, and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import cos, log, pi
from random import Random
from statistics import fmean, quantiles
from typing import TypeAlias

from msgspec import Struct

from effectonce.simulate._callers import CallerTurn, caller
from effectonce.simulate._mix import VENDORS, Mix, changed
from effectonce.simulate._vendors import Prompt, Vendor
from effectonce.simulate._world import World, at_least

DAY_S = 86_400.0
# when a turn starts, and how long its steps take if nothing goes wrong
Plan: TypeAlias = tuple[float, tuple[float, ...]]
POLICIES = ("naive", "fixed", "jitter", "whole")


class EndedTurn(Struct, frozen=True):
    """What one policy made of the day."""

    policy: str
    unretryable: float  # share of turns that end in an error
    lost_to_429: float  # share of turns that a 429 ends
    answered_429: float  # share of calls that are answered with a 429
    # mean time of the turns that succeed, over the same turns without any fault
    latency_factor: float
    p50_factor: float
    p99_factor: float
    calls_per_step: float
    ended_by: dict[str, float]  # share of turns, by the kind of error that ended them


class TurnsResult(Struct, frozen=True):
    turns: int
    seed: int
    changes: dict[str, float]  # assumptions that were moved
    policies: tuple[EndedTurn, ...]


def plan(mix: Mix, vendor: str, turns: int, rng: Random) -> list[Plan]:
    """The turns of one vendor, in the order of their start."""
    day_s = DAY_S * turns / mix["turns"]
    count = round(turns * mix[f"{vendor}.share"])
    starts = [*_scheduled(mix, round(count * mix["scheduled"]), day_s)]
    while len(starts) < count:
        at_s = rng.random() * day_s
        if rng.random() * mix["peak"] < 1 - (mix["peak"] - 1) * cos(2 * pi * at_s / day_s):
            starts.append(at_s)
    return [(start_s, tuple(_steps(mix, rng))) for start_s in sorted(starts)]


def _scheduled(mix: Mix, count: int, day_s: float) -> Iterator[float]:
    """Moments at which a schedule starts turns, as evenly over them as it goes."""
    moments = max(1, int(day_s / mix["schedule_s"]))
    return (number * moments // count * mix["schedule_s"] for number in range(count))


def _steps(mix: Mix, rng: Random) -> Iterator[float]:
    for _ in range(int(mix["steps_max"])):
        yield rng.lognormvariate(log(mix["step_s"]), mix["step_spread"])
        if rng.random() * mix["steps_mean"] < 1:
            return


class _Day:
    """One vendor, one policy, one day."""

    def __init__(self, mix: Mix, vendor: str, policy: str, planned: list[Plan], seed: str) -> None:
        self.mix, self.world = mix, World(f"{seed} {policy}")
        day_s = planned[-1][0] if planned else 0.0
        steps = sum(len(steps_s) for _, steps_s in planned)
        rate = steps / max(1.0, day_s) * mix["peak"] * mix["headroom"]
        self.vendor = Vendor(vendor, mix, self.world.rng, rate=rate, day_s=day_s)
        self.caller = caller(policy, mix, self.vendor, self.world)
        self.calls = self.refused = 0
        self.took: list[tuple[float, float]] = []
        self.ended_by: Counter[str] = Counter()
        for number, (start_s, steps_s) in enumerate(planned):
            process = number % int(mix["processes"])
            self.world.after(start_s, self.send, CallerTurn(start_s, steps_s, Prompt(), process))
        self.world.run()

    def send(self, turn: CallerTurn) -> None:
        held_s = self.caller.held_s(self.world.now, turn)
        if held_s is not None:
            self.later(turn, "circuit_open", held_s)
            return
        self.calls += 1
        room_s = self.vendor.limit.refuses(self.world.now)
        if room_s is not None:
            self.refused += 1
            self.world.after(self.mix["refusal_s"], self.failed, turn, "rate_limit", room_s)
            return
        kind = self.vendor.answer(self.world.now, turn.prompt)
        if kind:
            self.world.after(self.lost_s(turn, kind), self.failed, turn, kind, None)
        else:
            self.world.after(turn.steps_s[turn.step], self.succeeded, turn)

    def lost_s(self, turn: CallerTurn, kind: str) -> float:
        """How long it takes to learn of an error."""
        if kind == "parse":
            return turn.steps_s[turn.step]
        known = {"no_answer": "time_out_s", "server_error": "error_s"}
        return self.mix[known.get(kind, "refusal_s")]

    def succeeded(self, turn: CallerTurn) -> None:
        self.caller.succeeded(self.world.now, turn)
        turn.step += 1
        if turn.step == len(turn.steps_s):
            self.took.append((self.world.now - turn.start_s, sum(turn.steps_s)))
            return
        turn.attempt, turn.refusals, turn.held, turn.prompt, turn.charged = 1, 0, 0, Prompt(), None
        self.send(turn)

    def failed(self, turn: CallerTurn, kind: str, room_s: float | None) -> None:
        delay_s = self.caller.failed_s(self.world.now, turn, kind, room_s)
        turn.attempt += 1
        self.later(turn, kind, delay_s)

    def later(self, turn: CallerTurn, kind: str, delay_s: float | None) -> None:
        """Once more after that time; or the end, if there is none, or it is after the deadline."""
        if delay_s is None or self.world.now + delay_s - turn.start_s > self.mix["deadline_s"]:
            self.ended_by[kind] += 1
        else:
            self.world.after(delay_s, self.send, turn)


def _ended(policy: str, days: list[_Day], turns: int, steps: int) -> EndedTurn:
    took = [pair for day in days for pair in day.took]
    if len(took) < 2:
        raise ValueError(
            f"hardly any turn succeeds with the policy {policy}: there is nothing to compare. Move"
            " less"
        )
    calls = sum(day.calls for day in days)
    kinds = sorted({kind for day in days for kind in day.ended_by})
    ended_by = {kind: round(sum(day.ended_by[kind] for day in days) / turns, 6) for kind in kinds}
    real, ideal = ([pair[side] for pair in took] for side in (0, 1))
    halves, tails = (
        [quantiles(times_s, n=100)[at] for times_s in (real, ideal)] for at in (49, 98)
    )
    return EndedTurn(
        policy=policy,
        unretryable=round(1 - len(took) / turns, 6),
        lost_to_429=ended_by.get("rate_limit", 0.0),
        answered_429=round(sum(day.refused for day in days) / calls, 6),
        latency_factor=round(fmean(real) / fmean(ideal), 4),
        p50_factor=round(halves[0] / halves[1], 4),
        p99_factor=round(tails[0] / tails[1], 4),
        calls_per_step=round(calls / steps, 4),
        ended_by=ended_by,
    )


def simulate(
    *, seed: int = 7, turns: int = 18_000, changes: Mapping[str, float] | None = None
) -> TurnsResult:
    """Live a day with each policy. Fewer turns make it shorter, not emptier: the load stays."""
    at_least(100, turns=turns)
    mix = changed(changes or {})
    plans = {vendor: plan(mix, vendor, turns, Random(f"{seed} {vendor}")) for vendor in VENDORS}
    count = sum(len(planned) for planned in plans.values())
    steps = sum(len(steps_s) for planned in plans.values() for _, steps_s in planned)
    ended = []
    for policy in POLICIES:
        days = [
            _Day(mix, vendor, policy, planned, f"{seed} {vendor}")
            for vendor, planned in plans.items()
        ]
        ended.append(_ended(policy, days, count, steps))
    return TurnsResult(count, seed, dict(changes or {}), tuple(ended))
