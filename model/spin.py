"""Spin on `once.pml` and `seeds.pml`, if Spin is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
INSTALL = (
    "Spin is skipped: it needs `spin` and `gcc` on the PATH (Debian: apt-get install spin gcc)"
)
SECONDS_MAX = 300
SETTLES = "settles"  # in a name: what is asked is liveness


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str
    file: str
    flags: str
    holds: bool = True
    live: bool = False


ONCE = tuple(
    Model(name=f"Spin {name}", file="once.pml", flags=flags)
    for name, flags in (
        ("NONE   at most once, then in doubt", "-DCAP=1 -DNW=3 -DCRASHES=3"),
        ("NONE   claim and dispatch apart", "-DCAP=1 -DNW=3 -DAPART"),
        ("PROBE  not found: a person decides", "-DCAP=2 -DNW=3"),
        ("PROBE  not found: re-run, bounded delay", "-DCAP=5 -DNW=3"),
        ("KEY    downstream honours our key", "-DCAP=3 -DNW=3 -DHASTE=2"),
        ("KEY    downstream stores its refusals", "-DCAP=3 -DNW=3 -DREFUSALS=1"),
        ("TX     effect in our own transaction", "-DCAP=4 -DNW=3 -DCRASHES=3"),
    )
)
LIVE = tuple(
    Model(name=f"Spin {name}, {SETTLES}", file="once.pml", flags=f"-DLIVE {flags}", live=True)
    for name, flags in (
        ("NONE   always", "-DCAP=1 -DNW=3"),
        ("PROBE  a person decides", "-DCAP=2 -DNW=2"),
        ("PROBE  re-run", "-DCAP=5 -DNW=2"),
        ("KEY    always", "-DCAP=3 -DNW=2"),
        ("TX     always", "-DCAP=4 -DNW=3"),
    )
)
FAULTY = (
    Model(
        name="Spin X11   the delay bound is judged too late",
        file="once.pml",
        flags="-DCAP=5 -DHASTY",
        holds=False,
    ),
    Model(
        name="Spin no lease: blocked for ever",
        file="once.pml",
        flags="-DLIVE -DCAP=1 -DNOLEASE",
        holds=False,
        live=True,
    ),
    *(
        Model(
            name=f"Spin recipe {seed}: {what}",
            file="seeds.pml",
            flags=f"-DSEED={seed}",
            holds=False,
        )
        for seed, what in enumerate(
            (
                "look in a cache, run, store",
                "an empty result counts as none",
                "the attempt is part of the key",
                "lock, wait, proceed anyway",
                "a reservation that is too old failed",
                "look for 'complete' only",
                "'running' is run again",
            )
        )
    ),
)
MODELS = (*ONCE, *LIVE, *FAULTY)


@dataclass(frozen=True)
class Checked:
    model: Model
    states: int
    transitions: int
    seconds: float
    holds: bool


def available() -> bool:
    return all(shutil.which(tool) for tool in ("spin", "gcc"))


def check(model: Model) -> Checked:
    """Compile *model* and search all of it."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, "spin", *model.flags.split(), "-a", str(HERE / model.file))
        _run(
            folder,
            "gcc",
            "-O2",
            "-w",
            *(("-DNFAIR=5",) if model.live else ("-DSAFETY",)),
            "-o",
            "pan",
            "pan.c",
        )
        said = _run(folder, "./pan", "-m200000", *(("-a", "-f") if model.live else ()))
    states, transitions = (
        _number(said, rf"(\d+(?:\.\d+e\+\d+)?) {what}")
        for what in ("states, stored", "transitions")
    )
    errors = _number(said, r"errors: (\d+)")
    return Checked(model, states, transitions, time.perf_counter() - started, errors == 0)


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )  # noqa: RUF100, S603
    if done.returncode != 0 or "max search depth too small" in done.stdout:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"Spin did not say {pattern!r}: {text}")
    return int(float(found.group(1)))
