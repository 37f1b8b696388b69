"""Put faults into the rooms without mutants, one at a time, and print the quick test that finds each.

    python -m tests.faults.run              all of them
    python -m tests.faults.run 06 07        some

A fault is a patch in this folder; `faults.tsv` says which room it is in and what it breaks. Each is
applied in a worktree of its own, where the quick tests of its room run until one fails.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TESTS = {
    "http/server": "tests/http tests/attacks/test_middleware.py tests/observe/test_everywhere.py",
    "mcp": "tests/mcp_proxy tests/integrations/mcp tests/attacks/test_mcp.py",
    "cli": "tests/cli tests/newcomer/test_mistakes.py",
    "dashboard": "tests/server tests/attacks/test_dashboard.py tests/attacks/test_pages.py",
    "integrations": "tests/integrations",
    "workflows": "tests/core tests/properties tests/crash",
    "retries": "tests/policy tests/core tests/integrations",
    "views": "tests/cli tests/server tests/core",
    "providers": "tests/providers tests/core",
    "lint": "tests/lint tests/cli/test_lint.py",
}


def main():
    rows = [line.split("\t") for line in (HERE / "faults.tsv").read_text().splitlines()]
    wanted = set(sys.argv[1:]) or {number for number, *_ in rows}
    missed = 0
    with tempfile.TemporaryDirectory(prefix="effectonce-faults-") as folder:
        tree = Path(folder) / "tree"
        git(ROOT, "worktree", "add", "--quiet", "--detach", str(tree), "HEAD")
        try:
            for number, room, _, broken in rows:
                if number in wanted:
                    began = time.monotonic()
                    found_by = first_failure(tree, number, room)
                    missed += found_by is None
                    took_s = time.monotonic() - began
                    print(f"{number} {room}: {found_by or 'MISSED: ' + broken} ({took_s:.0f} s)")
        finally:
            git(ROOT, "worktree", "remove", "--force", str(tree))
    print(f"{len(wanted)} faults, {missed} missed")
    return 1 if missed else 0


def first_failure(tree, number, room):
    """Return the name of the first quick test that fails with a fault, or None."""
    (patch,) = HERE.glob(f"{number}-*.patch")
    git(tree, "checkout", "--quiet", ".")
    git(tree, "apply", str(patch))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long", *TESTS[room].split()],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else "a run that did not come to its end"


def git(folder, *words):
    subprocess.run(["git", *words], cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
