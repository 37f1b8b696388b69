"""A refund in four steps: decide, pay, write it down, tell the customer. It dies after the bank
said yes, and goes on.

    python examples/refund_workflow.py --die
    python examples/refund_workflow.py
    python examples/refund_workflow.py --refuse

The last one is another order, whose mail is refused for good: the refund is clawed back, once.
The bank is a process of its own; workflow.ledger has one line for each payment that really
happened.
"""

import os
import signal
import sys

from effectonce import Guard, Rejected, StepFailed, current_effect
from effectonce.testing.bank import Bank
from effectonce.workflows import Run

guard = Guard("sqlite:///effects.db")


def decide(order_id: str) -> dict:
    """What the model chose to do, and with which arguments: written down before it is done, and
    never asked for again.
    """
    return {"tool": "refund", "amount_minor": 1_400_000}


@guard.tool(kind="irreversible", downstream="key", lease_s=1)
def refund(order_id: str, amount_minor: int) -> str:
    receipt = bank.pay(order_id, amount_minor, key=current_effect().downstream_key)["receipt"]
    if "--die" in sys.argv:
        print(f"the bank said yes ({receipt}), and now we die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


@guard.tool(kind="irreversible", downstream="key")
def claw_back(order_id: str, receipt: str) -> str:
    return bank.pay(f"{order_id} clawed back", -1, key=current_effect().downstream_key)["receipt"]


@guard.tool(kind="idempotent_write")
def write_down(order_id: str, receipt: str) -> None:
    print(f"{order_id}: written down as {receipt}")


@guard.tool(kind="write")
def tell(order_id: str) -> None:
    if "--refuse" in sys.argv:
        raise Rejected("the mailbox does not exist")
    print(f"{order_id}: the customer was notified")


@guard.workflow(identity=["order_id"], lease_s=1)
def refund_order(run: Run, order_id: str) -> str:
    decision = run.ask("decide", decide, order_id)
    receipt = run.step("refund", refund, order_id, decision["amount_minor"])
    run.compensate("claw back", claw_back, order_id, receipt)
    run.step("write down", write_down, order_id, receipt)
    run.step("tell the customer", tell, order_id)
    return receipt


with Bank("workflow.ledger", honours_keys=True) as bank:
    try:
        print("refunded:", refund_order("order_8" if "--refuse" in sys.argv else "order_7"))
    except StepFailed as failed:
        print("not refunded:", failed.error_message)
    print("payments in the bank's ledger:", len(bank.ledger()))
