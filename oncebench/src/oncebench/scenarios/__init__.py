"""What may go wrong, one small file each: what it is, why it matters, and what is right.

A scenario is played in the temperaments of the service that it names: *deaf* (it does what it is
asked, and that is all), *asks* (it can be asked what happened), *keys* (it honours an
Idempotency-Key), *transaction* (the effect is a row in a database that the subject may share).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from oncebench.checker import Expected
from oncebench.kit import Temperament
from oncebench.stage import Stage
from oncebench.world import DAY_S

# Numbers of the list that the scenarios come from and that have no file of their own.
ELSEWHERE = {
    "T03": "a record that vanishes while its call runs: no common way to delete a subject's record",
    "T10": "a streamed HTTP answer: the subjects protect functions, not web servers",
    "T13": "a repeat after completion is not taken for other arguments: T12",
    "T15": "an exception that passes through leaves no key stuck: T05",
    "T16": "two users, one key, other arguments: T06; another conversation: T37",
    "T17": "killed between two writes: T26",
    "T19": "a lock that is gone before the result is there: T18",
    "T20": "who releases a lock has to own it: T01",
    "T23": "arguments in the key hide other arguments: T06",
    "T30": "a failover of Redis loses the last claim: T39",
    "T31": "an engine finds its own pending record after a restart: T26 and T43 with the engines",
    "T40": "a key that is older than the service's window: T29",
}

# What few subjects offer: what a table calls its cells, and why others do not play them.
RARE = {
    "approval": (
        "approvals",
        "its docs name no call that waits for a person, or its adapter does not play it",
    ),
    "transaction": (
        "transaction",
        "its docs name no transaction to share, or its adapter does not play it",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str  # T04
    title: str
    text: str
    temperaments: tuple[Temperament, ...]
    needs: tuple[str, ...]
    quick: bool
    lease_s: float
    pass_s: float | None
    window_s: float
    play: Callable[[Stage], list[Expected]]

    @property
    def needs_approval(self) -> bool:
        return "approval" in self.needs


def scenarios() -> dict[str, Scenario]:
    """All of them, by name."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        file = importlib.import_module(f"{__name__}.{module.name}")
        text = file.__doc__ or ""
        name = text.split(":", 1)[0]
        found[name] = Scenario(
            name=name,
            title=file.TITLE,
            text=text,
            temperaments=file.TEMPERAMENTS,
            needs=file.NEEDS,
            quick=file.QUICK,
            lease_s=getattr(file, "LEASE_S", 1.0),
            pass_s=getattr(file, "PASS_S", None),
            window_s=getattr(file, "WINDOW_S", DAY_S),
            play=file.play,
        )
    return found
