"""Start a server as a user that may run it, wait until it answers, and end exactly that process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

NOBODY = 65534
START_S = 30.0
PORTS = range(20_000, 30_000)
RESERVED = []  # a name for each port that was given away: other test processes see that it is


def private_folder(name, under=None):
    """A short path (a socket's name has to fit 107 characters), in memory where there is some:
    fsync is cheap there.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=under or memory))
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


def as_nobody(command):
    """Servers refuse to run as root."""
    if os.getuid() != 0:
        return command
    return [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "--pdeathsig=keep",
        "--",
        *command,
    ]


def tool(name, package):
    """Where a Debian program is; says what to install if it is nowhere."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(
            f"{name} is missing. As root: apt-get install {package}  (`make test` does it)"
        )
    return found


def end_with_the_tests():
    """However they end: the kernel kills the server when the process that started it is gone."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Process:
    """One server process and everything that it started."""

    def __init__(self, command, log):
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                as_nobody([str(word) for word in command]),
                stdout=output,
                stderr=output,
                cwd="/",
                preexec_fn=end_with_the_tests,  # noqa: PLW1509
            )
        self.pid = self._popen.pid

    def wait_until(self, ready):
        """Wait until *ready()* is true, or the process has died of something that its log tells."""
        until(
            lambda: self._popen.poll() is not None or ready(),
            f"a server that answers, see {self.log}",
        )
        if self._popen.poll() is not None:
            raise RuntimeError(
                f"{self.log.name} did not start:\n{self.log.read_text(errors='replace')}"
            )

    def end(self, how=signal.SIGTERM):
        """Send the signal and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
        self._popen.wait(START_S)

    def kill_all(self):
        """SIGKILL to every process of this server, at once; returns when they are all gone."""
        os.kill(self.pid, signal.SIGSTOP)  # it must not fork another one meanwhile
        handles = [os.pidfd_open(pid) for pid in (*descendants(self.pid), self.pid)]
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:
            select.select([handle], [], [])
            os.close(handle)
        self._popen.wait(START_S)

    def signal_all(self, how):
        """To every process of this server."""
        for pid in (self.pid, *descendants(self.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)


def descendants(pid):
    """Its children and theirs. A thread or a process that ends while we look has none."""
    children = []
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children += map(int, (task / "children").read_text().split())
    return [each for child in children for each in (child, *descendants(child))]


def until(true, what):
    """Look at another process until something is true of it, and no longer than a start takes.
    It has no event that we could wait for.
    """
    give_up_at, pause = time.monotonic() + START_S, threading.Event()
    while not true():
        assert time.monotonic() < give_up_at, f"{what} did not come about"
        pause.wait(0.005)


def free_port():
    """A port for a server that starts in a moment: below those that the system hands out by
    itself, and of this process until it ends.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        mine = socket.socket(socket.AF_UNIX)
        try:
            mine.bind(f"\0effectonce-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            mine.close()
            continue
        RESERVED.append(mine)
        return port
    raise RuntimeError(f"every port from {PORTS.start} to {PORTS.stop - 1} is taken")
