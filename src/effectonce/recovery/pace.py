"""How often probes are asked in the background, and how fast many effects are worked off."""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import asdict

from effectonce._validate import numbers, of_type, whole
from effectonce.errors import ContractViolation

DAY_S = 86_400.0
VARIABLE = "EFFECTONCE_RECONCILE"
OFF, ON = ("0", "false", "no", "off"), ("1", "true", "yes", "on", "")


class ReconcilePace(Struct, frozen=True, kw_only=True):
    """How often the probes of tools are asked about what is in doubt, and how much at a time.

    A round comes every *every_s* seconds. It asks at most *per_s* probes a second, *per_round*
    in all, and ends after *round_s*; what is left waits for the next one. A probe that does not
    know is asked again after *every_s*, then after twice as long each time, and never less often
    than *at_least_every_s*. *lease_s* is how long a process that died keeps the others waiting.
    """

    every_s: float = 60.0
    per_s: float = 5.0
    at_least_every_s: float = DAY_S
    per_round: int = 200
    round_s: float = 60.0
    lease_s: float = 30.0

    def __post_init__(self) -> None:
        given = asdict(self)
        del given["per_round"]
        numbers(**given)
        whole(per_round=self.per_round)
        if not (self.per_s > 0 and self.every_s >= 0):
            raise ContractViolation(
                f"per_s={self.per_s} and every_s={self.every_s}: it asks some probes a second, and"
                " no time is negative"
            )
        if not (self.per_round > 0 and self.round_s > 0 and self.lease_s > 0):
            raise ContractViolation(
                f"per_round={self.per_round}, round_s={self.round_s}, lease_s={self.lease_s}: a"
                " round asks at least one probe, and takes its time"
            )


def pace_of(reconcile: object, environ: Mapping[str, str]) -> ReconcilePace | None:
    """None: nothing is asked in the background, because the guard or the environment says so."""
    how = "True, False, or reconcile=ReconcilePace(every_s=300)"
    of_type("reconcile", reconcile, (bool, ReconcilePace), how)
    said = environ.get(VARIABLE, "").lower()
    if said not in OFF + ON:
        raise ContractViolation(f"{VARIABLE} is true or false, not {said!r}")
    if reconcile is False or said in OFF:
        return None
    return reconcile if isinstance(reconcile, ReconcilePace) else ReconcilePace()


class Pace:
    """How long to wait for the next one."""

    def __init__(self, per_s: float | None) -> None:
        if per_s is not None and not per_s > 0:
            raise ContractViolation(f"per_s={per_s}: more than 0, or None for no limit")
        self._gap_s, self._next = 0.0 if per_s is None else 1 / per_s, time.monotonic()

    def next_s(self) -> float:
        now = time.monotonic()
        self._next = max(now, self._next + self._gap_s)
        return self._next - now
