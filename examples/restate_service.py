"""A Restate handler refunds a customer, and its process dies after the bank said yes. Restate
resumes it in the next one: one refund.

    pip install 'effectonce[restate]' hypercorn; npm install --global @restatedev/restate-server
    python examples/restate_service.py

Restate is a private server, with its files in this folder. The bank is a process of its own, and
counts.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from effectonce import Guard, current_effect
from effectonce.integrations.restate import EffectOnce
from effectonce.testing.bank import Bank, pay

guard = Guard("sqlite:///effects.db")
# the one line
refunds = restate.Service("refunds", invocation_context_managers=[EffectOnce(guard)])


@guard.tool(kind="irreversible", downstream="key", lease_s=1)
def refund(payment_id: str, amount_minor: int) -> str:
    receipt = pay(
        int(os.environ["BANK"]), payment_id, amount_minor, key=current_effect().downstream_key
    )["receipt"]
    if not Path("died").exists():
        Path("died").write_text(
            f"the bank said yes ({receipt}), and the process of the handler dies"
        )
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


@refunds.handler()
async def refund_customer(ctx: restate.Context, payment_id: str) -> str:
    return await ctx.run_typed("refund", refund, payment_id=payment_id, amount_minor=1_400_000)


class Restate:
    """A server of our own, on free ports."""

    def __init__(self, log: Any) -> None:
        self.ingress, self.admin = _free_port(), _free_port()
        ports = {
            "BIND_PORT": _free_port(),
            "INGRESS__BIND_PORT": self.ingress,
            "ADMIN__BIND_PORT": self.admin,
        }
        settings = ports | {
            "BIND_IP": "127.0.0.1",
            "LISTEN_MODE": "tcp",
            "DISABLE_TELEMETRY": "true",
        }
        environment = os.environ | {
            f"RESTATE_{name}": str(value) for name, value in settings.items()
        }
        command = ["restate-server", "--base-dir", "data"]
        self.process = subprocess.Popen(  # noqa: S603
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )  # noqa: RUF100, S603

    def end(self) -> None:
        """What npm has on the path is a script that starts the server: both of them."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, port: int, path: str, content: Any = None) -> Any:
        """As soon as it listens."""
        body = None if content is None else json.dumps(content).encode()
        request = Request(
            f"http://127.0.0.1:{port}/{path}", body, {"content-type": "application/json"}
        )
        for _ in range(1000):
            try:
                with urlopen(request, timeout=60) as answer:  # noqa: S310
                    return json.loads(answer.read())
            except URLError:
                time.sleep(0.02)
        raise RuntimeError("Restate does not answer: see restate.log")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    with Bank("restate.ledger", honours_keys=True) as bank, Path("restate.log").open("wb") as log:
        port, environment = _free_port(), os.environ | {"BANK": str(bank.port)}

        def work() -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, __file__, str(port)], env=environment, stdout=log, stderr=log
            )  # noqa: RUF100, S603

        server = Restate(log)
        first = second = work()
        try:
            server.ask(server.admin, "deployments", {"uri": f"http://127.0.0.1:{port}"})
            invocation = server.ask(server.ingress, "refunds/refund_customer/send", "pay_7")[
                "invocationId"
            ]
            first.wait()
            print(Path("died").read_text())
            second = work()
            print(
                "refunded:", server.ask(server.ingress, f"restate/invocation/{invocation}/attach")
            )
        finally:
            for process in (first, second):
                process.kill()
                process.wait()
            server.end()
        print("refunds in the bank's ledger:", len(bank.ledger()))


if __name__ == "__main__":
    if sys.argv[1:]:
        config = Config()
        config.bind = [f"127.0.0.1:{sys.argv[1]}"]
        asyncio.run(serve(restate.app([refunds]), config))
    else:
        main()
