"""An agent refunds a customer, and dies after the bank said yes. Run it again: the customer has
one refund.

    python examples/refund_agent.py --die
    python examples/refund_agent.py

The bank is a process of its own. Its ledger, bank.ledger, has one line for each refund that
really happened.
"""

import os
import signal
import sys

from effectonce import Guard, current_effect
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")


@guard.tool(kind="irreversible", downstream="key", volatile=["reason"], lease_s=1)
def refund(payment_id: str, amount_minor: int, reason: str) -> str:
    receipt = bank.pay(payment_id, amount_minor, key=current_effect().downstream_key)["receipt"]
    if "--die" in sys.argv:
        print(f"the bank said yes ({receipt}), and now we die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


with Bank("bank.ledger", honours_keys=True) as bank, guard.step("chat-43", "refund"):
    print("refunded:", refund("pay_7", 1_400_000, "late delivery"))
    print("refunded:", refund("pay_7", 1_400_000, "the parcel was late"))
    print("refunds in the bank's ledger:", len(bank.ledger()))
