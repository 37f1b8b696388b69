"""A DBOS process: python -m tests.integrations.engines.dbos_app. It recovers what is open, and
does what its folder asks for.
"""

import asyncio

from dbos import DBOS, SetWorkflowID

from effectonce import EffectOnceError
from effectonce.integrations.dbos import EffectOnce
from tests.integrations.engines import shop

once = EffectOnce(shop.guard)


@once.step(retries_allowed=True, interval_seconds=0.01)
def refund(payment_id, reason):
    return shop.refunded(payment_id, reason)


@once.step()
def refund_without_retries(payment_id, reason):
    return shop.refunded(payment_id, reason)


@once.step()
async def arefund(payment_id):
    return await asyncio.to_thread(shop.refund, payment_id, 1400, "late")


@once.step(retries_allowed=True, interval_seconds=0.01)
def wire(payment_id):
    with (shop.FOLDER / "wires").open("a") as runs:
        runs.write(f"{payment_id}\n")
    return shop.wire(payment_id)


@once.step()
def strange(payment_id, thing):
    """Its second argument has no canonical form."""
    return shop.refund(payment_id, 1, "late")


@once.step()
async def afails(payment_id):
    return await asyncio.to_thread(shop.refunded, payment_id, "late")


@once.step()
def outer(payment_id):
    return refund(payment_id, "late")


@once.workflow()
def nested(payment_id):
    first = outer(payment_id)
    shop.accident("after the step")
    return [first, refund(payment_id, "late")]


@DBOS.step()
def look():
    """Something else comes before it, if the folder says so."""
    return (shop.FOLDER / "changed").exists()


@once.workflow()
def pays(payment_id):
    changed = look()
    if changed:
        look()  # the code was changed: every step after it has another id
    receipt = refund(payment_id, "the parcel was late" if changed else "late")
    shop.accident("after the step")
    return receipt


@once.workflow()
def calls_again(payment_id):
    try:
        return refund_without_retries(payment_id, "late")
    except RuntimeError:
        return refund_without_retries(payment_id, "late")


@once.workflow()
def parent(payment_id):
    return pays(payment_id)


@once.workflow()
def wishes(payment_id):
    return [refund(payment_id, "late"), refund(payment_id, "late")]


@once.workflow()
async def side_by_side(payment_id):
    return await asyncio.gather(arefund(payment_id), arefund(payment_id))


@once.workflow()
def in_doubt(payment_id):
    try:
        return wire(payment_id)
    except EffectOnceError as error:
        return error.as_model_error()


@once.workflow()
def fails_in_doubt(payment_id):
    return wire(payment_id)


@once.workflow()
def strange_wishes(payment_id):
    return [strange(payment_id, object), strange(payment_id, object)]


@once.workflow()
async def fails_then_works(payment_id):
    try:
        return await afails(payment_id)
    except RuntimeError:
        return await afails(payment_id)


@DBOS.workflow()
def unplaced(payment_id):
    try:
        return refund(payment_id, "late")
    except EffectOnceError as error:
        return error.code


def ran(workflow, name):
    with SetWorkflowID(name):
        if asyncio.iscoroutinefunction(workflow):
            return asyncio.run(workflow(name))
        return workflow(name)


def answered(command):
    what, name, *rest = command
    match what:
        case "run":
            return ran(globals()[rest[0]], name)
        case "alone":
            with shop.guard.step("chat-42", "refund"):
                return [refund(name, "late"), asyncio.run(arefund(f"{name}/async"))]
        case "result":
            return DBOS.retrieve_workflow(name).get_result()
        case "fork":
            return DBOS.fork_workflow(name, rest[0]).get_result()


def main():
    DBOS(
        config={
            "name": "shop",
            "system_database_url": f"sqlite:///{shop.FOLDER / 'dbos.db'}",
            "run_admin_server": False,
            "application_version": "1",
            "executor_id": "only",
        }
    )
    DBOS.launch()
    shop.serve(answered)


if __name__ == "__main__":
    main()
