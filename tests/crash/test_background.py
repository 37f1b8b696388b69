"""Two processes and fifty doubts: one asks at a time, at the pace that it may, and nothing is
sent. The desk that counts is neither of them.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from effectonce import Guard, State
from tests.crash.tiers import on_stores

pytestmark = pytest.mark.usefixtures("in_the_background")
DOUBTS = 50


class Desk(ThreadingHTTPServer):
    """What was sent, asked and settled: by which process, about what, and when."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.changed = threading.Condition()
        self.seen = {"/send": [], "/ask": [], "/settled": []}
        self.answer = lambda pid, n: True
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def wait_for(self, path, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen[path]) >= count, 60), self.seen

    def about(self, numbers):
        return [ask for ask in self.seen["/ask"] if ask["n"] in numbers]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        facts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.changed:
            self.server.seen[self.path].append({**facts, "at": time.time()})
            self.server.changed.notify_all()
        said = self.server.answer(facts["pid"], facts["n"]) if self.path == "/ask" else True
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError):  # of a process that was killed
            super().handle()


@pytest.fixture
def desk():
    server = Desk()
    yield server
    server.shutdown()
    server.server_close()


class World:
    def __init__(self, url, desk):
        self.url, self.desk, self.started = url, desk, []

    def seed(self):
        assert self.start("seed", 0, DOUBTS, {}).wait(60) == 0
        assert len(self.desk.seen["/send"]) == DOUBTS

    def start(self, what, first, count, pace):
        command = [sys.executable, "-m", "tests.crash.background", self.url]
        command += [str(self.desk.server_port), what, str(first), str(count), json.dumps(pace)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.started.append(process)
        return process

    def ask(self, **pace):
        """Two processes, each with a doubt of its own."""
        return [self.start("ask", n, 1, pace) for n in (1000, 1001)]

    def end(self):
        for process in self.started:
            process.stdin.close()
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()

    def states(self):
        guard = Guard(self.url, reconcile=False)
        try:
            return guard.counts()
        finally:
            guard.close()


@pytest.fixture
def world(url, desk):
    world = World(url, desk)
    try:
        world.seed()
        yield world
    finally:
        world.end()


@on_stores("sqlite")
def test_each_doubt_is_asked_about_once_by_one_process_at_a_time_and_nothing_is_sent(world, desk):
    own = {1000, 1001}
    known = []
    desk.answer = lambda pid, n: n not in own or n in known or known.append(n)

    world.ask(every_s=0.2, per_s=25, per_round=20, lease_s=30)
    desk.wait_for("/settled", DOUBTS + 2)

    asks = desk.about(range(DOUBTS))
    assert sorted(ask["n"] for ask in asks) == list(range(DOUBTS))
    turns = [len(list(group)) for _, group in itertools.groupby(asks, key=lambda ask: ask["pid"])]
    assert max(turns, default=0) >= 18  # a round is not shared
    times = [ask["at"] for ask in asks]
    assert all(later - first > 0.9 for first, later in zip(times, times[26:], strict=False))
    assert len(desk.seen["/send"]) == DOUBTS + 2
    assert world.states() == {State.COMPLETED: DOUBTS + 2}


@on_stores("postgres")
def test_when_the_process_that_asks_is_killed_the_other_goes_on_after_its_lease(world, desk):
    hold, held = threading.Event(), []
    own = {1000, 1001}

    def answer(pid, n):
        if n in own:
            return False
        if not held:
            held.append(pid)
        if pid == held[0]:
            hold.wait(60)
        return True

    desk.answer = answer
    began = time.time()
    processes = world.ask(every_s=0.2, per_s=1000, lease_s=3)
    with desk.changed:
        assert desk.changed.wait_for(lambda: held, 60)
    victim = held[0]
    os.kill(victim, signal.SIGKILL)
    next(p for p in processes if p.pid == victim).wait(30)
    desk.wait_for("/settled", DOUBTS)
    hold.set()

    asks = desk.about(range(DOUBTS))
    others = [ask for ask in asks if ask["pid"] != victim]
    assert len(others) == DOUBTS
    assert len(asks) == DOUBTS + 1
    assert min(ask["at"] for ask in others) - began > 3
    assert len(desk.seen["/send"]) == DOUBTS + 2
    assert world.states()[State.COMPLETED] == DOUBTS


@on_stores("redis")
def test_what_is_not_known_is_asked_less_and_less_often(world, desk):
    desk.answer = lambda pid, n: False

    every_s, began = 0.1, time.time()
    world.ask(every_s=every_s, per_s=10_000, lease_s=30)
    desk.wait_for("/ask", 3 * DOUBTS)

    for n in range(DOUBTS):
        waits = [ask["at"] - began for ask in desk.about([n])]
        assert all(wait > every_s * 2**n for n, wait in enumerate(waits[1:]))
    assert len(desk.seen["/send"]) == DOUBTS + 2
    assert world.states() == {State.IN_DOUBT: DOUBTS + 2}
