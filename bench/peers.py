"""What others take for the same work on the same servers: a 1 kB result under a key, for one
caller, for 16 and for 64.

    python bench/peers.py [--quick] [--json] [--dir FOLDER] [--sync-ms MS] [--only NAME]...

Each peer and ours take turns in one process; the figure is how many times longer the peer takes.
Above 1, ours is faster. Each peer starts in a folder of its own, where it may leave its files. A
peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
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

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.redis import Server, free_port

CALLERS = (1, 16, 64)
FASTER = Goal(">", 1)
PEERS = {
    "idemkit-redis": "idemkit, Redis",
    "powertools-redis": "Powertools, Redis",
    "idemkit-postgres": "idemkit, PostgreSQL",
    "dbos-postgres": "DBOS, PostgreSQL",
    "dbos-sqlite": "DBOS, SQLite",
    "ctrlrun-sqlite": "ctrlrun, SQLite",
    "ctrlrun-postgres": "ctrlrun, PostgreSQL",
    "call4agents-sqlite": "call4agents, SQLite",
    "call4agents-postgres": "call4agents, PostgreSQL",
    "airlock-sqlite": "airlock-sdk, SQLite",
    "airlock-postgres": "airlock-sdk, PostgreSQL",
}
PACKAGES = {  # what a peer is installed as, and imported as
    "idemkit": ("idemkit", "idemkit"),
    "powertools": ("aws-lambda-powertools", "aws_lambda_powertools"),
    "dbos": ("dbos", "dbos"),
    "ctrlrun": ("ctrlrun", "ctrlrun"),
    "call4agents": ("call4agents", "call4agents"),
    "airlock": ("airlock-sdk", "airlock"),
}


def installed(peer: str) -> bool:
    return importlib.util.find_spec(PACKAGES[peer.partition("-")[0]][1]) is not None


def chosen_peers(only: list[str] | None) -> list[str]:
    return [
        peer
        for peer, name in PEERS.items()
        if installed(peer) and (not only or any(part in name for part in only))
    ]


def named(only: str) -> str:
    """Part of the name of a peer; otherwise an argparse error that lists them."""
    if not any(only in name for name in PEERS.values()):
        raise argparse.ArgumentTypeError(f"{only!r} is none of {'; '.join(PEERS.values())}")
    return only


def urls(peers: list[str], folder: Path, stack: ExitStack) -> Iterator[tuple[str, str, str]]:
    """For each peer, where it keeps its records and where we keep ours: the same server, and
    nothing in common there.
    """
    cache = Server(folder / "redis", port=free_port())
    stack.callback(cache.stop)
    database = stack.enter_context(Postgres(under=folder.parent))
    for peer in peers:
        if peer.endswith("redis"):
            cache.ask("FLUSHALL")
            yield peer, cache.url, cache.url
        elif peer.endswith("postgres"):
            yield peer, database.database(), database.database()
        else:
            yield peer, f"sqlite:///{folder}/{peer}.db", f"sqlite:///{folder}/{peer}-ours.db"


def beside(
    peer: str, urls: tuple[str, str], folder: Path, counts: tuple[int, int], deadline_s: float
) -> list[Row]:
    command = [
        sys.executable,
        Path(__file__).with_name("_peers.py"),
        peer,
        *urls,
        *map(str, counts),
    ]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=deadline_s, cwd=folder
        )
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
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--only",
            action="append",
            type=named,
            metavar="NAME",
            help="peers with NAME in their name; may be repeated",
        )

    chosen = options(__doc__, folder=True, more=more)
    # slices, and ops of each caller in a slice
    counts, deadline_s = ((1, 1), 120.0) if chosen.quick else ((20, 2), 600.0)
    rows, loads = [], [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name, ExitStack() as stack:
        folder = Path(name)
        disk = {"disk": f"{filesystem(folder)}, one fdatasync {fsync_s(folder, 20) * 1e6:.0f} us"}
        for peer, url, our_url in urls(chosen_peers(chosen.only), folder, stack):
            its_own = Path(tempfile.mkdtemp(dir=folder))
            rows += beside(peer, (url, our_url), its_own, counts, deadline_s)
            loads.append(os.getloadavg()[0])
    there = {
        package: version(package) for peer, (package, _) in PACKAGES.items() if installed(peer)
    }
    notes = {
        "peers": ", ".join(f"{package} {number}" for package, number in there.items()),
        "left out, not installed": ", ".join(
            package for package, _ in PACKAGES.values() if package not in there
        )
        or "none",
        "floor": "the peer",
        "load": " ".join(f"{load:.1f}" for load in loads),
    }
    report(rows, chosen, machine() | disk | notes)


if __name__ == "__main__":
    main()
