"""Worker processes that tests start, kill and replace; and the bank that counts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from effectonce.testing.bank import Bank
from tests.servers._process import descendants, end_with_the_tests, until

ROOT = Path(__file__).parents[3]


class Crew:
    """One worker process at a time, in a folder of its own, with a bank that honours keys."""

    def __init__(self, folder, *command):
        self.folder, self.command = Path(folder), [sys.executable, *command]
        self.bank = Bank(self.folder / "bank.ledger", honours_keys=True)
        self.process, self.started = None, 0

    def __enter__(self):
        self.bank.__enter__()
        self.environment = {
            "SHOP_FOLDER": str(self.folder),
            "SHOP_BANK": str(self.bank.port),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        return self

    def __exit__(self, *_):
        self.end()
        self.bank.__exit__()

    def work(self, ready="ready"):
        """A new worker, in place of the one that is gone."""
        self.started += 1
        log = self.folder / f"worker-{self.started}.log"
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                env=os.environ | self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509
            )
        until(lambda: self._is(ready, log), f"a worker that is ready, see {log}")

    def _is(self, ready, log):
        said = log.read_text(errors="replace")
        assert self.process.poll() is None, said
        return ready in said

    def killed(self):
        """Wait until the worker has died of its accident."""
        until(lambda: self.process.poll() is not None, "the death of the worker")
        assert self.process.returncode == -9

    def end(self):
        """By its pid, and then those that it started."""
        if self.process is None or self.process.poll() is not None:
            return
        started = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                started.append(os.pidfd_open(pid))
        self.process.kill()
        self.process.wait()
        for handle in started:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)

    def plan(self, point, what):
        """What will go wrong, once, and where."""
        (self.folder / point).write_text(what)

    def effects(self, payment_id):
        """How often it really happened, by the bank's own book."""
        return sum(entry["payment_id"] == payment_id for entry in self.bank.ledger())

    def planned(self):
        """Accidents that did not happen."""
        return [p.name for p in self.folder.iterdir() if p.name.startswith(("before ", "after "))]


class Clerk(Crew):
    """A crew whose worker is asked by files."""

    asked = 0

    def send(self, *command):
        self.asked += 1
        part = self.folder / f"part-{self.asked:03}"
        part.write_text(json.dumps(command))
        part.rename(self.folder / f"ask-{self.asked:03}")
        return self.folder / f"answer-{self.asked:03}"

    def ask(self, *command):
        said = self._answer(command)
        assert "error" not in said, said
        return said["value"]

    def fails(self, *command):
        return self._answer(command)["error"]

    def _answer(self, command):
        answer = self.send(*command)
        until(answer.exists, f"an answer to {command}")
        return json.loads(answer.read_text())

    def dies(self, point, *command):
        """The worker dies of this command, there. It is not asked for again, and another worker
        takes its place.
        """
        self.plan(point, "kill")
        self.send(*command)
        self.killed()
        (self.folder / f"ask-{self.asked:03}").unlink()
        self.work()
