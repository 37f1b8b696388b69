"""Where a scenario is played: a world, a folder, and processes of the subject that may die."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oncebench import rows
from oncebench.checker import Counted, Expected, History, Report
from oncebench.clocks import shifted
from oncebench.environments import fall_back, kept_copy
from oncebench.kit import PATHS, Temperament, Wish
from oncebench.syscalls import NoTracing, Point, attached, points_of
from oncebench.world import LANDS_WITHIN_S, Kind, World

SOURCE = Path(__file__).parent.parent
REQUEST = '"POST /pay'  # how the request for an effect begins, in a trace
LOG = "stderr"  # of all processes of a play; no trace takes it for state
FINAL = frozenset({"done", "happened", "conflict", "expired", "waiting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Which subject, in which environment, in which configuration."""

    adapter: str
    python: str = sys.executable
    best: bool = False
    servers: dict[str, str] = field(default_factory=dict)
    bug: str = ""  # of the control with a broken store

    @property
    def configuration(self) -> str:
        return "best" if self.best else "as shipped"


class Worker:
    """A process of the subject."""

    def __init__(self, stage: Stage, command: list[str], environment: dict[str, str]) -> None:
        self._stage = stage
        with (stage.folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._wish: Wish | None = None
        ready = self._line(120)
        if ready is None or "ready" not in ready:
            raise SubjectBroken(f"the subject did not start:\n{stage.log_tail()}")
        self.pid = ready["ready"]

    def call(self, wish: Wish) -> Report:
        self.begin(wish)
        return self.finish()

    def begin(self, wish: Wish) -> None:
        self._wish = wish
        self._tell(asdict(wish))

    def finish(self) -> Report:
        """What the caller was told; nothing, if the process died or took too long."""
        assert self._wish is not None
        line = self._line(self._stage.patience_s) or {"says": "nothing"}
        ago_s = time.monotonic() - line.pop("told_at", time.monotonic())
        report = Report(wish=self._wish.name, at=time.time() - ago_s, **line)
        self._stage.note(f"{report.wish}: told {report.says!r} {report.error or report.result}")
        self._stage.history.reports.append(report)
        return report

    def maintain(self) -> None:
        self._tell({"maintain": True})
        self._line(self._stage.patience_s)

    def approve(self, wish: Wish) -> None:
        """A person says yes to what waits for this wish."""
        self._tell({"approve": asdict(wish)})
        line = self._line(self._stage.patience_s) or {"says": "nothing", "error": ""}
        self._stage.note(f"{wish.name}: a person says yes: {line['says']} {line['error']}")

    def kill(self) -> None:
        if self._process.returncode is None:  # it may have been killed before
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError), self._process:
            pass  # its pipes are closed, also one that has a line which it never read

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died: finish() reports it

    def _line(self, within_s: float) -> dict[str, Any] | None:
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], within_s)[0]:
            return None
        line = stdout.readline()
        parsed: dict[str, Any] | None = json.loads(line) if line else None
        return parsed


class SubjectBroken(Exception):
    """The subject does not run at all here: no cell of it says anything."""


class Stage:
    """One play of one scenario by one subject."""

    def __init__(
        self,
        subject: Subject,
        world: World,
        folder: Path,
        *,
        temperament: Temperament,
        database: str = "",
        window_s: float | None,
        lease_s: float = 1.0,
        pass_s: float | None = None,
        points_max: int = 6,
        approval: bool = False,
    ) -> None:
        self.subject, self.world, self.folder = subject, world, folder
        self.temperament, self.window_s, self.lease_s = temperament, window_s, lease_s
        self._database = database  # where the effect is a row
        last_s = max(lease_s, LANDS_WITHIN_S) if temperament == "asks" else lease_s
        self._pass_s = last_s * 1.3 if pass_s is None else pass_s
        self.points_max, self._approval = points_max, approval
        self.patience_s = 45.0
        self.history = History()
        self.knowable = temperament != "deaf"
        self._workers: list[Worker] = []
        self._copies: dict[str, str] = {}
        self._copy = folder.with_name(f"{folder.name}, older")
        self.environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}

    # ------------------------------------------------------------ what a scenario does

    def start(self, *, clock_s: float = 0) -> Worker:
        """A process of the subject, whose clock may be ahead of the others'."""
        clock = shifted(clock_s) if clock_s else {}
        worker = Worker(self, self._command(), {**self.environment, **clock})
        self._workers.append(worker)
        return worker

    def arm(self, kind: Kind, wish: Wish, worker: Worker | None = None, **details: Any) -> None:
        self.note(f"fault for {wish.order}: {kind}")
        pid = None if worker is None else worker.pid
        self.world.arm(kind, matches=wish.order, pid=pid, **details)

    def settle(self, wish: Wish, *, tries: int = 3, worker: Worker | None = None) -> Report:
        """As an orchestrator does: call again, in a new process, until the caller is told
        something that lasts. Between the calls, leases end, requests land that come late, and what
        the subject's docs say to run now and then is run.
        """
        fresh = self.start() if worker is None else worker
        report = fresh.call(replace(wish, first=""))
        for _ in range(tries - 1):
            if report.says in FINAL:
                break
            self.let_leases_end()
            fresh.maintain()
            report = fresh.call(replace(wish, first=""))
        return report

    def let_leases_end(self) -> None:
        time.sleep(self._pass_s)

    def keep_copy(self) -> None:
        """What the subject's store knows now: of its files, and of its servers."""
        self._kill_all()
        self._copies = kept_copy(self.subject.servers, beside=self.subject.python)
        shutil.copytree(self.folder, self._copy)

    def fall_back(self) -> None:
        """The store knows what it knew then, as a replica that lags, or a backup."""
        self._kill_all()
        fall_back(self._copies)
        self.subject = replace(self.subject, servers=self._copies)
        shutil.rmtree(self.folder)
        shutil.copytree(self._copy, self.folder)
        self.note("the store falls back to an older copy")

    def expect(self, wish: Wish, **details: Any) -> Expected:
        path = PATHS[wish.tool]
        right: dict[str, Any] = {"knowable": self.knowable, **details}
        return Expected(wish=wish.name, order=wish.order, path=path, **right)

    def kill_points(self, wish: Wish) -> list[Point]:
        """System calls of one clean call, from when it begins to when it has answered. Up to half
        of them are before the request leaves: a subject that writes more before it sends is not
        hit less afterwards.
        """
        lines, _ = self._once(wish)
        sent = next((i for i, line in enumerate(lines) if REQUEST in line), 0)
        early = {str(p) for p in points_of(lines[:sent])}
        kills = [p for p in points_of(lines) if p.what == "kill"]
        before = _spread([p for p in kills if str(p) in early], self.points_max // 2)
        after = _spread([p for p in kills if str(p) not in early], self.points_max - len(before))
        return before + after

    def killed_at(self, point: Point, wish: Wish) -> bool | Point | None:
        """One process that serves one wish, and is killed on the way. Whether its request may
        have left: at the send itself, none can know. If it was not killed there: where to try
        next, or None.
        """
        lines, killed = self._once(wish, point)
        hit = point.hit_in(lines)
        if not killed or hit is None:
            return point.instead(lines)
        self.note(f"killed at {point} ({hit})")
        return any(REQUEST in line for line in lines)

    # ------------------------------------------------------------ what it rests on

    def note(self, text: str) -> None:
        self.history.events.append(text)

    def counted(self) -> list[Counted]:
        """What has happened, by the world's ledger, or by the rows that are committed."""
        if self._database:
            effects = rows.landed(self._database, beside=self.subject.python)
        else:
            effects = [{**asdict(e), "receipt": e.receipt} for e in self.world.effects()]
        return [
            Counted(
                path=effect["path"],
                order=str(effect["body"].get("order")),
                amount=effect["body"].get("amount"),
                receipt=effect["receipt"],
                asked_at=effect["asked_at"],
            )
            for effect in effects
        ]

    def log_tail(self) -> str:
        return "\n".join((self.folder / LOG).read_text(errors="replace").splitlines()[-12:])

    def close(self) -> History:
        """End every process, and read what the world counted."""
        self.world.release()
        self._kill_all()
        self.history.counted.extend(self.counted())
        return self.history

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _once(self, wish: Wish, point: Point | None = None) -> tuple[list[str], bool]:
        """The trace of a process that serves one wish, and whether it was killed."""
        trace = self.folder / "trace"
        with contextlib.ExitStack() as ends:
            log = ends.enter_context((self.folder / LOG).open("ab"))
            answer = ends.enter_context((self.folder / "answer").open("ab"))  # its last write
            files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": answer, "stderr": log}
            process = subprocess.Popen(  # noqa: S603
                self._command(wish), env=self.environment, start_new_session=True, **files
            )
            ends.callback(_end, process)
            if not self._until(process, lambda: _all_threads(process.pid, "State:\tT")):
                raise SubjectBroken(f"the subject did not start:\n{self.log_tail()}")
            tracer = subprocess.Popen(  # noqa: S603
                attached(process.pid, trace, point),
                start_new_session=True,
                **files,
            )
            ends.callback(_end, tracer)
            by = f"TracerPid:\t{tracer.pid}\n"
            if not self._until(tracer, lambda: _all_threads(process.pid, by)):
                raise NoTracing("strace could not attach to a process of the subject")
            os.kill(process.pid, signal.SIGCONT)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                self.note("it did not end in 120 s")
            killed = process.poll() == -signal.SIGKILL
            _end(process)  # also what it started
            tracer.wait(60)  # it has written its trace
        return trace.read_text(errors="replace").splitlines(), killed

    def _until(self, process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> bool:
        """Whether it comes to hold before the process ends."""
        end = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread ended
                if holds():
                    return True
            time.sleep(0.01)
        return False

    def _command(self, once: Wish | None = None) -> list[str]:
        setup = {
            "folder": str(self.folder),
            "url": self.world.url,
            "temperament": self.temperament,
            "window_s": self.window_s,
            "lands_within_s": LANDS_WITHIN_S,
            "best": self.subject.best,
            "lease_s": self.lease_s,
            "servers": self.subject.servers,
            "bug": self.subject.bug,
            "database": self._database,
            "approval": self._approval,
        }
        asked: dict[str, Any] = {"adapter": self.subject.adapter, "setup": setup}
        if once is not None:
            asked["once"] = asdict(once)
        return [self.subject.python, "-m", "oncebench.worker", json.dumps(asked)]


def _spread(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many of them. The first and the last are always among them."""
    count = min(len(points), most)
    return [points[index * (len(points) - 1) // max(1, count - 1)] for index in range(count)]


def _all_threads(pid: int, say: str) -> bool:
    """Whether the kernel says so of each thread of a process."""
    return all(say in (task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir())


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
