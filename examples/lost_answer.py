"""A bank refunds a customer, and its answer is lost on the way. Nothing here shows whether the
money left.

    python examples/lost_answer.py
    effectonce status --store sqlite:///effects.db
    effectonce indoubt reconcile --app examples.lost_answer:guard

The bank is a process of its own. Its ledger, lost.ledger, has one line for each refund that
really happened.
"""

from effectonce import CannotTell, Found, Guard, InDoubt, NotFound, Retry
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")


@guard.tool(kind="irreversible", downstream="probe", volatile=["reason"], retry=Retry(attempts=1))
def refund(payment_id: str, amount_minor: int, reason: str) -> str:
    with Bank("lost.ledger") as bank:
        receipt: str = bank.pay(payment_id, amount_minor, fault="lose-answer")["receipt"]
        return receipt


@refund.probe
def find_refund(payment_id: str, amount_minor: int, reason: str) -> Found | NotFound | CannotTell:
    if __name__ == "__main__":
        return CannotTell("the bank's search is closed at this hour")
    with Bank("lost.ledger") as bank:
        found = bank.find(payment_id)
        return NotFound() if found is None else Found(found["receipt"])


if __name__ == "__main__":
    with guard.step("chat-44", "refund"):
        try:
            print("refunded:", refund("pay_9", 1_400_000, "late delivery"))
        except InDoubt as error:
            print("The agent tells the customer:", error.as_model_error()["message"])
