"""The process of a Restate service: python -m tests.frameworks.restate.app PORT."""

import asyncio
import sys
from datetime import timedelta

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config
from restate import InvocationRetryPolicy, RunOptions

from effectonce.integrations.restate import EffectOnce
from tests.integrations.engines import shop

SOON = InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=20), max_interval=timedelta(milliseconds=100)
)
ONCE = RunOptions(max_attempts=1, initial_retry_interval=timedelta(milliseconds=1))
given = {"invocation_context_managers": [EffectOnce(shop.guard)], "invocation_retry_policy": SOON}

refunds = restate.Service("refunds", **given)
orders = restate.Workflow("orders", **given)
accounts = restate.VirtualObject("accounts", **given)
tenants = restate.Service(
    "tenants",
    invocation_context_managers=[
        EffectOnce(shop.guard, tenant=lambda ctx: ctx.request().headers["tenant"])
    ],
)


async def arefunded(payment_id: str, reason: str) -> str:
    return await asyncio.to_thread(shop.refunded, payment_id, reason)


def wired(payment_id: str) -> str:
    with (shop.FOLDER / "wires").open("a") as runs:
        runs.write(f"{payment_id}\n")
    return shop.wire(payment_id)


@refunds.handler()
async def pays(ctx: restate.Context, payment_id: str) -> str:
    receipt = await ctx.run_typed("refund", shop.refunded, payment_id=payment_id, reason="late")
    shop.accident("after the step")
    return receipt


@refunds.handler()
async def apays(ctx: restate.Context, payment_id: str) -> str:
    receipt = await ctx.run("refund", arefunded, args=(payment_id, "late"))
    shop.accident("after the step")
    return receipt


@refunds.handler()
async def pays_without_a_run(ctx: restate.Context, payment_id: str) -> str:
    return await asyncio.to_thread(shop.refunded, payment_id, "late")


@refunds.handler()
async def calls_again(ctx: restate.Context, payment_id: str) -> str:
    try:
        return await ctx.run_typed("refund", shop.refunded, ONCE, payment_id, "late")
    except restate.TerminalError:
        return await ctx.run_typed("refund", shop.refunded, ONCE, payment_id, "late")


@refunds.handler()
async def wishes(ctx: restate.Context, payment_id: str) -> list[str]:
    first = await ctx.run_typed("refund", shop.refunded, payment_id=payment_id, reason="late")
    shop.accident("after the step")  # the first one is in the journal then, and not run again
    return [
        first,
        await ctx.run_typed("refund", shop.refunded, payment_id=payment_id, reason="late"),
    ]


@refunds.handler()
async def side_by_side(ctx: restate.Context, payment_id: str) -> list[str]:
    both = [ctx.run("refund", arefunded, args=(payment_id, "late")) for _ in range(2)]
    await restate.gather(*both)
    return [await each for each in both]


@refunds.handler()
async def in_doubt(ctx: restate.Context, payment_id: str) -> dict[str, str]:
    try:
        return {"receipt": await ctx.run_typed("wire", wired, payment_id=payment_id)}
    except restate.TerminalError as error:
        return {"message": error.message, "status": str(error.status_code), **error.metadata}


@refunds.handler()
async def fails_in_doubt(ctx: restate.Context, payment_id: str) -> str:
    return await asyncio.to_thread(wired, payment_id)


@refunds.handler()
async def goes_better(ctx: restate.Context, payment_id: str) -> str:
    return await ctx.run_typed("closed", shop.closed, payment_id=payment_id)


@refunds.handler()
async def is_refused(ctx: restate.Context, payment_id: str) -> dict[str, str]:
    try:
        return {"receipt": await ctx.run_typed("refused", shop.refused, payment_id=payment_id)}
    except restate.TerminalError as error:
        return {"message": error.message, **error.metadata}


@refunds.handler()
async def speaks_restate(ctx: restate.Context, payment_id: str) -> str:
    def refuse() -> None:
        raise restate.TerminalError("in its own words", status_code=418)

    try:
        await ctx.run_typed("refuse", refuse)
    except restate.TerminalError as error:
        return f"{error.status_code} {error.message}"


@orders.main()
async def run(ctx: restate.WorkflowContext, payment_id: str) -> str:
    return await ctx.run_typed("refund", shop.refunded, payment_id=payment_id, reason="late")


@accounts.handler()
async def refund(ctx: restate.ObjectContext, payment_id: str) -> str:
    return await ctx.run_typed("refund", shop.refunded, payment_id=payment_id, reason="late")


@tenants.handler("refund")
async def of_a_tenant(ctx: restate.Context, payment_id: str) -> str:
    return await ctx.run_typed("refund", shop.refunded, payment_id=payment_id, reason="late")


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    asyncio.run(serve(restate.app([refunds, orders, accounts, tenants]), config))
