"""The peers of doubts.py: the same tool through packages that people use for this today, as
shipped and best configured.

*As shipped*: what the package's own documentation shows for the contract, around a plain httpx
client. *Best configured*: also everything that it offers to have fewer doubts. The tool's author
then lists which statuses and which errors mean that nothing happened, which ours knows from its
tables. A bug before the request is in no list: its author did not expect it.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from _doubts_bank import REFUSALS, Bank
from _doubts_cells import TIMEOUT_S, Cell, Payment, Said, Subjects

TLS = ssl.create_default_context()
FINAL = frozenset(map(int, REFUSALS))
NOTHING_HAPPENED = FINAL | {429, 503}


class Refused(Exception):
    """The bank answered, and its answer says that nothing happened."""


class RefusedForGood(Refused):
    """And that it never will."""


def post(payment: Payment, who: str, headers: dict[str, str]) -> str:
    """The tool, with a plain client."""
    with httpx.Client(timeout=TIMEOUT_S, verify=TLS) as client:
        response = client.post(payment.url(), json={"who": who}, headers=headers)
    response.raise_for_status()
    return payment.receipt(response.content)


def post_and_read_status(payment: Payment, who: str, headers: dict[str, str]) -> str:
    """The same, by an author who knows what the bank's statuses mean."""
    try:
        return post(payment, who, headers)
    except httpx.HTTPStatusError as error:
        if error.response.status_code in FINAL:
            raise RefusedForGood(str(error)) from error
        if error.response.status_code in NOTHING_HAPPENED:
            raise Refused(str(error)) from error
        raise


def calling(tool: Callable[[], Any], said_by: Callable[[Exception], Said]) -> Callable[[], Said]:
    def call() -> Said:
        try:
            tool()
        except Exception as error:
            return said_by(error)
        return Said.DONE

    return call


# ---------------------------------------------------------------- call4agents


class Call4Agents:
    def __init__(self, folder: Path, bank: Bank, *, best: bool) -> None:
        import call4agents  # noqa: PLC0415  # each process imports the peer that it runs

        self._c4a, self._best = call4agents, best
        call4agents.init(str(folder / "ledger.sqlite"))

    def reconcile(self, cell: Cell) -> None:
        """Its `reconcile=` runs within the call."""

    def tool(self, payment: Payment) -> Callable[[], Said]:
        cell, c4a = payment.cell, self._c4a
        send = post_and_read_status if self._best else post

        @c4a.effect(name=cell.who, **self._declared(payment))
        def pay(who: str) -> str:
            return send(payment, who, c4a.idempotency_headers() if cell.downstream == "key" else {})

        def in_run() -> None:
            with c4a.run("chat"):
                pay(cell.who)

        return calling(in_run, self._said_by)

    def _declared(self, payment: Payment) -> dict[str, Any]:
        declared: dict[str, Any] = {}
        if payment.cell.downstream == "key":
            declared["idempotent_for"] = 86_400
        if payment.cell.downstream == "probe":
            declared["reconcile"] = lambda **_: payment.find()
        if self._best:
            declared["retry_on"] = (httpx.ConnectError, httpx.UnsupportedProtocol, Refused)
        return declared

    def _said_by(self, error: Exception) -> Said:
        return Said.UNKNOWN if isinstance(error, self._c4a.EffectInDoubt) else Said.RAISED


# ---------------------------------------------------------------- ctrlrun


class CtrlRun:
    def __init__(self, folder: Path, bank: Bank, *, best: bool) -> None:
        import ctrlrun  # noqa: PLC0415

        self._ctrlrun, self._best, self._bank = ctrlrun, best, bank
        policy = folder / "ctrlrun.yaml"
        policy.write_text(
            "schema: ctrlrun.policy/v2\nactions:\n  bank.pay:\n    rules:\n      - decision:"
            " allow\n"
        )
        self._control = ctrlrun.Control.from_file(policy)

    def reconcile(self, cell: Cell) -> None:
        """Its `reconcile=` runs within the call."""

    def tool(self, payment: Payment) -> Callable[[], Said]:
        cell, send = payment.cell, self._urlopen if self._best else post
        hook = self._hook(payment)
        eagerly = self._best and hook is not None

        @self._ctrlrun.protect(
            "bank.pay",
            effect="pay:{who}",
            control=self._control,
            reconcile=hook,
            reconcile_eagerly=eagerly,
        )
        def pay(who: str) -> str:
            keyed = cell.downstream == "key"
            return send(
                payment,
                who,
                {"Idempotency-Key": self._ctrlrun.idempotency_token()} if keyed else {},
            )

        def in_context() -> None:
            with self._ctrlrun.context(agent="chat"):
                pay(who=cell.who)

        return calling(in_context, self._said_by)

    def _hook(self, payment: Payment) -> Callable[[str], str] | None:
        if payment.cell.downstream == "probe":
            return lambda _: "not_executed" if payment.find() is None else "committed"
        if payment.cell.downstream == "key" and self._best:
            return partial(self._send_again, payment.cell.who)
        return None

    def _send_again(self, who: str, effect_key: str) -> str:
        """The same request under the same token: whatever became of the attempt, it has happened
        once then.
        """
        from ctrlrun.effect import idempotency_token_for  # noqa: PLC0415

        token = idempotency_token_for(
            effect_key, self._control.store.get_effect(effect_key).attempt
        )
        headers = {"Idempotency-Key": token}
        httpx.post(
            f"{self._bank.url}/pay", json={"who": who}, headers=headers, verify=TLS
        ).raise_for_status()
        return "committed"

    def _urlopen(self, payment: Payment, who: str, headers: dict[str, str]) -> str:
        """The tool with ctrlrun's own transport, which knows whether a byte left."""
        from ctrlrun.transport import urlopen  # noqa: PLC0415

        request = urllib.request.Request(payment.url(), json.dumps({"who": who}).encode(), headers)
        try:
            with urlopen(request, timeout=TIMEOUT_S) as response:
                return payment.receipt(response.read())
        except urllib.error.HTTPError as error:
            if error.code in NOTHING_HAPPENED:
                raise self._ctrlrun.NotExecuted(str(error)) from error
            raise

    def _said_by(self, error: Exception) -> Said:
        match error:
            case self._ctrlrun.DuplicateEffect(state="committed"):
                return Said.HAPPENED
            case self._ctrlrun.AmbiguousEffect():
                return Said.UNKNOWN
            case self._ctrlrun.NotExecuted():
                return Said.LATER
            case _:
                return Said.RAISED


# ---------------------------------------------------------------- airlock-sdk


class Airlock:
    def __init__(self, folder: Path, bank: Bank, *, best: bool) -> None:
        import airlock  # noqa: PLC0415
        from airlock import commit  # noqa: PLC0415

        self._airlock, self._best = airlock, best
        # A caller waits 30 s for the owner of a row. Here it is always gone, so a shorter wait
        # comes to the same end.
        commit.commit_once = partial(commit.commit_once, wait_timeout=0.1)
        allow = airlock.Policy(rules=[airlock.Rule(match="*", decision=airlock.Decision.AUTO)])
        stale = {"reconcile_after": timedelta(milliseconds=1)} if best else {}
        self._app = airlock.init(store=f"sqlite:///{folder}/airlock.db", policy=allow, **stale)

    def reconcile(self, cell: Cell) -> None:
        from airlock.reconcile import OnAbsent, reconcile  # noqa: PLC0415

        on_absent = OnAbsent.RETRY if self._best else OnAbsent.ABORT
        reconcile(self._app.store, older_than=timedelta(milliseconds=1), on_absent=on_absent)

    def tool(self, payment: Payment) -> Callable[[], Said]:
        cell, reversibility = payment.cell, self._airlock.Reversibility
        declared = (
            {"reversibility": reversibility.IRREVERSIBLE} if cell.kind == "irreversible" else {}
        )

        @self._airlock.guard(cell.who, effect=self._effect(payment), **declared)
        def pay(who: str, *, idempotency_key: str | None = None) -> str:
            return post(
                payment,
                who,
                {} if idempotency_key is None else {"Idempotency-Key": idempotency_key},
            )

        return calling(partial(pay, cell.who), self._said_by)

    def _effect(self, payment: Payment) -> Any:
        from airlock.types import Verification  # noqa: PLC0415

        def find(**_: Any) -> tuple[Verification, str | None]:
            receipt = payment.find()
            return (Verification.ABSENT if receipt is None else Verification.PRESENT), receipt

        match payment.cell.downstream:
            case "key":
                return self._airlock.Effect(key_param="idempotency_key")
            case "probe":
                return self._airlock.Effect(verify=find)
            case _:
                return self._airlock.Effect()

    def _said_by(self, error: Exception) -> Said:
        from airlock import errors  # noqa: PLC0415

        match error:
            case errors.PreconditionFailed() | errors.CommitFailed(state="failed"):
                return Said.FAILED
            case errors.CommitWaitTimeout() | errors.VerificationUnknown() | errors.CommitFailed():
                return Said.UNKNOWN
            case _:
                return Said.RAISED


# ---------------------------------------------------------------- idemkit


class Idemkit:
    def __init__(self, folder: Path, bank: Bank, *, best: bool) -> None:
        import idemkit  # noqa: PLC0415

        self._best = best
        self._backend = idemkit.InMemoryBackend()
        self._config = idemkit.MethodConfig(
            key_fields=["who"], cache_exceptions=(RefusedForGood,) if best else ()
        )
        self._idempotent = idemkit.idempotent_sync

    def reconcile(self, cell: Cell) -> None:
        """It has none."""

    def tool(self, payment: Payment) -> Callable[[], Said]:
        cell, send = payment.cell, post_and_read_status if self._best else post

        @self._idempotent(backend=self._backend, config=self._config)
        def pay(who: str) -> str:
            return send(
                payment, who, {"Idempotency-Key": f"pay-{who}"} if cell.downstream == "key" else {}
            )

        return calling(partial(pay, who=cell.who), self._said_by)

    def _said_by(self, error: Exception) -> Said:
        return Said.FAILED if isinstance(error, RefusedForGood) else Said.RAISED


SUBJECTS: Subjects = {
    "ctrlrun, as shipped": partial(CtrlRun, best=False),
    "ctrlrun, best configured": partial(CtrlRun, best=True),
    "call4agents, as shipped": partial(Call4Agents, best=False),
    "call4agents, best configured": partial(Call4Agents, best=True),
    "airlock-sdk, as shipped": partial(Airlock, best=False),
    "airlock-sdk, best configured": partial(Airlock, best=True),
    "idemkit, as shipped": partial(Idemkit, best=False),
    "idemkit, best configured": partial(Idemkit, best=True),
}
MODULES = {
    "ctrlrun": "ctrlrun",
    "call4agents": "call4agents",
    "airlock-sdk": "airlock",
    "idemkit": "idemkit",
}
NOTES = {
    "ctrlrun": (
        "no kinds of effect, so both run alike; a key makes no retry safe by its rules: best"
        " configured, its reconcile hook sends the request again under the attempt's token. Also"
        " then: its own transport, NotExecuted for a list of statuses, eager reconciling"
    ),
    "call4agents": (
        "no kinds of effect, so both run alike; best configured, retry_on has httpx's connection"
        " errors and a list of statuses"
    ),
    "airlock-sdk": (
        "a write is its default reversibility; waits for the owner of a row are cut to 0.1 s; as"
        " shipped, its reconciler aborts what its probe does not find, and the next call fails for"
        " good; best configured, stale rows are reconciled within the call, and the reconciler runs"
        " again what its probe does not find"
    ),
    "idemkit": (
        "no kinds and no probes, so probe runs as none; best configured, cache_exceptions has the"
        " final refusals. In memory"
    ),
}
