"""One process of many that ask for the same effects at the same time. Prints what its callers
were told.
"""

import json
import random
import sys
import threading

from effectonce import Guard, current_effect
from effectonce.testing.bank import pay


def main(url, port, keys, callers, seed):
    guard = Guard(url)
    if url.startswith("sqlite"):
        guard.store._busy_s = 60.0

    @guard.tool(kind="irreversible", wait_s=100)
    def charge(invoice: str):
        return pay(int(port), invoice, 1, key=current_effect().downstream_key, timeout_s=60)[
            "receipt"
        ]

    told, gate = [], threading.Barrier(int(callers))

    def caller(number):
        order = list(range(int(keys)))
        random.Random(f"{seed} {number}").shuffle(order)
        gate.wait()
        for key in order:
            with guard.step("hammer", key):
                told.append((key, charge(f"inv_{key}")))

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(int(callers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
