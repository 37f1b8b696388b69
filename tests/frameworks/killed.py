"""One process of an agent that may be killed in its tool: `python -m tests.frameworks.killed
NAME PORT FOLDER CALL die|live`.
"""

import importlib
import os
import signal
import sys
from pathlib import Path

from effectonce import Guard, current_effect
from effectonce.testing.bank import pay
from tests.frameworks.facts import DONE, one


def main():
    name, port, folder, call_id, end = sys.argv[1:]
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        receipt = pay(int(port), payment_id, 100, key=current_effect().downstream_key)["receipt"]
        if end == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    desk = importlib.import_module(f"tests.frameworks.{name}.desk").Desk(guard, Path(folder))
    contracts = {
        "refund": {
            "kind": "irreversible",
            "downstream": "key",
            "volatile": ["reason"],
            "lease_s": 0.3,
        }
    }
    print(desk.run(desk.tool(refund), one(call_id), DONE, contracts=contracts).told[-1:])


if __name__ == "__main__":
    main()
