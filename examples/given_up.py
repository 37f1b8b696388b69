"""The bank cannot be reached: three attempts, and the agent gives up. Nothing is lost; an
operator redrives it when the bank is back.

    python examples/given_up.py
    touch bank.open
    effectonce dlq redrive --all --reason 'the bank is back' --app examples.given_up:guard

The bank can be reached once there is a file bank.open. What happens is written into an audit.
"""

from pathlib import Path

from effectonce import Downstream, GaveUp, Guard, NotSent, Retry, current_effect
from effectonce.observe import Audit
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")
guard.observe(Audit(guard))


@guard.tool(
    kind="irreversible",
    downstream=Downstream.key(),
    name="refund_invoice",
    retry=Retry(attempts=3, base_s=0.01),
)
def refund_invoice(invoice: str, amount_minor: int) -> str:
    if not Path("bank.open").exists():
        raise NotSent("the bank cannot be reached")
    with Bank("open.ledger", honours_keys=True) as bank:
        receipt: str = bank.pay(invoice, amount_minor, key=current_effect().downstream_key)[
            "receipt"
        ]
        return receipt


if __name__ == "__main__":
    with guard.step("chat-43", "refund"):
        try:
            print("refunded:", refund_invoice("inv_9", 2_500))
        except GaveUp as error:
            print("The agent tells the customer:", error.as_model_error()["message"])
