"""agent-ledger, on PostgreSQL. A caller waits 30 s for the owner of an effect; here the wait is cut
to 2 s, which comes to the same end. Best configured: the tool tries again itself where nothing
happened; and where the service honours the key of the effect, an effect whose owner is gone is
taken over. Elsewhere that would do it twice, so it is off, as it is by default.

Where a person has to say yes, run() waits for it, and its wait is cut to 2 s as well. An approval
is of the whole payload, so there the key is made of all arguments, as it is by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncebench.adapters._loop import running_loop
from oncebench.adapters._retries import trying_again
from oncebench.kit import Says, Setup, Told, Wish

NAME = "agent-ledger"
KIND = "library"
REQUIRES = ("agent-ledger[postgres]==0.2.1",)
SERVERS = ("postgres",)
README = (
    "README, Quick Start and Custom Idempotency Keys; Human-in-the-loop, Intent-bound approval;"
    " Configuration (stale=) for the best"
)
OFFERS = ("approval",)
LACKS = {
    "asks": "it has no way to ask a service (agent_ledger.types, LedgerHooks)",
    "conflict": "other arguments under the same keys are one effect (README, Custom Idempotency)",
}


def open(setup: Setup) -> Callable[..., Any]:
    import agent_ledger as al
    from agent_ledger.stores.postgres import PostgresStore

    wait = running_loop()
    store = PostgresStore(pool=wait(_pool(setup.servers["postgres"])))
    taken_over = setup.best and setup.temperament == "keys"
    options = al.RunOptions(
        concurrency=al.ConcurrencyOptions(effect_timeout_s=2, approval_timeout_s=2),
        stale=al.StaleOptions(after_ms=int(setup.lease_s * 1000)) if taken_over else None,
    )
    ledger = al.EffectLedger(
        al.EffectLedgerOptions(store=store, defaults=al.LedgerDefaults(run=options))
    )
    hooks = al.LedgerHooks(requires_approval=lambda _: setup.approval)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            async def handler(effect: Any) -> Any:
                key[0] = effect.idem_key
                return await asyncio.to_thread(trying_again(setup, tool), order, amount, note)

            asked = wanted(tool.__module__, order, amount, note)
            try:
                return wait(ledger.run(asked, handler=handler, hooks=hooks))
            except al.EffectTimeoutError:
                effect = wait(ledger.find_by_idem_key(ledger.idem_key(asked)))
                if effect.status is al.EffectStatus.REQUIRES_APPROVAL:
                    return Told("waiting")
                raise

        return call

    def wanted(tool: str, order: str, amount: Any, note: str) -> Any:
        return al.ToolCall(
            workflow_id="account-1",
            tool=tool,
            args={"order": order, "amount": amount, "note": note},
            idempotency_keys=None if setup.approval else ["order"],
        )

    def approve(wish: Wish) -> None:
        asked = wanted(f"oncebench.tools.{wish.tool}", wish.order, wish.amount, wish.note)
        if not wait(ledger.approve(ledger.idem_key(asked))):
            raise LookupError(f"nothing waits for {wish.order}")

    setup.approve = approve
    return protect


async def _pool(url: str) -> Any:
    from agent_ledger.stores.postgres import SCHEMA_SQL
    from psycopg_pool import AsyncConnectionPool

    pool = AsyncConnectionPool(conninfo=url, open=False)
    await pool.open()
    async with pool.connection() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(1)")  # others begin as well
        await connection.execute(SCHEMA_SQL)
    return pool


def said(error: Exception) -> Says:
    from agent_ledger import EffectTimeoutError

    # EffectFailedError repeats the tool's own error: it does not say that nothing happened.
    return "busy" if isinstance(error, EffectTimeoutError) else "raised"
