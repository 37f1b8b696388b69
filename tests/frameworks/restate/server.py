"""A private Restate server: its binary comes from npm, its ports are free ones of the loopback,
its files lie in a folder of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers._process import end_with_the_tests, free_port, until

PATIENCE_S = 30.0  # for one answer


def binary():
    """The program itself: what npm puts on the path is a script that starts it."""
    found = next(
        Path(sys.prefix, "npm").glob(
            "node_modules/@restatedev/restate-server-linux-*/bin/restate-server"
        ),
        None,
    )
    return found or shutil.which("restate-server")


class Server:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.ingress, self.admin, self.node = free_port(), free_port(), free_port()
        self.process = None

    def start(self):
        settings = {
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": str(self.node),
            "RESTATE_INGRESS__BIND_PORT": str(self.ingress),
            "RESTATE_ADMIN__BIND_PORT": str(self.admin),
            "RESTATE_DEFAULT_NUM_PARTITIONS": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
        }
        command = [
            str(binary()),
            "--no-logo",
            "--base-dir",
            str(self.folder / "restate"),
            "--node-name",
            "only",
        ]
        with (self.folder / "restate.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=os.environ | settings,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509
            )
        until(self._answers, f"a Restate server that answers, see {self.folder / 'restate.log'}")

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "restate.log").read_text(
            errors="replace"
        )
        try:
            return [
                ask("GET", f"http://127.0.0.1:{port}/{path}") for port, path in self._health()
            ] != []
        except urllib.error.URLError:  # nobody listens yet, or it is not ready
            return False

    def _health(self):
        return (self.admin, "health"), (self.ingress, "restate/health")

    def end(self):
        """By its pid."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def register(self, port):
        ask(
            "POST",
            f"http://127.0.0.1:{self.admin}/deployments",
            {"uri": f"http://127.0.0.1:{port}"},
        )

    def call(self, path, given, **headers):
        """Wait for the result of a handler."""
        return ask("POST", f"http://127.0.0.1:{self.ingress}/{path}", given, **headers)

    def send(self, path, given, **headers):
        """Do not wait: the id of the invocation."""
        return self.call(f"{path}/send", given, **headers)["invocationId"]

    def result(self, invocation):
        return ask("GET", f"http://127.0.0.1:{self.ingress}/restate/invocation/{invocation}/attach")

    def control(self, invocation, what):
        """What an operator does to an invocation: purge, restart-as-new."""
        return ask("PATCH", f"http://127.0.0.1:{self.admin}/invocations/{invocation}/{what}")


def ask(method, url, content=None, **headers):
    body = None if content is None else json.dumps(content).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(
        url, body, {"content-type": "application/json", **named}, method=method
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None
