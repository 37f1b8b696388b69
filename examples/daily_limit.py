"""Eight agents refund, four at once, and the shop may pay out EUR 5,000 a day. However they race,
the bank pays no more than that.

    python examples/daily_limit.py
"""

from concurrent.futures import ThreadPoolExecutor

from effectonce import Allowance, Downstream, Guard, LimitReached, current_effect
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///limited.db")
refunds = Allowance("refunds", limit=500_000, unit="cents", per="day")


def main() -> None:
    with Bank("limited.ledger", honours_keys=True) as bank:

        @guard.tool(
            kind="irreversible",
            downstream=Downstream.key(),
            allowance=refunds,
            spends="amount_minor",
        )
        def refund(order: str, amount_minor: int) -> str:
            key = current_effect().downstream_key
            receipt: str = bank.pay(order, amount_minor, key=key)["receipt"]
            return receipt

        def agent(number: int) -> bool:
            with guard.step(f"chat-{number}", "refund"):
                try:
                    refund(f"ord_{number}", 90_000)
                except LimitReached:
                    return False
                return True

        with ThreadPoolExecutor(4) as agents:
            done = sum(agents.map(agent, range(8)))
        paid = sum(entry["amount_minor"] for entry in bank.ledger())
    print(f"{done} of 8 were refunded, {paid:,} of {refunds.limit:,} cents")


if __name__ == "__main__":
    main()
