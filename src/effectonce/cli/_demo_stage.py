"""The demo's stage: agents are processes; what they report is heard in the order in which it
arrives.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Self

import click
import msgspec

from effectonce.cli._demo_agent import DemoJob

SILENCE_S = 30.0  # an agent that says nothing for so long is broken, and so is the demo


class DemoFailed(click.ClickException):
    """The demo could not be played to its end."""


@dataclass(frozen=True, slots=True)
class StageEvent:
    """Something that happened: when, to whom, what."""

    at_s: float
    who: str
    what: str
    details: dict[str, Any] = field(default_factory=dict)


class Agent:
    """One agent process."""

    def __init__(self, who: str, tell: Callable[[str, str, dict[str, Any]], None]) -> None:
        self.who = who
        command = [sys.executable, "-m", "effectonce.cli._demo_agent"]
        pipe = subprocess.PIPE
        # In a session of its own: Ctrl-C is for the director, who then clears the stage.
        # our own module
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603
        self._ears = threading.Thread(target=self._listen, args=(tell,), daemon=True)
        self._ears.start()

    def give(self, job: DemoJob) -> None:
        """Send it off."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed, nothing is reported."""
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            self.kill()
        self._process.wait()
        self._ears.join()
        self._process.stdin.close()
        self._process.stdout.close()

    def _listen(self, tell: Callable[[str, str, dict[str, Any]], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            details = msgspec.json.decode(line)
            tell(self.who, details.pop("event"), details)
        tell(self.who, "ended", {"killed": self._process.wait() == -signal.SIGKILL})


class Stage:
    """Starts agents, hears them, and kills them. Every event goes to *show* as well."""

    def __init__(self, show: Callable[[StageEvent], None]) -> None:
        self._show = show
        self._heard: SimpleQueue[StageEvent] = SimpleQueue()
        self._agents: list[Agent] = []
        self._curtain_s = time.monotonic()
        self.events: list[StageEvent] = []
        self.calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._agents:
            agent.close()

    def start(self, *names: str) -> list[Agent]:
        """Start agents and wait until all of them are ready."""
        agents = [Agent(name, self._tell) for name in names]
        self._agents += agents
        for _ in agents:
            self._hear("ready")
        return agents

    def perform(self, *parts: tuple[Agent, DemoJob]) -> None:
        """Send these agents off together, and hear them until each has ended."""
        for agent, job in parts:
            self._give(agent, job)
        self._until_ended({agent.who for agent, _ in parts})

    def perform_and_kill(self, agent: Agent, job: DemoJob) -> None:
        """Send this agent off, and kill it as soon as the bank has said yes."""
        self._give(agent, job)
        self._hear("bank_said_yes")
        agent.kill()
        self._until_ended({agent.who})

    def note(self, who: str, what: str, **details: Any) -> None:
        """Something that the director did or saw."""
        self._note(StageEvent(self._now_s(), who, what, details))

    def _give(self, agent: Agent, job: DemoJob) -> None:
        self.calls += 1
        agent.give(job)

    def _until_ended(self, names: Collection[str]) -> None:
        left = set(names)
        while left:
            left.discard(self._hear("ended").who)

    def _hear(self, what: str) -> StageEvent:
        """Everything up to the next event of this sort."""
        while True:
            try:
                event = self._heard.get(timeout=SILENCE_S)
            except Empty:
                raise DemoFailed(f"no agent reported {what!r} within {SILENCE_S:.0f} s") from None
            self._note(event)
            if event.what == what:
                return event
            if event.what == "ended" and what != "ended":
                raise DemoFailed(f"{event.who} ended before it reported {what!r}")

    def _note(self, event: StageEvent) -> None:
        self.events.append(event)
        self._show(event)

    def _tell(self, who: str, what: str, details: dict[str, Any]) -> None:
        self._heard.put(StageEvent(self._now_s(), who, what, details))

    def _now_s(self) -> float:
        return time.monotonic() - self._curtain_s
