"""A shop whose downstream can be away: tools of each kind, and the letters they leave."""

import contextlib

from effectonce import Downstream, EffectOnceError, NotSent, Rejected, Retry, current_effect

QUICK = Retry(attempts=3, base_s=0, cap_s=0)
BY = {"by": "ada", "reason": "the bank is back"}


class Shop:
    def __init__(self, guard):
        self.guard, self.letters = guard, guard.dead_letters
        self.away = True
        self.effects = []
        settings = {"retry": QUICK, "wait_s": 0, "lease_s": 30}

        @guard.tool(kind="write", downstream=Downstream.key(window=3600), **settings)
        def pay(invoice: str, amount: int = 1) -> dict:
            """It is refused before it leaves."""
            current_effect().downstream_key  # noqa: B018  # sent with the request
            if self.away:
                raise NotSent(f"no connection for {invoice}")
            return self.done("pay", invoice)

        @guard.tool(kind="write", downstream=Downstream.key(window=3600), **settings)
        def ship(invoice: str) -> dict:
            """It leaves, and nobody answers."""
            current_effect().downstream_key  # noqa: B018  # sent with the request
            if self.away:
                raise TimeoutError("no answer")
            return self.done("ship", invoice)

        @guard.tool(kind="write", **settings)
        def mail(invoice: str) -> dict:
            """It leaves, nobody answers, and nobody can tell."""
            raise TimeoutError("no answer")

        @guard.tool(kind="write", **settings)
        def refuse(invoice: str) -> dict:
            raise Rejected("no such account")

        @guard.tool(kind="write", name="apay", downstream=Downstream.key(window=3600), **settings)
        async def apay(invoice: str) -> dict:
            current_effect().downstream_key  # noqa: B018  # sent with the request
            if self.away:
                raise NotSent(f"no connection for {invoice}")
            return self.done("apay", invoice)

        self.pay, self.ship, self.mail, self.refuse, self.apay = pay, ship, mail, refuse, apay

    def done(self, tool, invoice):
        self.effects.append((tool, invoice))
        return {"receipt": len(self.effects)}

    def ask(self, tool, invoice, **place):
        """Call it; whatever is said, its key."""
        with self.guard.step("chat", invoice, **place):
            key = tool.explain(invoice).key
            with contextlib.suppress(EffectOnceError, Rejected):
                tool(invoice)
        return key
