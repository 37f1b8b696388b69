"""A process that pays and counts.

python -m tests.observe.counting URL PORT NUMBER calls   pays, repeats, ends as usual
python -m tests.observe.counting URL PORT NUMBER forks   the same in a child of a process
python -m tests.observe.counting URL PORT NUMBER forever   until it is killed
"""

import os
import sys
from itertools import count

from effectonce import Guard, current_effect
from effectonce._runtime import counters
from effectonce.testing.bank import pay

CALLS = 20


def main(url, port, number, how):
    if how == "forever":
        counters.EVERY_S = 0.05  # many additions, so that it is killed in the middle of one
    guard = Guard(url, reconcile=False)

    @guard.tool(kind="write", downstream="key")
    def pay_out(invoice: str, amount: int) -> str:
        key = current_effect().downstream_key
        return pay(int(port), invoice, amount, key=key, timeout_s=60)["receipt"]

    def paid(payment):
        for _ in range(2):
            with guard.step(f"payouts {number}", payment):
                pay_out(f"inv_{number}_{payment}", 1)

    if how == "forever":
        for payment in count():
            paid(payment)
            print(payment + 1, flush=True)
    for payment in range(CALLS):
        paid(payment)
    if how == "forks":
        child = os.fork()
        if child == 0:
            for payment in range(CALLS, 2 * CALLS):
                paid(payment)
            guard.close()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
