"""ctrlrun. A repeat of a success is refused; its result is not kept. Best configured: its own
transport, which knows whether a byte left, NotExecuted for errors and statuses that say so, and a
reconcile hook that runs within the call. Where the service honours the attempt's token, the hook
sends the request again under it.

Approvals: the id of a request is kept, as the README does, and presented by each call. A spent one
is refused before the effect is looked at, so neither a repeat nor the reconcile hook gets there
(ctrlrun.control, _secure): the caller reads the effect's record, which says what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

from oncebench.kit import PATHS, VERIFY, Says, Setup, Told, ToolFault, Wish

NAME = "ctrlrun"
KIND = "library"
REQUIRES = ("ctrlrun==0.12.2",)
README = "README, Use it in three steps; How it works, 5 and 6, for the best configuration"
OFFERS = ("approval",)
LACKS = {
    "results": "a repeat is refused with DuplicateEffect, and no result is kept (ctrlrun.state)"
}
POLICY = "schema: ctrlrun.policy/v2\nactions:\n  bank.pay:\n    rules:\n      - decision: {}\n"
NOTHING_HAPPENED = frozenset({400, 401, 403, 404, 422, 429})


def open(setup: Setup) -> Callable[..., Any]:
    import ctrlrun
    from ctrlrun.policy import Policy
    from ctrlrun.state import SQLiteStateStore

    policy = setup.folder / "ctrlrun.yaml"
    if not policy.exists():
        policy.write_text(POLICY.format("approve" if setup.approval else "allow"))
    control = ctrlrun.Control(
        Policy.from_file(policy),
        SQLiteStateStore(setup.folder / "ctrlrun.sqlite"),
        lease=timedelta(seconds=setup.lease_s),
    )
    setup.key = ctrlrun.idempotency_token
    setup.around = lambda wish: _acting(setup, wish)
    setup.approve = lambda wish: control.store.grant_approval(
        _asked(setup, wish).read_text(), "ada"
    )
    if setup.best:
        setup.post = _urlopen

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        hook = _hook(setup, control, name)
        protected: Callable[..., Any] = ctrlrun.protect(
            "bank.pay",
            effect=name + ":{order}",
            control=control,
            reconcile=hook,
            reconcile_eagerly=setup.best and hook is not None,
        )(_saying_so(tool) if setup.best else tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            try:
                return protected(order=order, amount=amount, note=note)
            except ctrlrun.ApprovalMismatch as error:
                if error.reason != "consumed":
                    raise
                return Told(_known(control.store.get_effect(f"{name}:{order}")))

        return call if setup.approval else protected

    return protect


@contextmanager
def _acting(setup: Setup, wish: Wish) -> Iterator[None]:
    """Who acts, and with the approval of which request, if one was made for this order."""
    import ctrlrun

    with ExitStack() as ends:
        ends.enter_context(ctrlrun.context(agent="agent"))
        if setup.approval and _asked(setup, wish).exists():
            ends.enter_context(ctrlrun.with_approval(_asked(setup, wish).read_text()))
        try:
            yield
        except ctrlrun.ApprovalRequired as pending:
            _asked(setup, wish).write_text(pending.request_id)
            raise


def _known(effect: Any) -> Says:
    """What the record of an effect says, whose approval was used."""
    if effect is not None and effect.state == "committed":
        return "happened"
    if effect is None or effect.lease_is_live(datetime.now(UTC)):
        return "busy"
    return "unknown"


def _asked(setup: Setup, wish: Wish) -> Path:
    return setup.folder / f"request-{wish.order}"


def _saying_so(tool: Callable[..., Any]) -> Callable[..., Any]:
    """A tool that says so where it has not sent anything: only NotExecuted permits a retry."""
    from ctrlrun import NotExecuted

    @wraps(tool)
    def pay(order: str, amount: int, note: str = "") -> Any:
        try:
            return tool(order, amount, note)
        except ToolFault as error:
            raise NotExecuted(str(error)) from error

    return pay


def _hook(setup: Setup, control: Any, name: str) -> Callable[[str], str] | None:
    if setup.temperament == "asks":
        return lambda key: (
            "not_executed" if setup.find_for_sure(_order(key)) is None else "committed"
        )
    if setup.temperament == "keys" and setup.best:
        return partial(_send_again, setup, control)
    return None


def _send_again(setup: Setup, control: Any, effect_key: str) -> str:
    """The same request under the same token: it has happened once then."""
    import httpx
    from ctrlrun.effect import idempotency_token_for

    token = idempotency_token_for(effect_key, control.store.get_effect(effect_key).attempt)
    body = {"order": _order(effect_key), "amount": 100, "note": ""}
    headers = {"Idempotency-Key": token}
    path = PATHS[effect_key.partition(":")[0]]
    httpx.post(f"{setup.url}{path}", json=body, headers=headers, verify=VERIFY).raise_for_status()
    return "committed"


def _order(effect_key: str) -> str:
    return effect_key.partition(":")[2]


def _urlopen(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    import json
    import urllib.error
    import urllib.request

    from ctrlrun import NotExecuted
    from ctrlrun.transport import urlopen

    from oncebench.kit import timeout_s

    headers = {**headers, "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    try:
        with urlopen(request, timeout=timeout_s()) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        if error.code in NOTHING_HAPPENED:
            raise NotExecuted(str(error)) from error
        raise


def said(error: Exception) -> Says:
    import ctrlrun

    match error:
        case ctrlrun.ApprovalRequired() | ctrlrun.ApprovalMismatch(reason="pending"):
            return "waiting"
        case ctrlrun.ApprovalMismatch(reason="mismatch"):
            return "conflict"
        case ctrlrun.DuplicateEffect(state="committed"):
            return "happened"
        case ctrlrun.AmbiguousEffect():
            return "unknown"
        case ctrlrun.DuplicateEffect():
            return "busy"
        case ctrlrun.InvalidArgument() if "at arguments." in str(error):
            return "conflict"  # it refuses floats (README, How it works, 1)
        case _:
            return "raised"
