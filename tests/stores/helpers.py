"""A guarded tool that counts, claims, threads, and words about a PostgreSQL server."""

import threading

from effectonce import Guard, Retry
from effectonce._core import ops
from effectonce.testing.conformance.bench import LEASE_S, request

CONTRACT = {"kind": "write", "retry": Retry(attempts=3, deadline_s=0.2), "wait_s": 0}
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname ="
    " current_database()"
)


def guarded(store, calls, **contract):
    guard = Guard(store, cache=0)

    @guard.tool(**(CONTRACT | contract))
    def pay(invoice: str = "inv_1"):
        calls.append(invoice)
        return {"receipt": len(calls)}

    def call(invoice="inv_1"):
        with guard.step("chat", f"pay {invoice}"):
            return pay(invoice)

    return guard, call


def aguarded(store, calls, **contract):
    guard = Guard(store, cache=0)

    @guard.tool(**(CONTRACT | contract))
    async def pay(invoice: str = "inv_1"):
        calls.append(invoice)
        return {"receipt": len(calls)}

    async def call(invoice="inv_1"):
        async with guard.step("chat", f"pay {invoice}"):
            return await pay(invoice)

    return guard, call


def claim(key="k", token="t", *, again=False, **changes):
    return ops.Claim(request(key, **changes), token, LEASE_S, dispatch=True, again=again)


def complete(key="k", token="t", epoch=1, outcome=b"done"):
    return ops.Complete(key, token, epoch, outcome)


def in_threads(functions):
    """Run each function in a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def name_of(url):
    """The name of a PostgreSQL database."""
    return url.partition("@/")[2].partition("?")[0]


def wait_for_a_lock(postgres, url):
    """Return when a session of this database waits for the lock of another one."""
    while postgres.execute(WAITS, url) != [(1,)]:
        pass
