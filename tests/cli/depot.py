"""A depot whose carrier is away until DEPOT_OPEN is set: `--app tests.cli.depot:guard`. It
leaves letters, runs that wait, and an audit.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path

from effectonce import Downstream, EffectOnceError, Guard, NotSent, Rejected, Retry, current_effect
from effectonce.observe import Audit
from effectonce.workflows import Run

TWICE = Retry(attempts=2, base_s=0, cap_s=0)


def is_open():
    return "DEPOT_OPEN" in os.environ


def write(line):
    """What really happened, one line each."""
    with Path(os.environ["DEPOT_LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


def tools(guard):
    """Register the depot's tools and workflows on *guard*."""

    @guard.tool(kind="write", downstream=Downstream.key(window=3600), retry=TWICE)
    def ship(parcel: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        if not is_open():
            raise NotSent("the carrier cannot be reached")
        if os.environ.get("DEPOT_SLOW"):
            write(f"begin {parcel}")
            # a tool that takes as long as the test wants
            while not Path(os.environ["DEPOT_SLOW"]).exists():
                time.sleep(0.01)
        write(f"ship {parcel}")
        return f"shipped {parcel}"

    @guard.tool(kind="write", downstream=Downstream.key(window=3600), retry=TWICE)
    async def call_back(customer: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        await asyncio.sleep(0)
        if not is_open():
            raise NotSent("the line is dead")
        write(f"call back {customer}")
        return f"called {customer}"

    @guard.tool(kind="write", retry=TWICE)
    def tell(customer: str) -> str:
        if customer == "bob":
            raise TimeoutError("the mail server hung up")
        if customer == "eve":
            raise Rejected("the mailbox does not exist")
        write(f"tell {customer}")
        return f"told {customer}"

    @guard.tool(kind="idempotent_write", retry=TWICE)
    def unship(parcel: str) -> str:
        write(f"unship {parcel}")
        return f"unshipped {parcel}"

    @guard.workflow(identity=["order"], lease_s=1)
    def deliver(run: Run, order: str, customer: str) -> str:
        parcel = run.ask("pack", lambda: f"parcel of {order}")
        run.compensate("take it back", unship, parcel)
        run.step("ship", ship, parcel)
        return run.step("tell the customer", tell, customer)

    @guard.workflow(identity=["customer"], lease_s=1)
    async def apologise(run: Run, customer: str) -> str:
        return await run.step("call back", call_back, customer)

    return guard


def fill(guard):
    """Three letters that never left, one doubt, a run that waits, one that is in doubt, one that
    failed, an async one that waits.
    """
    for parcel in ("p-1", "p-2"):
        ask(guard, parcel, "ship", parcel=parcel)
    with contextlib.suppress(EffectOnceError), guard.step("c-1", "call back"):
        asyncio.run(_awaited(guard, "call_back", customer="ada"))
    ask(guard, "c-2", "tell", customer="bob")
    for order, customer in (("o-1", "ada"), ("o-2", "bob"), ("o-3", "eve")):
        if order != "o-1":
            os.environ["DEPOT_OPEN"] = "1"
        with contextlib.suppress(EffectOnceError):
            guard.call("deliver", {"order": order, "customer": customer})
        os.environ.pop("DEPOT_OPEN", None)
    with contextlib.suppress(EffectOnceError):
        asyncio.run(_awaited(guard, "apologise", customer="ada"))


def ask(guard, scope, tool, **arguments):
    with guard.step(scope, tool), contextlib.suppress(EffectOnceError):
        return guard.call(tool, arguments).value
    return None


async def _awaited(guard, tool, **arguments):
    return await guard.call(tool, arguments)


def _guard():
    made = tools(Guard(os.environ.get("DEPOT_STORE", "memory://"), secret=b"depot"))
    made.observe(Audit(made))
    return made


guard = _guard()
