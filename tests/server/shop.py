"""A shop to look at. What really happened is in `ledger`; its bank loses answers on request."""

import contextlib

from effectonce import (
    Allowance,
    CannotTell,
    Downstream,
    Found,
    NotSent,
    Rejected,
    Retry,
    breaker,
    current_effect,
)
from effectonce.observe import Audit
from effectonce.workflows import Run

ONCE = Retry(attempts=1)
GIFTS = Allowance("gifts", limit=100, unit="points", for_each="customer")
NASTY = "<script>alert('x')</script>\" onmouseover=\"alert(1)"


class Shop:
    """Tools on a guard, and the world that they change."""

    def __init__(self, guard):
        self.guard, self.ledger, self.is_open, self.mailed = guard, [], False, set()
        self.audit = Audit(guard)
        guard.observe(self.audit)
        self.refund = guard.tool(
            kind="write", volatile=["reason"], searchable=["payment_id"], retry=ONCE
        )(self._refund)
        self.book = guard.tool(kind="write", downstream=Downstream.key(window=3600), retry=ONCE)(
            self._book
        )
        self.ship = guard.tool(
            kind="write", downstream="key", retry=ONCE, breaker=breaker("carrier")
        )(self._ship)
        self.call_back = guard.tool(kind="write", downstream="key", retry=ONCE)(self._call_back)
        self.mail = guard.tool(
            kind="write",
            downstream="probe",
            retry=ONCE,
            breaker=breaker("mail", shared=guard.store),
        )(self._mail)
        self.mail.probe(self._was_it_mailed)
        self.post = guard.tool(kind="write", downstream="probe", retry=ONCE)(self._post)
        self.post.probe(self._was_it_posted)
        self.nasty = guard.tool(kind="write", name=NASTY, retry=ONCE)(self._nasty)
        self.pay_out = guard.tool(kind="write", approval=True, wait_s=0)(self._pay_out)
        self.give = guard.tool(
            kind="write", retry=ONCE, allowance=[GIFTS, Allowance("all", limit=10**9, for_each=None)],
            spends="amount",
        )(self._give)  # fmt: skip
        self.order = guard.workflow(identity=["order"])(self._order)

    def _refund(self, payment_id: str, amount_minor: int, reason: str = "") -> dict:
        if payment_id == "pay_bad":
            raise Rejected("the payment is refunded already")
        self.ledger.append(payment_id)
        if payment_id.startswith("pay_lost"):
            raise TimeoutError(f"the bank did not answer {NASTY}")
        return {"receipt": 90071992547409931, "of": payment_id}

    def _book(self, seat: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        raise TimeoutError("no answer")

    def _ship(self, parcel: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        if not self.is_open:
            raise NotSent("the carrier cannot be reached")
        self.ledger.append(parcel)
        return f"shipped {parcel}"

    async def _call_back(self, customer: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        if not self.is_open:
            raise NotSent("the line is dead")
        self.ledger.append(customer)
        return f"called {customer}"

    def _mail(self, to: str) -> str:
        raise TimeoutError("the mail server hung up")

    def _was_it_mailed(self, to: str):
        return Found("mailed") if to in self.mailed else CannotTell("the log is rotated")

    async def _post(self, to: str) -> str:
        raise TimeoutError("no answer")

    async def _was_it_posted(self, to: str):
        return Found("posted") if to in self.mailed else CannotTell("the office is closed")

    def _nasty(self, text: str) -> str:
        raise TimeoutError(NASTY)

    def _pay_out(self, to: str, amount_minor: int, note: str = "") -> str:
        self.ledger.append(to)
        return f"paid {to}"

    def _give(self, customer: str, amount: int) -> None:
        if amount == 7:
            raise TimeoutError("no answer")

    def _order(self, run: Run, order: str) -> str:
        run.step("reserve", lambda: "reserved")
        run.step("pay", self.refund, f"pay_lost_{order}", 100)
        return "shipped"

    def call(self, scope, tool, *, tenant=None, **arguments):
        """One effect, whatever comes of it; its reference."""
        with self.guard.step(scope, "step", tenant=tenant), contextlib.suppress(Exception):
            self.guard.call(tool, arguments)
        return self.newest()

    async def acall(self, scope, tool, **arguments):
        with self.guard.step(scope, "step"), contextlib.suppress(Exception):
            await self.guard.call(tool, arguments)

    def newest(self):
        from effectonce._core.effect_ref import reference_of
        from effectonce._core.ops import Search

        return reference_of(self.guard.store.apply(Search(limit=1))[0].request.key)

    def state(self, reference):
        return str(self.guard.dead_letters.show(reference).record.state)

    def record(self, reference):
        return self.guard.dead_letters.show(reference).record
