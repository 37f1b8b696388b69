"""A Celery task refunds a customer, and its process dies after the bank said yes. Redis delivers
it again: the customer has one refund.

    pip install 'effectonce[celery]' redis; apt-get install redis-server
    python examples/celery_task.py

The broker is a private Redis, which ends with this process. The bank is a process of its own,
and counts.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery

from effectonce import Guard, current_effect
from effectonce.integrations.celery import EffectOnce
from effectonce.testing.bank import Bank, pay

BROKER = f"redis+socket://{Path('broker.sock').absolute()}"
guard = Guard("sqlite:///effects.db")
# the one line
app = Celery("celery_task", broker=BROKER, backend=BROKER, task_cls=EffectOnce(guard))


@guard.tool(kind="irreversible", downstream="key", lease_s=1)
def refund(payment_id: str, amount_minor: int) -> str:
    receipt = pay(
        int(os.environ["BANK"]), payment_id, amount_minor, key=current_effect().downstream_key
    )["receipt"]
    if not Path("died").exists():
        Path("died").touch()
        Path("said").write_text(f"the bank said yes ({receipt}), and the process of the task dies")
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


@app.task(name="refund_customer")
def refund_customer(payment_id: str) -> str:
    return refund(payment_id, 1_400_000)


def main() -> None:
    with Bank("celery.ledger", honours_keys=True) as bank, Path("worker.log").open("wb") as log:
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        redis = [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            "broker.sock",
            "--save",
            "",
            "--logfile",
            "redis.log",
        ]
        broker = subprocess.Popen(redis)  # noqa: S603
        while not Path("broker.sock").exists():
            time.sleep(0.01)
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_task", "worker", "-c", "1"],
            env=os.environ | {"BANK": str(bank.port), "PYTHONPATH": path},
            stdout=log,
            stderr=log,
        )
        try:
            receipt = refund_customer.delay("pay_7").get(timeout=60)
        finally:
            worker.terminate()
            worker.wait()
            broker.terminate()
            broker.wait()
        print(Path("said").read_text())
        print("refunded:", receipt)
        print("refunds in the bank's ledger:", len(bank.ledger()))


if __name__ == "__main__":
    main()
