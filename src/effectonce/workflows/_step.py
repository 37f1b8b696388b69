"""Steps of a workflow: a tool as a step, what is to be done, what a run needs of its workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from effectonce._core.guarantees import Terms
from effectonce._tools.tool import GuardedTool


class OfStep(Struct, frozen=True):
    """A tool as a step of a workflow."""

    terms: Terms  # what its record pins: its own, for at least as long as the run is remembered
    may_be_late: bool  # claimed when its end is known


class Planned(Struct, frozen=True):
    """A step that is to be done: where, what, with which arguments."""

    position: str
    name: str
    tool: GuardedTool
    as_step: OfStep
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # of a plain function, the very one; its tool is shared by all of the same code
    function: Callable[..., Any] | None


class Steps(Struct, frozen=True):
    """What all runs of a workflow share."""

    tool: GuardedTool
    permissions: frozenset[str]
    plain: Callable[..., GuardedTool]  # makes a tool of a function that is none
    of_step: Callable[[GuardedTool], OfStep]
