"""A shop that leaves something of every kind in its store: `--app shop.agents:guard`, with its store
in STORE.

What became of each call depends on its arguments alone, so that a store that another release
wrote can be read and settled by this one.
"""

import contextlib
import os
from datetime import timedelta

from effectonce import (
    Allowance,
    Approval,
    ApprovalNeeded,
    Downstream,
    EffectOnceError,
    Found,
    Guard,
    NotFound,
    NotSent,
    Rejected,
    Retry,
    breaker,
    current_effect,
)
from effectonce._core.ops import Doubt, Search
from effectonce.observe import Audit
from effectonce.workflows import Run

ONCE = Retry(attempts=1)
LONG = timedelta(days=3650)  # what was written long ago is still remembered
KEY = Downstream.key(window=LONG)
OPEN = set(os.environ.get("OPEN", "").split(","))  # what can be reached: names of downstreams


def sends():
    """As a tool does that hands its key on."""
    return current_effect().downstream_key


def tools(guard):
    """Register the shop's tools and workflows on *guard*."""
    stripe = breaker("stripe", shared=guard.store, consecutive=50)

    @guard.tool(
        kind="irreversible",
        downstream=KEY,
        retry=ONCE,
        breaker=stripe,
        volatile=["reason"],
        searchable=["payment_id"],
        approval=Approval(when=lambda amount: amount > 50_000, valid_s=LONG.total_seconds()),
        allowance=Allowance("refunds", limit=1_000_000, unit="cents", per=LONG),
        spends="amount",
        wait_s=0,
        accept_store_loss=True,
    )
    def refund(payment_id: str, amount: int, reason: str = "") -> dict:
        sends()
        if payment_id == "pay_bad":
            raise Rejected("the payment is refunded already")
        return {"receipt": 90071992547409931, "of": payment_id}

    @refund.undo
    def take_back(result, payment_id, amount, reason):
        return f"{payment_id} is taken back"

    @guard.tool(kind="write", retry=ONCE, approval=True, wait_s=0)
    def refund_order(order: str, amount_minor: int) -> str:
        return f"refunded {order}"

    @guard.tool(kind="write", retry=ONCE, searchable=["to"])
    def mail(to: str) -> str:
        if to.startswith("lost"):
            raise TimeoutError("the mail server hung up")
        return f"mailed to {to}"

    @guard.tool(kind="write", downstream="probe", retry=ONCE)
    def post(to: str) -> str:
        raise TimeoutError("no answer")

    @post.probe
    def was_it_posted(to: str):
        return Found(f"posted to {to}") if "post office" in OPEN else NotFound()

    @guard.tool(kind="write", downstream=KEY, retry=ONCE)
    def ship(parcel: str) -> str:
        sends()
        if "carrier" not in OPEN:
            raise NotSent("the carrier cannot be reached")
        return f"shipped {parcel}"

    @guard.tool(kind="write", downstream=KEY, retry=ONCE)
    def book(seat: str) -> str:
        sends()
        if "airline" not in OPEN:
            raise TimeoutError("no answer")
        return f"booked {seat}"

    @guard.workflow(identity=["order"], lease_s=1, keep=LONG)
    def deliver(run: Run, order: str, customer: str) -> str:
        parcel = run.ask("pack", lambda: f"parcel of {order}")
        if not order.startswith("pick up"):
            run.step("ship", ship, parcel)
        return run.step("tell the customer", mail, customer)

    return guard


def fill(guard):
    """Something of every kind."""
    for n in range(3):
        ask(guard, "refund", f"chat-{n}", payment_id=f"pay_{n}", amount=1400 + n, reason="late")
    ask(guard, "refund", "chat-bad", payment_id="pay_bad", amount=1600)
    for n in range(3):
        ask(guard, "refund", f"chat-large-{n}", payment_id=f"pay_large_{n}", amount=70_000)
        ask(guard, "mail", f"chat-lost-{n}", to=f"lost {n}")
        ask(guard, "ship", f"chat-ship-{n}", parcel=f"parcel {n}")
    ask(guard, "refund_order", "chat-order", order="ord_9", amount_minor=99_000)
    ask(guard, "post", "chat-post", to="ada")
    for seat in ("12A", "12B"):
        ask(guard, "book", f"trip-{seat}", seat=seat)
    (sent,) = guard.store.apply(Search(tool="book", scope="trip-12B"))
    # as a process does whose window ends before an answer comes
    guard.store.apply(Doubt(sent.request.key, sent.token, sent.epoch, "no answer"))
    for order, customer in (("pick up 1", "ada"), ("o-1", "ada"), ("pick up 2", "lost")):
        with contextlib.suppress(EffectOnceError):
            guard.call("deliver", {"order": order, "customer": customer})


def ask(guard, tool, scope, **arguments):
    """One call, whatever becomes of it."""
    expected = contextlib.suppress(ApprovalNeeded, EffectOnceError, Rejected)
    with guard.step(scope, tool, asked_by="agent-7"), expected:
        return guard.call(tool, arguments).unwrap()
    return None


def made(store):
    """The shop's guard on a store, with an audit."""
    guard = tools(Guard(store))
    guard.observe(Audit(guard))
    return guard


guard = made(os.environ.get("STORE", "memory://"))
