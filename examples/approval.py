"""A refund over EUR 1,000 waits for a person. Run it, approve it, and run it again: the bank has
one refund, however often it is run.

    python examples/approval.py
    effectonce approve list --store sqlite:///effects.db
    effectonce approve yes EFFECT --reason 'the parcel came back' --store sqlite:///effects.db
    python examples/approval.py

In a browser: effectonce serve --allow-actions --by ada --app examples.approval:guard
"""

from effectonce import Approval, ApprovalNeeded, Downstream, Guard, NotApproved, current_effect
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")


def over_1000_euros(amount_minor: int) -> bool:
    """Which refunds need a person."""
    return amount_minor > 100_000


@guard.tool(
    kind="irreversible",
    downstream=Downstream.key(),
    name="refund_order",
    approval=Approval(when=over_1000_euros, valid_s=4 * 3600, four_eyes=True),
)
def refund_order(order: str, amount_minor: int) -> str:
    with Bank("approved.ledger", honours_keys=True) as bank:
        receipt: str = bank.pay(order, amount_minor, key=current_effect().downstream_key)["receipt"]
        return receipt


if __name__ == "__main__":
    with guard.step("chat-44", "refund", asked_by="refund-agent"):
        try:
            print("refunded:", refund_order("ord_9", 140_000))
        except (ApprovalNeeded, NotApproved) as error:
            print("The agent tells the customer:", error.as_model_error()["message"])
    with Bank("approved.ledger", honours_keys=True) as bank:
        print("refunds at the bank:", len(bank.ledger()))
