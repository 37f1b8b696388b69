from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from effectonce.testing.bank import Bank

HERE = Path(__file__).parent
PLAIN, SDK = HERE / "plain.py", HERE / "server.py"


def proxied(command, *options):
    return [sys.executable, "-m", "effectonce.cli", "mcp", *options, "--", *command]


def environment(folder):
    """Nothing of the host that runs the tests counts as a conversation here."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EFFECTONCE_", "CLAUDE_"))
    }
    return kept | {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}


class Client:
    """A client that writes lines and reads lines, and nothing else."""

    def __init__(self, command, folder, cwd=None):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, env=environment(folder), cwd=cwd or folder
        )
        self.said, self.ids = [], 0

    def send(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def request(self, method, params=None, **more):
        self.ids += 1
        message = {
            "jsonrpc": "2.0",
            "id": self.ids,
            "method": method,
            "params": params or {},
            **more,
        }
        self.send(json.dumps(message).encode() + b"\n")
        return self.ids

    def call(self, name, arguments=None, meta=None, **more):
        params = {"name": name, "arguments": arguments or {}, **more}
        return self.request("tools/call", params | ({"_meta": meta} if meta else {}))

    def line(self):
        line = self.process.stdout.readline()
        assert line, "the proxy has ended"
        self.said.append(line)
        return line

    def answer(self, request_id):
        while True:
            message = json.loads(self.line())
            if message.get("id") == request_id and "method" not in message:
                return message

    def answers(self, *request_ids):
        """In whatever order they come."""
        found = {}
        while set(found) != set(request_ids):
            message = json.loads(self.line())
            if message.get("id") in request_ids:
                found[message["id"]] = message
        return found

    def result(self, name, arguments=None, meta=None, **more):
        return self.answer(self.call(name, arguments, meta, **more))["result"]

    def cancel(self, request_id):
        self.send(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": request_id},
                }
            ).encode()
            + b"\n"
        )

    def barrier(self):
        """Everything sent before has been read by the server."""
        return self.answer(self.request("x/pid"))["result"]

    def close(self):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(), rest

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Stage:
    """A bank, a server that pays there, a store, and clients in front of them."""

    def __init__(self, folder, bank):
        self.folder, self.bank, self.log, self._clients = folder, bank, folder / "heard", []

    @property
    def command(self):
        return [sys.executable, str(PLAIN), str(self.bank.port), str(self.log)]

    def direct(self):
        return self._opened(self.command)

    def client(self, contracts=None, *options, store="effects.db"):
        if contracts is not None:
            (self.folder / "contracts.json").write_text(json.dumps(contracts))
            options = (*options, "--contracts", str(self.folder / "contracts.json"))
        where = store if "://" in store else f"sqlite:///{self.folder / store}"
        return self._opened(proxied(self.command, "--store", where, *options))

    def _opened(self, command):
        client = Client(command, self.folder)
        self._clients.append(client)
        return client

    def effects(self, payment="x"):
        return sum(entry["payment_id"] == payment for entry in self.bank.ledger())

    def heard(self, method="tools/call"):
        messages = [
            json.loads(line) for line in self.log.read_bytes().splitlines() if line.startswith(b"{")
        ]
        return [message for message in messages if message.get("method") == method]

    def close(self):
        for client in self._clients:
            if client.process.poll() is None:
                client.kill()
            with contextlib.suppress(BrokenPipeError):
                client.process.stdin.close()
            client.process.stdout.close()


@pytest.fixture
def stage(tmp_path):
    with Bank(tmp_path / "ledger") as bank:
        made = Stage(tmp_path, bank)
        yield made
        made.close()


@pytest.fixture
def honest_stage(tmp_path):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        made = Stage(tmp_path, bank)
        yield made
        made.close()
