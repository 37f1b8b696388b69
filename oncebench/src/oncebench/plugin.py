"""For your own tests: kill a tool everywhere, lose each answer, call it from many processes.

    def test_refunds_land_once(crash_everywhere):
        crash_everywhere("my_tools:refund", calls=[["o1", 100]])

The tool finds the service's URL in $ONCEBENCH_URL. It is imported in a process of its own that is
killed and restarted, in an empty folder of its own; what it keeps there is its state.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from oncebench.call import READY, WHEN_ASKED
from oncebench.downstream import check_downstream as checked_downstream
from oncebench.run import Options, Runner, Trial
from oncebench.world import DAY_S, World, world


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("oncebench")
    group.addoption(
        "--once-seed", type=int, default=0, help="chooses the points where tools are killed"
    )


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Hits a tool, and fails the test if an effect does not land exactly once."""

    options: Options
    wire: bool
    kills: bool

    def __call__(
        self, tool: str, *, calls: Sequence[Sequence[Any]], points: int = 30, **more: Any
    ) -> list[Trial]:
        """*tool* is `"module:function"`, each of *calls* a list of its arguments. *points* and
        further options, such as `honours_keys=False`, are those of `oncebench run`.
        """
        command = (sys.executable, "-m", "oncebench.call", tool, json.dumps(_calls(calls)))
        options = replace(self.options, command=command, points_max=points, **more)
        runner = Runner(options, say=lambda _: None, wire=self.wire, kills=self.kills)
        trials = list(runner.trials())
        wrong = [trial for trial in trials if trial.verdict not in {"ok", "missed"}]
        if wrong:
            pytest.fail("\n".join(map(_described, wrong)), pytrace=False)
        if not trials:
            pytest.fail(runner.notice or f"{tool} makes no call to hit it at", pytrace=False)
        if all(trial.verdict == "missed" for trial in trials):
            pytest.fail(f"{tool} was never hit: it makes other calls each time", pytrace=False)
        return trials


def _calls(calls: Sequence[Sequence[Any]]) -> list[tuple[list[Any], dict[str, Any]]]:
    return [(list(arguments), {}) for arguments in calls]


def _described(trial: Trial) -> str:
    wrong = [f"{n}: {c} times, {r} is right" for n, (c, r) in trial.effects.items() if c != r]
    said = f" ({trial.last_output})" if trial.verdict == "stuck" else ""
    return f"{trial.verdict} at {trial.where} {trial.seen}: {'; '.join(wrong)}{said}"


@pytest.fixture
def crash_everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Everywhere:
    """Kill a tool at each of its system calls, and restart it."""
    return Everywhere(_options(request, tmp_path), wire=False, kills=True)


@pytest.fixture
def lose_every_answer(request: pytest.FixtureRequest, tmp_path: Path) -> Everywhere:
    """Lose, cut or delay the answer to each request of a tool, and restart it."""
    return Everywhere(_options(request, tmp_path), wire=True, kills=False)


def _options(request: pytest.FixtureRequest, folder: Path) -> Options:
    empty = folder / "tool"
    empty.mkdir(exist_ok=True)
    paths = [str(Path(request.node.path).parent), str(request.config.rootpath)]
    paths += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return Options(
        command=(),
        folder=empty,
        seed=request.config.getoption("--once-seed"),
        environment={"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
    )


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """A service that counts, in a process of its own: `bank(window_s=3600)`. Without a window it
    ignores keys; with a short one it forgets them.
    """
    started: list[AbstractContextManager[World]] = []

    def start(*, window_s: float | None = DAY_S, can_be_asked: bool = True) -> World:
        ledger = tmp_path / f"ledger-{len(started)}"
        opened = world(ledger, window_s=window_s, can_be_asked=can_be_asked)
        started.append(opened)
        return opened.__enter__()

    yield start
    for opened in started:
        opened.__exit__(None, None, None)


@pytest.fixture
def hammer(
    request: pytest.FixtureRequest, tmp_path: Path, bank: Callable[..., World]
) -> Callable[..., World]:
    """Call a tool once from many processes at the same moment: one effect may land."""

    def strike(
        tool: str, *, call: Sequence[Any], callers: int = 64, honours_keys: bool = False
    ) -> World:
        options = _options(request, tmp_path)
        here = bank(window_s=DAY_S if honours_keys else None)
        asked = [tool, json.dumps(_calls([call]))]
        command = [sys.executable, "-m", "oncebench.call", WHEN_ASKED, *asked]
        environment = {**os.environ, **options.environment, "ONCEBENCH_URL": here.url}
        processes = [
            subprocess.Popen(  # noqa: S603
                command,
                cwd=options.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(callers)
        ]
        for process in processes:
            assert process.stdout is not None
            if not any(line.strip() == READY for line in process.stdout):
                pytest.fail(f"{tool} cannot be loaded", pytrace=False)
        for process in processes:  # all are loaded: they call at the same moment
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=120)
        landed = len(here.effects())
        if landed != 1:
            pytest.fail(f"{callers} callers, {landed} effects; 1 is right", pytrace=False)
        return here

    return strike


@pytest.fixture
def check_downstream() -> Callable[..., Any]:
    """Whether a service honours keys as you rely on: ask its sandbox."""
    return checked_downstream
