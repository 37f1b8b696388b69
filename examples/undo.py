"""A refund went to the wrong customer. Its undo takes it back, once, however often it is asked.

    python examples/undo.py
    effectonce effect undo EFFECT --reason 'wrong customer' --app examples.undo:guard

The bank is a process of its own, and counts.
"""

from effectonce import Downstream, Guard, current_effect
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///undone.db")


@guard.tool(kind="irreversible", downstream=Downstream.key())
def refund(order: str, amount_minor: int) -> str:
    with Bank("undone.ledger", honours_keys=True) as bank:
        receipt: str = bank.pay(order, amount_minor, key=current_effect().downstream_key)["receipt"]
        return receipt


@refund.undo
def take_back(result: str, order: str, amount_minor: int) -> str:
    with Bank("undone.ledger", honours_keys=True) as bank:
        key = current_effect().downstream_key
        receipt: str = bank.pay(f"{order}, back from {result}", amount_minor, key=key)["receipt"]
        return receipt


if __name__ == "__main__":
    with guard.step("chat-7", "refund"):
        print("refunded:", refund("ord_7", 4_200))
    with Bank("undone.ledger", honours_keys=True) as bank:
        print("at the bank:", [entry["payment_id"] for entry in bank.ledger()])
