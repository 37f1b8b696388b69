"""What may go wrong, one small file each: what it is, why it matters, and what is right.

A scenario is played in the temperaments of the service that it names: *deaf* (it does what it is
asked, and that is all), *asks* (it can be asked what happened), *keys* (it honours an
Idempotency-Key).
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
