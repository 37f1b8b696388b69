"""Run the tests of each framework of the second tier in an environment of its own, because their
dependencies exclude each other.

    python tests/frameworks/run.py                       # all of them, one after the other
    python tests/frameworks/run.py google_adk --keep     # one, and leave its environment for the next time

A folder here with a `requirements.txt` is a framework: `tests/frameworks/google_adk` is tested
with `effectonce[google-adk]`, with what its file asks for and with `common.txt`, and with the
npm packages of its `npm.txt`, if it has one. An environment is deleted as soon as its tests have
run, so that only one of them takes space.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOMES = ROOT / ".venv" / "frameworks"
INSTALL_WITHIN_S, TEST_WITHIN_S = 900, 600
# What a framework says about its own dependencies is its own; an unawaited coroutine or an open
# file stays an error.
THEIRS = (
    "DeprecationWarning",
    "PendingDeprecationWarning",
    "FutureWarning",
    "ImportWarning",
    "UserWarning",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How it went with one framework."""

    name: str
    verdict: str
    install_s: float = 0.0
    test_s: float = 0.0
    size_mb: float = 0.0


def frameworks():
    """The names of those that there are."""
    return sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))


def run(name, *, keep):
    home = HOMES / name
    try:
        return _run(name, home)
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


def _run(name, home):
    print(f"== {name}: installing", flush=True)
    python, began = home / "bin" / "python", time.monotonic()
    if not python.exists():
        venv.create(home, with_pip=True)
    wanted = [
        "--editable",
        f".[{name.replace('_', '-')}]",
        "-r",
        HERE / "common.txt",
        "-r",
        HERE / name / "requirements.txt",
    ]
    if not _done([python, "-m", "pip", "install", "--quiet", *wanted], INSTALL_WITHIN_S):
        return Ran(name=name, verdict="not installed", install_s=time.monotonic() - began)
    servers = HERE / name / "npm.txt"
    if servers.exists():  # no script of a package is run, and the cache goes with the environment
        options = [
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--cache",
            home / "npm-cache",
            "--prefix",
            home / "npm",
        ]
        if not _done(["npm", "install", *options, *servers.read_text().split()], INSTALL_WITHIN_S):
            return Ran(name=name, verdict="not installed", install_s=time.monotonic() - began)
    installed = time.monotonic()
    print(f"== {name}: testing", flush=True)
    lenient = [part for warning in THEIRS for part in ("-W", f"default::{warning}")]
    # whatever a framework keeps among its user's files goes with its environment
    kept = {"HOME": str(home / "home")}
    passed = _done([python, "-m", "pytest", "-q", *lenient, HERE / name], TEST_WITHIN_S, **kept)
    times = {"install_s": installed - began, "test_s": time.monotonic() - installed}
    return Ran(name=name, verdict="passed" if passed else "FAILED", size_mb=_size_mb(home), **times)


def _done(command, within_s, **environment):
    words, given = [str(part) for part in command], {"cwd": ROOT, "env": os.environ | environment}
    try:
        return subprocess.run(words, check=False, timeout=within_s, **given).returncode == 0
    except FileNotFoundError:
        print(f"   {words[0]} is missing", flush=True)
        return False
    except subprocess.TimeoutExpired:
        print(f"   no end after {within_s} s: given up", flush=True)
        return False


def _size_mb(home):
    return sum(path.lstat().st_size for path in home.rglob("*") if not path.is_dir()) / 1e6


def main():
    parser = argparse.ArgumentParser(
        prog="tests/frameworks/run.py",
        description="Test each framework in an environment of its own.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"some of: {', '.join(frameworks())}; all if none is named",
    )
    parser.add_argument(
        "--keep", action="store_true", help=f"leave the environments in {HOMES.relative_to(ROOT)}"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(frameworks()))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(frameworks())}")
    table = [run(name, keep=options.keep) for name in options.names or frameworks()]
    print(f"\n{'framework':24}{'install':>10}{'tests':>10}{'size':>10}  verdict")
    for ran in table:
        print(
            f"{ran.name:24}{ran.install_s:>8.0f} s{ran.test_s:>8.0f} s{ran.size_mb:>7.0f} MB "
            f" {ran.verdict}"
        )
    sys.exit(any(ran.verdict != "passed" for ran in table))


if __name__ == "__main__":
    main()
