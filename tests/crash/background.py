"""A process whose tool loses every answer, and whose probe asks the desk: what it sends, asks and
settles is counted there.

    python -m tests.crash.background URL DESK_PORT WHAT FIRST COUNT

`seed` leaves doubts and ends. `ask` leaves one, by which it begins to ask about all, and stays
until its standard input ends.
"""

import http.client
import json
import os
import sys

from effectonce import CannotTell, Found, Guard, InDoubt, Retry
from effectonce.recovery.pace import ReconcilePace

QUICK = Retry(attempts=1)


def say(port, path, **facts):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, json.dumps({"pid": os.getpid(), **facts}))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def main(url, port, what, first, count, pace):
    asks = what == "ask"
    guard = Guard(url, reconcile=ReconcilePace(**json.loads(pace)) if asks else False)
    guard.observe(lambda event: event.name == "settled" and say(port, "/settled"))

    @guard.tool(kind="write", downstream="probe", retry=QUICK, lease_s=1)
    def pay(n: int):
        say(port, "/send", n=n)
        raise TimeoutError

    if asks:

        @pay.probe
        def find(n: int):
            return Found(n) if say(port, "/ask", n=n) else CannotTell()

    for n in range(first, first + count):
        with guard.step("seed", n):
            try:
                pay(n)
            except InDoubt:
                continue
    if asks:
        sys.stdin.read()
    guard.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:6]), sys.argv[6])
