"""Build what is released, twice, and look at it: `make dist`. Nothing is uploaded.

    python supply/release.py --tools PYTHON [--audit]

Both builds are of copies of the tracked files, in different folders, with different times and
different permissions; their files have to be the same, byte by byte. `dist/` then has the wheel,
the source distribution, their sums, and a report of what the lock pins. twine and pip-audit are
run by PYTHON: they are in an environment of their own (supply/release.txt).
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
LOCK = ROOT / "supply" / "requirements-dev.txt"


def main() -> None:
    """Build, compare, check, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tools", default=sys.executable, help="a Python with twine and pip-audit")
    parser.add_argument("--audit", action="store_true", help="ask pip-audit about the lock as well")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first = built(Path(folder) / "first", when=1_000_000_000, mask=0o022)
        second = built(Path(folder) / "another folder", when=1_700_000_000, mask=0o077)
        if sums(first) != sums(second):
            sys.exit(f"two builds differ:\n{sums(first)}\n{sums(second)}")
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(first, DIST)
    (DIST / "SHA256SUMS").write_text(sums(DIST))
    print(sums(DIST), "the same in both builds", sep="")
    artefacts = sorted(str(path) for path in DIST.iterdir() if path.suffix in (".whl", ".gz"))
    subprocess.run([chosen.tools, "-m", "twine", "check", "--strict", *artefacts], check=True)
    (DIST / "pinned.tsv").write_text(report())
    print(f"dist/pinned.tsv: {len(pinned())} packages of the lock, each with its licence")
    if chosen.audit:
        audit(chosen.tools)


def built(folder: Path, *, when: int, mask: int) -> Path:
    """Build a copy of the tracked files in *folder*, as if they were of that time."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    tree, output = folder / "tree", folder / "out"
    before = os.umask(mask)
    try:
        for name in filter(None, listed.split("\0")):
            copy = tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
            os.utime(copy, (when, when))
        build = [sys.executable, "-m", "hatchling", "build", "--directory", str(output)]
        subprocess.run(build, cwd=tree, check=True, capture_output=True)
    finally:
        os.umask(before)
    return output


def sums(folder: Path) -> str:
    """As sha256sum prints them."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)


def pinned() -> list[tuple[str, str]]:
    """What the lock names, with its version."""
    return re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(), re.MULTILINE)


def report() -> str:
    """One line each: package, version, licence. "not installed here" where it is another
    platform's, or the environment is another version.
    """
    lines = ["package\tversion\tlicence"]
    for name, version in pinned():
        lines.append(f"{name}\t{version}\t{_licence(name, version)}")
    return "\n".join(lines) + "\n"


def _licence(name: str, version: str) -> str:
    try:
        said = metadata(name)
    except PackageNotFoundError:
        return "not installed here"
    if said["Version"] != version:
        return "not installed here"
    named = said["License-Expression"] or (said["License"] or "").partition("\n")[0]
    classified = [
        line.rpartition(" :: ")[2]
        for line in said.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    return named or ", ".join(classified) or "not stated"


def audit(python: str) -> None:
    """Known vulnerabilities of what is pinned, if the databases of pip-audit can be asked."""
    asked = ["-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip", "--no-deps"]
    done = subprocess.run([python, *asked], check=False, capture_output=True, text=True)
    (DIST / "audit.txt").write_text(done.stdout + done.stderr)
    if "could not be audited" in done.stdout or "Traceback" in done.stderr:
        print("pip-audit could not reach its data: dist/audit.txt says why. Nothing was audited.")
        return
    print(done.stdout or done.stderr)
    if done.returncode:
        sys.exit("pip-audit found something: dist/audit.txt")


if __name__ == "__main__":
    main()
