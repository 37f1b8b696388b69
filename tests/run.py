"""Run the tests in parts, one after the other, and print how long each part took.

    python tests/run.py quick    `make test`: the cases that are not marked `long`
    python tests/run.py all      `make test-all`: every case, then the tests with environments of their own

A part that takes longer than its bound is ended and counts as failed. The parts after a failed one
still run. `all` continues where an earlier run stopped: it skips the parts that have passed with the
same files. `--afresh` runs them again.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PASSED = ROOT / ".venv" / "test-all.json"
PYTEST = f"{BIN}/pytest -q -n 4"  # tests wait for a third of their time
# The tests of one file share a worker, and with it servers and stores that take long to fill.
BY_FILE = f"{PYTEST} --dist loadfile --no-loadscope-reorder"
COVERED = "tests/core tests/policy tests/stores tests/conformance tests/properties"
WITH_COVERAGE = f"{PYTEST} --maxschedchunk 10 {COVERED} --cov --cov-report=term:skip-covered"
OTHER_ENVIRONMENTS = {"tests/frameworks", "tests/sdks", "tests/website"}


@dataclass(frozen=True)
class Part:
    name: str
    command: str
    minutes_max: int


LINT = Part("lint and formatting", f"{BIN}/ruff check . && {BIN}/ruff format --check .", 5)
TYPES = f"{BIN}/mypy && {BIN}/basedpyright"


def quick_parts():
    others = " ".join(other_tests())
    # In a new clone, one process compiles the tests for all others.
    compile_tests = f"{BIN}/pytest -q --collect-only {COVERED} {others} >/dev/null"
    return [
        LINT,
        Part(
            "types; the tests are compiled meanwhile", f"{compile_tests} & {TYPES} && wait $!", 15
        ),
        Part("the core and the stores, with coverage", f"{WITH_COVERAGE} -m 'not long'", 30),
        Part("all other tests", f"{BY_FILE} -m 'not long' {others}", 45),
    ]


def all_parts():
    return [
        LINT,
        Part("types", TYPES, 15),
        Part("the core and the stores, with coverage", WITH_COVERAGE, 45),
        *(Part(name, f"{BY_FILE} {name}", 45) for name in other_tests()),
        *(
            Part(f"make {name}", f"make {name}", 45)
            for name in ("test-mcp", "test-sdks", "test-frameworks", "test-lowest")
        ),
    ]


def other_tests():
    """Return folders and files for pytest: what the other parts leave, the slowest file first."""
    apart = {*COVERED.split(), *OTHER_ENVIRONMENTS}
    with_tests = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/**/test_*.py")}
    folders = {f"tests/{name}" for name in with_tests} - apart
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py"))
    return ["oncebench/tests", *sorted(folders), " ".join(files)]


def run(part):
    """Run one part. Return whether it passed, and its seconds."""
    print(f"\n== {part.name}", flush=True)
    start = time.monotonic()
    process = subprocess.Popen(part.command, shell=True, cwd=ROOT, start_new_session=True)
    try:
        passed = process.wait(part.minutes_max * 60) == 0
    except subprocess.TimeoutExpired:
        print(f"== {part.name}: ended after {part.minutes_max} minutes", flush=True)
        passed = False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return passed, time.monotonic() - start


def digest_of_the_files():
    """Return a digest of all files that git does not ignore, or None without git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        return None
    digest = hashlib.sha256()
    for name in listed.stdout.split("\0"):
        file = ROOT / name
        if file.is_file():
            digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def passed_before(digest):
    """Return the seconds of the parts that have passed with the same files."""
    if digest is None or not PASSED.exists():
        return {}
    kept = json.loads(PASSED.read_text())
    return kept["seconds"] if kept["digest"] == digest else {}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", choices=["quick", "all"])
    parser.add_argument("--afresh", action="store_true", help="run also the parts that have passed")
    options = parser.parse_args()
    parts = quick_parts() if options.tier == "quick" else all_parts()
    resumes = options.tier == "all"
    digest = digest_of_the_files() if resumes else None
    earlier = {} if options.afresh else passed_before(digest)
    lines, failed, seconds = [], [], dict(earlier)
    for part in parts:
        if part.name in earlier:
            lines.append(f"{earlier[part.name]:7.0f} s  {part.name} (passed before)")
            continue
        passed, took_s = run(part)
        lines.append(f"{took_s:7.0f} s  {part.name}{'' if passed else ': FAILED'}")
        if not passed:
            failed.append(part.name)
            continue
        seconds[part.name] = took_s
        if resumes:
            PASSED.write_text(json.dumps({"digest": digest, "seconds": seconds}))
    print("\n== seconds by part", *lines, sep="\n")
    print(f"{sum(seconds.values()) / 60:7.1f} minutes in the parts that passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
