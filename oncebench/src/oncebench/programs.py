"""Run a program as an orchestrator would: in a folder of its own, restarted when it
dies, given up when it never ends well.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LINKED = frozenset({".venv", "venv", "node_modules", ".git"})  # used, not copied
SIZE_MAX = 50_000_000


class TooLarge(Exception):
    """The folder is too large to be copied for each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one run of a program ended."""

    code: int | None  # None: it was still running when its time was over
    output: str

    @property
    def well(self) -> bool:
        return self.code == 0

    def __str__(self) -> str:
        if self.code is None:
            return "did not end in time"
        if self.code in {-signal.SIGKILL, 128 + signal.SIGKILL}:
            return "was killed"
        return f"ended with code {self.code}"


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    """A fresh copy of the program's folder: what one run leaves is not there for the next."""
    with tempfile.TemporaryDirectory(prefix="oncebench-") as scratch:
        copy = Path(scratch) / "run"
        copy.mkdir()
        size = 0
        for entry in sorted(folder.iterdir()):
            if entry.name in LINKED:
                (copy / entry.name).symlink_to(entry.resolve())
            elif entry.is_dir():
                size += sum(f.stat().st_size for f in entry.rglob("*") if f.is_file())
                _bounded(size, folder)
                shutil.copytree(entry, copy / entry.name, symlinks=True)
            elif entry.is_file():
                size += entry.stat().st_size
                _bounded(size, folder)
                shutil.copy2(entry, copy / entry.name)
        yield copy


def _bounded(size: int, folder: Path) -> None:
    if size > SIZE_MAX:
        raise TooLarge(
            f"{folder} has more than {SIZE_MAX // 1_000_000} MB, and each run gets a copy of it."
            " Run oncebench in a folder that has the program alone."
        )


def run(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], within_s: float
) -> Ended:
    """Run it once. What it started dies with it, as in a container."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(within_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_group(process.pid)
            process.wait()
        output.seek(0)
        return Ended(code=code, output=output.read())


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
