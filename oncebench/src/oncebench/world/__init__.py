"""Start a world, arm its faults, read its ledger. None of it is a part of what is judged."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.world.faults import WIRE, Fault, Kind
from oncebench.world.ledger import Effect

__all__ = [
    "DAY_S",
    "LANDS_WITHIN_S",
    "WIRE",
    "Effect",
    "Fault",
    "Kind",
    "World",
    "WorldDied",
    "world",
]

DAY_S = 86_400.0
LANDS_WITHIN_S = 3.0  # what the service says of a request that it has


class WorldDied(Exception):
    """The world's process is gone: what was counted since is unknown, and the run is void."""


@dataclass(frozen=True, slots=True)
class World:
    """A running world, as the kit sees it."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def arm(self, kind: Kind, **details: Any) -> None:
        self._ask("POST", "/_arm", {"kind": kind, **details})

    def release(self) -> None:
        """Let go what is held."""
        self._ask("POST", "/_release", {})

    def effects(self) -> list[Effect]:
        """What has happened, and what is on its way and lands late."""
        return [Effect(**line) for line in self._ask("GET", "/_ledger")]

    def requests(self) -> list[dict[str, Any]]:
        """What arrived, whether or not anything came of it."""
        asked: list[dict[str, Any]] = self._ask("GET", "/_requests")
        return asked

    def wait_for_request(self, count: int, *, within_s: float = 30) -> bool:
        """Until *count* requests for effects have arrived, or the time is over."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if len(self.requests()) >= count:
                return True
            time.sleep(0.01)
        return False

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            return json.loads(connection.getresponse().read())
        except OSError as error:
            code = self.process.poll()
            raise WorldDied(
                f"the world cannot be asked ({error}); its exit code: {code}"
            ) from error
        finally:
            connection.close()


@contextmanager
def world(
    ledger: Path, *, window_s: float | None = None, can_be_asked: bool = False
) -> Iterator[World]:
    """A world in a process of its own, for as long as the block runs."""
    command = [sys.executable, "-m", "oncebench.world.server", str(ledger)]
    if window_s is not None:
        command += ["--window-s", str(window_s)]
    if can_be_asked:
        command.append("--can-be-asked")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    process = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise WorldDied(f"the world did not start; its exit code: {process.wait()}")
        yield World(int(line), process)
    finally:
        process.kill()
        process.communicate()
