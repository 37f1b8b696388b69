"""Requests per second of an app behind our middleware, beside the bare app and beside the
middleware of others.

    python bench/middleware.py [--quick] [--json] [--dir FOLDER] [--sync-ms MS]

The app is a Starlette one that reads a JSON body and answers with JSON. Each contender is served
by a uvicorn process of its own, and the load comes from this process. They take turns, with the
same number of connections, and the figure is the ratio of their rates. With uvloop and httptools
installed, uvicorn uses them: the bare app is at its fastest, and everything beside it looks
slower.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles

from _http_load import Load, Slice, post
from _paired import Goal, Row, filesystem, fsync_s, machine, options, report, take_turns

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.redis import Server, free_port

CONNECTIONS = (1, 16, 32, 64)
GOALS_AT = 32
GOALS = {  # G7
    ("redis", "first"): Goal(">=", 0.75),
    ("redis", "replay"): Goal(">=", 1.1),
    ("sqlite", "first"): Goal(">=", 0.5),
    ("sqlite", "replay"): Goal(">=", 0.95),
}
FASTER = Goal(">", 1)
# neither keeps records in SQLite
PEERS = {"idemkit": "idemkit", "asgi-idempotency-header": "idempotency_header_middleware"}
SERVED_BY = ("uvicorn", "starlette", "uvloop", "httptools")
HOT = 128  # records that replays choose from

Contender = tuple[str, str]  # who answers, and whether it knows the key: ("ours", "replay")


class Contenders:
    """The servers of one store, and the load on them."""

    def __init__(self, stack: ExitStack, url: str, who: list[str]) -> None:
        self._ports = {each: _serve(stack, each, url) for each in who}
        self._keys = {each: _keys() for each in who}
        self._known: dict[str, Iterator[bytes]] = {}
        for each in who:
            self._known[each] = itertools.cycle([post(next(self._keys[each])) for _ in range(HOT)])

    @property
    def all(self) -> list[Contender]:
        kinds = {"bare": ("first",), "ours, cached": ("replay",)}
        return [(who, kind) for who in self._ports for kind in kinds.get(who, ("first", "replay"))]

    def prepare(self) -> None:
        """Every server has seen its hot keys, and has shown that it knows them; then it is warm."""
        for who, port in self._ports.items():
            load = Load(port, 1)
            answers = [[load.ask(next(self._known[who])) for _ in range(HOT)] for _ in range(2)]
            if (answers[0] == answers[1]) is (who == "bare"):
                raise SystemExit(
                    f"{who}: {HOT} payments were answered with {answers[0][0]}, and repeated with"
                    f" {answers[1][0]}"
                )
            load.close()

    def measure(
        self, connections: int, slices: int, slice_s: float
    ) -> dict[Contender, tuple[float, list[float]]]:
        """The median seconds per request of each contender, and how long each request waited."""
        waits: dict[Contender, list[float]] = {contender: [] for contender in self.all}
        loads = {who: Load(port, connections) for who, port in self._ports.items()}

        def turn(contender: Contender) -> list[float]:
            who, kind = contender
            requests = map(post, self._keys[who]) if kind == "first" else self._known[who]
            done: Slice = loads[who].run(requests, slice_s)
            waits[contender] += done.waits_s
            return [done.lasted_s / done.answered]

        turns: dict[Contender, Callable[[], list[float]]] = {
            each: lambda each=each: turn(each) for each in self.all
        }
        medians = take_turns(turns, slices)
        for load in loads.values():
            load.close()
        return {contender: (medians[contender], waits[contender]) for contender in self.all}


def _keys() -> Iterator[bytes]:
    start = secrets.randbits(127)
    return (b"%032x" % number for number in itertools.count(start))


def _serve(stack: ExitStack, who: str, url: str) -> int:
    command = [sys.executable, str(Path(__file__).with_name("_http_server.py")), who, url]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.send_signal, signal.SIGKILL)
    assert process.stdout is not None
    port = process.stdout.readline()
    if not port:
        raise SystemExit(f"{who} could not be served, see above")
    return int(port)


# ---------------------------------------------------------------- the table


def rows_of(
    store: str, connections: int, figures: dict[Contender, tuple[float, list[float]]]
) -> Iterator[Row]:
    bare = figures["bare", "first"]
    for (who, kind), (request_s, waits_s) in figures.items():
        if who == "bare":
            continue
        place = f"{store} x{connections} {kind}"
        if who in PEERS:
            mine = figures["ours", kind]
            yield _rates(f"{place}, beside {who}", mine[0], request_s, "ours/peer", FASTER)
            yield from _waits(f"{place}, beside {who}", mine[1], waits_s)
        else:
            name = place + who.removeprefix("ours")
            goal = GOALS.get((store, kind)) if connections == GOALS_AT and who == "ours" else None
            yield _rates(name, request_s, bare[0], "ours/bare", goal)
            yield from _waits(name, waits_s, bare[1])


def _rates(what: str, ours_s: float, other_s: float, of: str, goal: Goal | None) -> Row:
    return Row(what, 1 / ours_s, 1 / other_s, "req/s", other_s / ours_s, of=of, goal=goal)


def _waits(what: str, ours_s: list[float], other_s: list[float]) -> Iterator[Row]:
    for name, at in (("p50", 49), ("p99", 98)):
        ours, other = (quantiles(waits_s, n=100)[at] * 1e3 for waits_s in (ours_s, other_s))
        yield Row(f"{what}, {name}", ours, other, "ms", ours / other, of="ours/other")


def _installed(module: str) -> bool:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def main() -> None:
    chosen = options(__doc__, folder=True)
    slices, slice_s = (1, 0.02) if chosen.quick else (9, 0.2)
    peers = [peer for peer, module in PEERS.items() if _installed(module)]
    rows: list[Row] = []
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name, ExitStack() as stack:
        folder = Path(name)
        cache = Server(folder / "redis", port=free_port())
        stack.callback(cache.stop)
        for store, url, others in (
            ("redis", cache.url, peers),
            ("sqlite", f"sqlite:///{folder}/effects.db", []),
        ):
            with ExitStack() as servers:
                contenders = Contenders(servers, url, ["bare", "ours", "ours, cached", *others])
                contenders.prepare()
                for connections in CONNECTIONS:
                    rows += rows_of(
                        store, connections, contenders.measure(connections, slices, slice_s)
                    )
                    loads.append(os.getloadavg()[0])
        disk = {"disk": f"{filesystem(folder)}, one fdatasync {fsync_s(folder, 20) * 1e6:.0f} us"}
    served = ", ".join(
        f"{each} {version(each) if _installed(each) else 'not installed'}" for each in SERVED_BY
    )
    notes = {"served by": served, "floor": "the bare app, or the peer"}
    if peers:
        notes["peers"] = ", ".join(f"{peer} {version(peer)}" for peer in peers)
    if len(peers) < len(PEERS):
        notes["left out, not installed"] = ", ".join(peer for peer in PEERS if peer not in peers)
    report(
        rows, chosen, machine() | disk | notes | {"load": " ".join(f"{load:.1f}" for load in loads)}
    )


if __name__ == "__main__":
    main()
