"""Private Redis servers for tests: on a unix socket or a free port, in a folder of their own,
stopped by their pid.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import hiredis

from tests.servers._process import end_with_the_tests, free_port, until

PATIENCE_S = 20.0  # for one answer
SLOTS = 16384


class Server:
    """One redis-server process. *fsync* is always, everysec or no; None is a server without an
    append-only file.
    """

    def __init__(self, folder, *, port=0, fsync=None, **settings):
        binary = shutil.which("redis-server")
        assert binary, "redis-server is missing. As root: apt-get install redis-server"
        self.folder, self.port, self.bus = Path(folder), port, settings.get("cluster_port", 0)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket = str(self.folder / "redis.sock")
        durable = (
            ["--appendonly", "no"]
            if fsync is None
            else ["--appendonly", "yes", "--appendfsync", fsync]
        )
        given = [
            word
            for name, value in settings.items()
            for word in (f"--{name.replace('_', '-')}", *str(value).split(" "))
        ]
        self.command = [
            binary,
            "--port",
            str(port),
            "--unixsocket",
            self.socket,
            "--dir",
            str(self.folder),
            "--save",
            "",
        ]
        self.command += [
            "--bind",
            "127.0.0.1",
            "--logfile",
            str(self.folder / "log"),
            *durable,
            *given,
        ]
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"redis+unix://{self.socket}"

    def start(self):
        self.launch()
        until(self.answers, f"a redis-server that answers, see {self.folder / 'log'}")

    def launch(self):
        """Start it and do not wait."""
        with suppress(FileNotFoundError):
            Path(self.socket).unlink()
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.DEVNULL,
            preexec_fn=end_with_the_tests,  # noqa: PLW1509
        )  # noqa: PLW1509, RUF100

    def answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return self.ask("PING") in (b"PONG", "refused")
        except OSError:
            return False

    def ask(self, *command):
        """One command over a connection of its own."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE_S)
            line.connect(self.socket)
            line.sendall(
                hiredis.pack_command(
                    tuple(str(word) if isinstance(word, int) else word for word in command)
                )
            )
            reader = hiredis.Reader()
            while (reply := reader.gets()) is False:
                data = line.recv(1 << 16)
                if not data:
                    raise ConnectionError("closed")
                reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            if str(reply).startswith(("LOADING", "MASTERDOWN")):
                raise ConnectionError(str(reply))
            if str(reply).startswith("NOAUTH"):
                return "refused"
            raise reply
        return reply

    def info(self):
        return dict(
            line.split(":", 1)
            for line in self.ask("INFO", "everything").decode().split("\r\n")
            if ":" in line
        )

    def send(self, number):
        os.kill(self.process.pid, number)

    def stop(self, number=signal.SIGKILL):
        """By pid; a stopped process dies as well."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait()


class Cluster:
    """Three nodes that share the slots, joined by hand."""

    def __init__(self, folder, nodes=3):
        settings = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": 2000,
            "cluster_require_full_coverage": "no",
        }
        self.nodes = [
            Server(
                Path(folder, f"node-{n}"),
                port=free_port(),
                fsync="no",
                cluster_port=free_port(),
                **settings,
            )
            for n in range(nodes)
        ]
        share = SLOTS // nodes + 1
        for n, node in enumerate(self.nodes):
            node.ask("CLUSTER", "ADDSLOTSRANGE", n * share, min((n + 1) * share, SLOTS) - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus)
        until(lambda: all(self._complete(node) for node in self.nodes), "a complete cluster")

    def _complete(self, node):
        said = node.ask("CLUSTER", "INFO").decode()
        return (
            "cluster_state:ok" in said
            and f"cluster_slots_ok:{SLOTS}" in said
            and f"known_nodes:{len(self.nodes)}" in said
        )

    @property
    def url(self):
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def owner(self, slot):
        """The node that serves a slot."""
        share = SLOTS // len(self.nodes) + 1
        return self.nodes[slot // share]

    def stop(self):
        for node in self.nodes:
            node.stop()


# ---------------------------------------------------------------- one of each for all tests of
# this process


@functools.cache
def folder():
    made = tempfile.mkdtemp(prefix="effectonce-redis-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@functools.cache
def server():
    """A server without a disk. Each test has a prefix of its own."""
    one = Server(folder() / "plain")
    atexit.register(one.stop)
    return one


@functools.cache
def durable_server():
    """A server that syncs each write to its disk."""
    one = Server(folder() / "durable", fsync="always")
    atexit.register(one.stop)
    return one


@functools.cache
def cluster():
    three = Cluster(folder() / "cluster")
    atexit.register(three.stop)
    return three


def emptied(one):
    """Forget everything."""
    for each in getattr(one, "nodes", [one]):
        each.ask("FLUSHALL")
    return one
