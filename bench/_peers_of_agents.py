"""The contenders of peers.py that guard the tools of agents: ctrlrun, call4agents, airlock-sdk.
They take part in doubts.py as well.

On SQLite they run as shipped: as their READMEs begin, with files in the current folder. On
PostgreSQL they run as their READMEs say for production and for many machines; ctrlrun then
writes no second file of events. On SQLite, ctrlrun and airlock-sdk set synchronous=NORMAL, which
does not wait for the disk; call4agents and ours wait.
"""

from __future__ import annotations

import contextvars
from pathlib import Path
from typing import Any

from _peers_kit import SyncPeer
from _stores import RESULT

POLICY = (
    "schema: ctrlrun.policy/v2\nactions:\n  bank.refund:\n    rules:\n      - decision: allow\n"
)


class CtrlRun(SyncPeer):
    """A repeat is refused, with an error that says that it has happened: the result is not kept,
    so there is none to compare.
    """

    def open(self) -> None:
        import ctrlrun  # noqa: PLC0415  # each process imports the peer that it runs

        Path("ctrlrun.yaml").write_text(POLICY)

        @ctrlrun.protect("bank.refund", effect="refund:{order_id}", control=self._control())
        def refund(order_id: str, amount: int) -> dict[str, Any]:
            return self.keys.result()

        def call(**order: Any) -> dict[str, Any]:
            try:
                with ctrlrun.context(agent="chat"):
                    return refund(**order)
            except ctrlrun.DuplicateEffect:
                return RESULT

        self.call = call

    def _control(self) -> Any:
        from ctrlrun import Control  # noqa: PLC0415
        from ctrlrun.policy import Policy  # noqa: PLC0415

        if not self.url.startswith("postgresql"):
            return Control.from_file()
        from ctrlrun.postgres import PostgresStateStore  # noqa: PLC0415

        return Control(Policy.from_file(), PostgresStateStore(self.url))


class Call4Agents(SyncPeer):
    def open(self) -> None:
        import call4agents  # noqa: PLC0415

        if self.url.startswith("postgresql"):
            call4agents.init(self.url, secret=b"the same on every machine of the bench")
        else:
            call4agents.init()

        @call4agents.effect(name="refund")
        def refund(order_id: str, amount: int) -> dict[str, Any]:
            return self.keys.result()

        def call(**order: Any) -> dict[str, Any]:
            with call4agents.run("conv_42"):
                return refund(**order)

        self.call = call


class Airlock(SyncPeer):
    def open(self) -> None:
        import airlock.store  # noqa: PLC0415

        allow = airlock.Policy(rules=[airlock.Rule(match="*", decision=airlock.Decision.AUTO)])
        if self.url.startswith("postgresql"):
            store = airlock.store.from_url(self.url)
            store.ensure_schema()
            airlock.init(store=store, policy=allow)
        else:
            airlock.init(policy=allow)
        # it finds its store by a context variable, which other threads do not have
        inside = contextvars.copy_context()

        @airlock.guard("bank.refund", effect=airlock.Effect(key_param="idempotency_key"))
        def refund(
            order_id: str, amount: int, *, idempotency_key: str | None = None
        ) -> dict[str, Any]:
            return self.keys.result()

        self.call = lambda **order: inside.copy().run(refund, **order)
