"""A guarded tool that counts, on any store."""

from effectonce import Guard, Retry


def guarded(store, calls, **contract):
    guard = Guard(store, cache=0)

    @guard.tool(
        **({"kind": "write", "retry": Retry(attempts=3, deadline_s=0.2), "wait_s": 0} | contract)
    )
    def pay(invoice: str = "inv_1"):
        calls.append(invoice)
        return {"receipt": len(calls)}

    def call(invoice="inv_1"):
        with guard.step("chat", f"pay {invoice}"):
            return pay(invoice)

    return guard, call


def aguarded(store, calls, **contract):
    guard = Guard(store, cache=0)

    @guard.tool(
        **({"kind": "write", "retry": Retry(attempts=3, deadline_s=0.2), "wait_s": 0} | contract)
    )
    async def pay(invoice: str = "inv_1"):
        calls.append(invoice)
        return {"receipt": len(calls)}

    async def call(invoice="inv_1"):
        async with guard.step("chat", f"pay {invoice}"):
            return await pay(invoice)

    return guard, call
