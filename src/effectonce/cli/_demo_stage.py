"""The processes of the demo: agents, heard in the order in which their reports arrive."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from signal import SIGKILL
from typing import Any, NamedTuple, Self, TypeAlias

import click
import msgspec

from effectonce.cli._demo_agent import DemoJob

SILENCE_S = 30.0  # an agent that says nothing for so long is broken, and so is the demo
AgentProcess: TypeAlias = "subprocess.Popen[bytes]"


class DemoFailed(click.ClickException):
    """The demo could not be played to its end."""


class StageEvent(NamedTuple):
    at_s: float
    who: str
    what: str
    details: dict[str, Any]


class Stage:
    """Starts agents, hears them, and kills them. Every event goes to *show* as well."""

    def __init__(self, show: Callable[[StageEvent], None]) -> None:
        self._show, self._began = show, time.monotonic()
        self._heard: SimpleQueue[StageEvent] = SimpleQueue()
        self._agents: list[tuple[AgentProcess, threading.Thread]] = []
        self.events: list[StageEvent] = []
        self.calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, listener in self._agents:
            with process:  # waits for its end, and closes its pipes
                process.kill()
                listener.join()

    def start(self, *names: str) -> list[AgentProcess]:
        """Start agents and wait until all of them are ready."""
        command, pipe = [sys.executable, "-m", "effectonce.cli._demo_agent"], subprocess.PIPE
        for name in names:
            # In a session of its own: Ctrl-C is for this process, which then ends the agents.
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603  # our own module
            listener = threading.Thread(target=self._listen, args=(name, process), daemon=True)
            listener.start()
            self._agents.append((process, listener))
        for _ in names:
            self._hear("ready")
        return [process for process, _ in self._agents[-len(names) :]]

    def perform(self, *parts: tuple[AgentProcess, DemoJob], kill: bool = False) -> None:
        """Send agents off together, and hear them until each has ended. *kill*: as soon as the
        bank has said yes.
        """
        for process, job in parts:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        self.calls += len(parts)
        if kill:
            self._hear("bank_said_yes")
            parts[0][0].kill()
        for _ in parts:
            self._hear("killed" if kill else "ended")

    def note(self, who: str, what: str, **details: Any) -> None:
        """Something that was done or seen from outside."""
        self._note(StageEvent(time.monotonic() - self._began, who, what, details))

    def count(self, what: str) -> int:
        return sum(event.what == what for event in self.events)

    def _listen(self, who: str, process: AgentProcess) -> None:
        def heard(what: str, details: dict[str, Any]) -> None:
            self._heard.put(StageEvent(time.monotonic() - self._began, who, what, details))

        assert process.stdout is not None
        for line in process.stdout:
            details = msgspec.json.decode(line)
            heard(details.pop("event"), details)
        heard("killed" if process.wait() == -SIGKILL else "ended", {})

    def _hear(self, what: str) -> None:
        """Everything up to the next event of this sort."""
        while True:
            try:
                event = self._heard.get(timeout=SILENCE_S)
            except Empty:
                raise DemoFailed(f"no agent reported {what!r} within {SILENCE_S:.0f} s") from None
            self._note(event)
            if event.what == what:
                return
            if event.what in ("ended", "killed"):
                raise DemoFailed(f"{event.who} ended before it reported {what!r}")

    def _note(self, event: StageEvent) -> None:
        self.events.append(event)
        self._show(event)
