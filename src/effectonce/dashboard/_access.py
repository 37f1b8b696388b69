"""Who looks at the dashboard, and what they may do."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct
from starlette.requests import Request

from effectonce.errors import ContractViolation


class Access(Struct, frozen=True):
    """What a person may do here. *who* is written on every record that they settle.

    Without more they may look: lists, and the story of each effect. *acts*: they may settle,
    approve, redrive, discard and cancel as well, and see the arguments of what waits for approval,
    except those that its tool redacts. *reveals*: they may see arguments, results and keys.
    *tenant*: all of this for the effects of one tenant only.
    """

    who: str
    acts: bool = False
    reveals: bool = False
    tenant: str | None = None

    def __post_init__(self) -> None:
        # callers without a type checker
        if not isinstance(self.who, str) or not self.who.strip():  # type: ignore[redundant-expr]
            raise ContractViolation(
                "Access needs a name: who= is written on the record of whatever they settle"
            )


# None: they may not even look. It is asked for every page, and for every decision.
AccessOf: TypeAlias = Callable[[Request], Access | Awaitable[Access | None] | None]


async def access_of(of: AccessOf, request: Request) -> Access | None:
    """What *request* may do; *of* is sync or async."""
    given = of(request)
    return await given if inspect.isawaitable(given) else given
