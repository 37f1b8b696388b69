"""Durable workflows over the same effects: a run is an effect, a step is an effect, resuming is
calling again.

    @guard.workflow(identity=["order_id"])
    def refund_order(run: Run, order_id: str, amount_minor: int) -> dict:
        plan = run.ask("plan", choose, order_id)  # journalled before anything is done with it
        paid = run.step("refund", refund, order_id, amount_minor)  # a guarded tool, or any function
        run.compensate("claw back", claw_back, paid["id"])  # if a later step fails for good
        return run.step("tell the customer", send_mail, order_id)
"""

from effectonce._core.workflow import Cancellation
from effectonce.workflows._run import Run
from effectonce.workflows._runs import (
    Resumed,
    RunState,
    RunSummary,
    RunTotals,
    StepSummary,
    Workflows,
)
from effectonce.workflows._workflow import WorkflowOptions

__all__ = [
    "Cancellation",
    "Resumed",
    "Run",
    "RunState",
    "RunSummary",
    "RunTotals",
    "StepSummary",
    "WorkflowOptions",
    "Workflows",
]
