"""A DBOS step refunds a customer, and its process dies after the bank said yes. Run it again:
DBOS recovers, the customer has one refund.

    pip install 'effectonce[dbos]'
    python examples/dbos_step.py --die
    python examples/dbos_step.py

The bank is a process of its own, and counts.
"""

import os
import signal
import sys

from dbos import DBOS, SetWorkflowID

from effectonce import Guard, current_effect
from effectonce.integrations.dbos import EffectOnce
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")
once = EffectOnce(guard)


@once.step()  # instead of @DBOS.step()
@guard.tool(kind="irreversible", downstream="key", lease_s=1)
def refund(payment_id: str, amount_minor: int) -> str:
    receipt = bank.pay(payment_id, amount_minor, key=current_effect().downstream_key)["receipt"]
    if "--die" in sys.argv:
        print(f"the bank said yes ({receipt}), and now we die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


@once.workflow()  # instead of @DBOS.workflow()
def refund_order(payment_id: str) -> str:
    return refund(payment_id, 1_400_000)


with Bank("dbos.ledger", honours_keys=True) as bank:
    DBOS(
        config={
            "name": "refunds",
            "system_database_url": "sqlite:///dbos.db",
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()  # recovers what was open
    with SetWorkflowID("refund pay_7"):
        print("refunded:", refund_order("pay_7"))
    forked = DBOS.fork_workflow("refund pay_7", 1)  # an operator's redrive: another workflow id
    print("forked, and refunded:", forked.get_result())
    print("refunds in the bank's ledger:", len(bank.ledger()))
    DBOS.destroy()
