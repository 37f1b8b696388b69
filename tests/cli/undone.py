"""A shop whose refunds can be undone: `--app tests.cli.undone:guard`. What really happened is in
the store.
"""

import os

from effectonce import Guard, Retry

ONCE = Retry(attempts=1)


def tools(guard):
    """Register its tools on *guard*."""

    @guard.tool(kind="write", retry=ONCE)
    def refund(payment: str) -> str:
        if payment == "pay_lost":
            raise TimeoutError("the bank did not answer")
        return f"receipt of {payment}"

    @refund.undo
    def take_back(result, payment):
        return f"{payment}: {result} is void"

    @guard.tool(kind="write", retry=ONCE)
    async def post(to: str) -> str:
        return f"posted to {to}"

    @post.undo(approval=True)
    async def recall(result, to):
        return f"{result}, and recalled"

    @guard.tool(kind="write", retry=ONCE)
    def pay(to: str) -> str:
        return to

    return guard


def call(guard, tool, **arguments):
    with guard.step("chat", tool):
        return guard.call(tool, arguments)


guard = tools(Guard(os.environ.get("SHOP_STORE", "memory://")))
