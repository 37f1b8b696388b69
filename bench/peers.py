"""What others take for the same work on the same servers: a 1 kB result under a key, for one caller, for 16 and for 64.

    python bench/peers.py [--quick] [--json] [--dir FOLDER] [--sync-ms MS]

Each peer and ours take turns in one process; the figure is how many times longer the peer takes. Above 1, ours is faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from _paired import Goal, Row, filesystem, fsync_s, machine, options, report, speedup
from _postgres import Postgres
from tests.servers.redis import Server, free_port

CALLERS = (1, 16, 64)
FASTER = Goal(">", 1)
PEERS = {
    "idemkit-redis": "idemkit, Redis",
    "powertools-redis": "Powertools, Redis",
    "idemkit-postgres": "idemkit, PostgreSQL",
    "dbos-postgres": "DBOS, PostgreSQL",
    "dbos-sqlite": "DBOS, SQLite",
}
PACKAGES = ("idemkit", "aws-lambda-powertools", "dbos")


def urls(folder: Path, stack: ExitStack) -> Iterator[tuple[str, str, str]]:
    """For each peer, where it keeps its records and where we keep ours: the same server, and nothing in common there."""
    cache = Server(folder / "redis", port=free_port())
    stack.callback(cache.stop)
    database = stack.enter_context(Postgres(under=folder.parent))
    for peer in PEERS:
        if peer.endswith("redis"):
            cache.ask("FLUSHALL")
            yield peer, cache.url, cache.url
        elif peer.endswith("postgres"):
            yield peer, database.database(), database.database()
        else:
            yield peer, f"sqlite:///{folder}/peer.db", f"sqlite:///{folder}/ours.db"


def beside(peer: str, url: str, our_url: str, counts: tuple[int, int], deadline_s: float) -> list[Row]:
    command = [sys.executable, Path(__file__).with_name("_peers.py"), peer, url, our_url, *map(str, counts)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{PEERS[peer]} did not come to an end within {deadline_s:g} s") from None
    if run.returncode != 0:
        raise SystemExit(f"{PEERS[peer]}: {run.stderr}")
    medians = json.loads(run.stdout.splitlines()[-1])
    return [
        speedup(
            f"{PEERS[peer]}, {what} x{callers}",
            medians[f"ours {what} x{callers}"],
            medians[f"peer {what} x{callers}"],
            FASTER,
            of="peer/ours",
        )
        for callers in CALLERS
        for what in ("first", "replay")
    ]


def main() -> None:
    chosen = options(__doc__, folder=True)
    counts, deadline_s = ((1, 1), 120.0) if chosen.quick else ((20, 2), 600.0)  # slices, and ops of each caller in a slice
    rows, loads = [], [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name, ExitStack() as stack:
        folder = Path(name)
        disk = {"disk": f"{filesystem(folder)}, one fdatasync {fsync_s(folder, 20) * 1e6:.0f} us"}
        for peer, url, our_url in urls(folder, stack):
            rows += beside(peer, url, our_url, counts, deadline_s)
            loads.append(os.getloadavg()[0])
    peers = {"peers": ", ".join(f"{package} {version(package)}" for package in PACKAGES), "floor": "the peer"}
    report(rows, chosen, machine() | disk | peers | {"load": " ".join(f"{load:.1f}" for load in loads)})


if __name__ == "__main__":
    main()
