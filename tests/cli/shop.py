"""A shop for the command line to look at: `--app tests.cli.shop:guard`. Its downstreams lose
answers on request.
"""

import os

from effectonce import (
    Downstream,
    EffectOnceError,
    Found,
    Guard,
    Keyring,
    NotFound,
    Rejected,
    Retry,
    breaker,
    current_effect,
)

ONCE = Retry(attempts=1)


def tools(guard):
    """Register the shop's tools on *guard*."""

    @guard.tool(kind="irreversible", volatile=["reason"], retry=ONCE, accept_store_loss=True)
    def refund(payment_id: str, amount_minor: int, reason: str = "") -> dict:
        if payment_id == "pay_lost":
            raise TimeoutError("the bank did not answer within 30 s")
        if payment_id == "pay_bad":
            raise Rejected("the payment is refunded already")
        return {"receipt": 90071992547409931, "of": payment_id}

    @guard.tool(
        kind="write", downstream="probe", retry=ONCE, breaker=breaker("mail", shared=guard.store)
    )
    def mail(to: str) -> str:
        raise TimeoutError("the mail server hung up")

    @mail.probe
    def was_it_mailed(to: str):
        return Found("mailed") if os.environ.get("MAILED") == to else NotFound()

    @guard.tool(kind="write", downstream="probe", retry=ONCE)
    async def post(to: str) -> str:
        raise TimeoutError("no answer")

    @post.probe
    async def was_it_posted(to: str):
        return Found("posted") if os.environ.get("MAILED") == to else NotFound()

    @guard.tool(kind="write", downstream=Downstream.key(window=3600), retry=ONCE)
    def book(seat: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        raise TimeoutError("no answer")

    return guard


def fill(guard):
    """Six effects: two done, one refused, two in doubt, one sent and abandoned that may be sent
    again.
    """
    call(guard, "chat-1", "refund", "refund", payment_id="pay_1", amount_minor=1400, reason="late")
    call(
        guard, "chat-2", "refund", "refund", payment_id="pay_2", amount_minor=1500, reason="broken"
    )
    call(guard, "chat-3", "refund", "refund", payment_id="pay_bad", amount_minor=1600)
    call(
        guard, "chat-4", "refund", "refund", payment_id="pay_lost", amount_minor=1700, reason="lost"
    )
    call(guard, "newsletter", "ada", "mail", to="ada")
    call(guard, "trip", "seat", "book", seat="12A")


def call(guard, scope, step, tool, **arguments):
    with guard.step(scope, step):
        try:
            return guard.call(tool, arguments).value
        except EffectOnceError:
            return None


def _guard():
    keyring = Keyring.from_env("SHOP_KEYS") if "SHOP_KEYS" in os.environ else None
    secret = b"" if keyring is None else b"shop"
    return tools(Guard(os.environ.get("SHOP_STORE", "memory://"), keyring=keyring, secret=secret))


guard = _guard()
