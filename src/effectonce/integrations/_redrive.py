"""A framework's tool without its framework: from the arguments on its record it can be asked
about, and done again, if it is declared how.

    refund = {"downstream": "probe", "probe": find_refund, "redrive": refund_at_the_bank}
    contracts={"refund": refund}

Both are called with the arguments of the model by name, defaults included. A tool without this
declaration stays with its framework: what the model was shown is on the record, but whatever
else the framework hands to a tool is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from effectonce._core.ops import Found
from effectonce._runtime.signature import is_async
from effectonce._tools.context import Hosting
from effectonce._tools.tool import GuardedTool
from effectonce.errors import ContractViolation, NotSent

STAYS = (
    "only its agent can run it. Let the agent ask again: the same call has the same key, and is"
    " done once. Or declare how it is done without the agent: contracts={...: {'redrive': a"
    " function of its arguments}}"
)


class Redrive(Struct, frozen=True):
    """What is declared about a tool outside its framework."""

    probe: Callable[..., Any] | None = None
    redrive: Callable[..., Any] | None = None

    @property
    def asynchronous(self) -> bool | None:
        """Is it async? None: there is nothing to call."""
        kinds = {is_async(each) for each in (self.probe, self.redrive) if each is not None}
        if len(kinds) > 1:
            raise ContractViolation(
                "of `probe` and `redrive`, one is async and the other is not: both must be def, or"
                " both async def"
            )
        return kinds.pop() if kinds else None


def hosting_of(
    name: str, outside: Redrive, leg: Callable[[Callable[[], Any]], Any], *, asynchronous: bool
) -> Hosting:
    """How a tool of a framework is run from its stored arguments. *leg* makes a run of it."""
    if outside.asynchronous and not asynchronous:
        raise ContractViolation(
            f"{name} is run by sync code here, and its probe or redrive is async def. Nothing was"
            " sent."
        )

    def recall(arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        redrive = _refuse if outside.redrive is None else outside.redrive
        run = leg(lambda: _called(redrive, arguments, asynchronous=asynchronous))
        run.arguments = arguments
        return (run,), {}

    return Hosting(recall=recall, stays=STAYS if outside.redrive is None else "")


def add_probe(tool: GuardedTool, outside: Redrive, recorded: Callable[[Any], Any]) -> None:
    """Give *tool* its declared probe. *recorded* is how its framework's results are recorded."""

    def probed(run: Any) -> Any:
        return _found(_called(outside.probe, run.arguments, asynchronous=False), recorded)

    async def aprobed(run: Any) -> Any:
        return _found(await _called(outside.probe, run.arguments, asynchronous=True), recorded)

    if outside.probe is not None:
        tool.probe(aprobed if tool.is_async else probed)


def _called(function: Any, arguments: Mapping[str, Any], *, asynchronous: bool) -> Any:
    """For async code to await, or for sync code: a sync function does not hold up a loop."""
    if asynchronous and not is_async(function):
        return asyncio.to_thread(function, **arguments)
    return function(**arguments)


def _refuse(**_: Any) -> Any:
    raise NotSent(STAYS, retryable=False)


def _found(answer: Any, recorded: Callable[[Any], Any]) -> Any:
    return Found(recorded(answer.result)) if isinstance(answer, Found) else answer
