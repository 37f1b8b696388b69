"""Why a run stops: what happened, what is known, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from effectonce._core.codec import describe_error, printable
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending, NothingSent
from effectonce._core.record import Record
from effectonce._core.workflow import Cancellation, label
from effectonce._runtime.performers import Prepared
from effectonce._tools.tool import GuardedTool
from effectonce.errors import (
    Cancelled,
    CodeChanged,
    ContractViolation,
    GaveUp,
    LeaseLost,
    StoreUnavailable,
)
from effectonce.workflows._fence import KeptBack
from effectonce.workflows._step import Planned


def not_awaitable(tool: GuardedTool, step: Planned) -> ContractViolation:
    mine, its = ("async def", "def") if tool.is_async else ("def", "async def")
    return ContractViolation(
        f"{tool.contract.name} is {mine}, but {label(step.position, step.name)} is {its}: it would"
        " not be awaited. Nothing was sent."
    )


def unwritten(run: EffectRef, step: Planned) -> StoreUnavailable:
    """A resumed run repeats this step, maybe with another answer: this one is not acted on."""
    return StoreUnavailable(
        f"step {label(step.position, step.name)} of {run} was done, but its result could not be"
        " written to the store. The run waits; resumed, it does this step again, which may be"
        " repeated.",
        effect=run,
    )


def code_changed(run: EffectRef, step: Planned, prepared: Prepared, found: Record) -> CodeChanged:
    now, then = label(step.position, step.name), found.request.step
    what = f"{then!r} has other arguments"
    if now != then:
        what = f"step {then!r} was done here before, and now {now!r} is asked for"
    return CodeChanged(
        f"{run} cannot go on: {what} than when the run was here before. Nothing was sent.",
        effect=prepared.ref,
    )


def left_over(run: EffectRef, left: str, failed: Exception | None) -> CodeChanged:
    """The code of today does not come to a step that was begun."""
    how, then = "returns", "It does not end."
    if failed is not None:
        how = f"fails ({describe_error(type(failed).__name__, printable(failed))})"
        then = "Nothing was compensated, and it does not end."
    return CodeChanged(
        f"{run} {how}, but step {left!r} was begun when the run was here before, and the code of"
        f" today does not come to it. {then}",
        effect=run,
    )


def interrupted(run: EffectRef, error: BaseException, step: Planned) -> GaveUp:
    """A cancellation is for the caller that was waiting; the next step raises why there is none."""
    what = f"step {label(step.position, step.name)} of {run} was interrupted"
    return GaveUp(
        f"{what} ({type(error).__name__}) and may have happened. This run does nothing more until"
        " it is resumed.",
        effect=run,
    )


def run_cancelled(run: EffectRef, cancelled: Cancellation) -> Cancelled:
    return Cancelled(f"{run} was cancelled by {cancelled.by}: {cancelled.reason}", effect=run)


def lost(run: EffectRef) -> LeaseLost:
    why = f"{run} is run by another worker by now. This run does nothing more."
    return LeaseLost(why, effect=run)


def first_error_or_all(done: Sequence[Any], value: Callable[[Any], Any]) -> list[Any]:
    """All have ended: the first error in the order of the steps, not of time, or all results."""
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [value(each) for each in done]


def kept_back(ending: Ending) -> bool:
    return isinstance(ending, NothingSent) and isinstance(ending.error, KeptBack)
