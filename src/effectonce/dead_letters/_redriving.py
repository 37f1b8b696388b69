"""May a letter be sent again, and what came of it, in words."""

from __future__ import annotations

from typing import Any, Literal, assert_never

from msgspec import Struct, structs

from effectonce._core.effect_ref import EffectRef, effect_of
from effectonce._core.endings import (
    Done,
    Ending,
    Exhausted,
    Fenced,
    Fresh,
    Lost,
    NothingSent,
    OutOfPatience,
    OverLimit,
    Rejection,
    Replay,
    Undetermined,
    Unmet,
)
from effectonce._core.ops import (
    Busy,
    Doubtful,
    Early,
    KeyExpired,
    Latched,
    Mismatch,
    Unapproved,
    Unavailable,
)
from effectonce._core.record import Record, State
from effectonce._core.tagged_json import NotReadable
from effectonce._runtime.performers import Prepared
from effectonce._tools.tool import GuardedTool
from effectonce.dead_letters._letter import Letter
from effectonce.errors import ContractViolation
from effectonce.outcome import last_of

What = Literal["done", "replayed", "in_doubt", "failed", "gave_up", "skipped", "would_run"]


class Redriven(Struct, frozen=True, kw_only=True):
    """What came of one letter."""

    effect: EffectRef
    what: What  # `would_run` only in a dry run
    why: str = ""
    value: Any = None  # its result, if it ran here
    # it was called, or its probe was asked; False: there was nothing to do, or something in the way
    ran: bool = False


def skipped(letter: Letter, why: str) -> Redriven:
    """It was left as it is."""
    return Redriven(effect=letter.effect, what="skipped", why=why)


def would(ready: Redriven | tuple[GuardedTool, Record]) -> Redriven:
    """What a dry run says."""
    if isinstance(ready, Redriven):
        return ready
    return Redriven(effect=effect_of(ready[1]), what="would_run")


def settled(letter: Letter) -> Redriven | None:
    """It has an outcome already."""
    match letter.record.state:
        case State.COMPLETED:
            return Redriven(effect=letter.effect, what="replayed", why="it is done already")
        case State.FAILED:
            why = "it failed for good, and is not tried again"
            return Redriven(effect=letter.effect, what="failed", why=why)
        case State.TOMBSTONE:
            return skipped(letter, "its key has expired")
        case _:
            return None


def unsendable(tool: GuardedTool, record: Record) -> str:
    """Why the stored arguments cannot be sent again; "" if they can."""
    signature, hosting = tool.signature, tool.hosting
    try:
        arguments = signature.decode(record.request.arguments)
        if hosting.stays or hosting.recall is not None:
            asked_first = hosting.recall is not None and record.state is State.IN_DOUBT
            return "" if asked_first else hosting.stays
        if set(arguments) != set(signature.names):
            return (
                f"{tool.contract.name} takes other arguments now, or makes its requests elsewhere"
            )
        signature.validate(arguments)
        resent(tool, record)  # whether it needs an approval can be decided
    except (NotReadable, ContractViolation) as error:
        return f"it cannot be sent again from here: {error}"
    return ""


def resent(tool: GuardedTool, record: Record) -> Prepared:
    """The call of a letter: if such a call needs an approval by now, so does this one."""
    prepared = tool.recalled(record)
    if tool.approval is None:
        return prepared
    arguments = tool.signature.bind(prepared.args, prepared.kwargs)
    request = tool.approval.of_today(record.request, tool.terms, arguments)
    return structs.replace(prepared, request=request)


def came_to(ending: Ending) -> tuple[What, str, Any]:
    """An ending in the words of a redrive. An interruption of the caller is raised."""
    match ending:
        case Fresh(value):
            return "done", "", value
        case Replay(recorded):
            if recorded.state is State.COMPLETED:
                return "replayed", "it is done already", None
            return "failed", "it failed for good", None
        case Rejection(error):
            return "failed", last_of(1, error), None
        case (
            Lost(error)
            | NothingSent(error)
            | Exhausted(error)
            | Done(error)
            | Undetermined(error=BaseException() as error)
        ) if not isinstance(error, Exception):
            raise error
        case Done(why=why):
            return "done", why, None
        case Lost(reason=reason) | Doubtful(reason=reason):
            return "in_doubt", reason, None
        case NothingSent(error, attempts) | Exhausted(error, attempts):
            return "gave_up", last_of(attempts, error), None
        case OutOfPatience(why):
            return "gave_up", why, None
        case Unmet(stored):
            return "failed" if stored else "skipped", "its precondition does not hold", None
        case Undetermined(reason):
            return "skipped", f"before it is sent: {reason}", None
        case OverLimit(allowance):
            return "skipped", f"{allowance} has less left than it would spend", None
        case _:
            return "skipped", in_the_way(ending), None


def in_the_way(
    ending: Fenced | Busy | Latched | Mismatch | KeyExpired | Early | Unapproved | Unavailable,
) -> str:
    match ending:
        case Busy() | Fenced():
            return "it is in flight: a worker is working on it"
        case Latched(_, tool, _):
            return f"{tool} of the same step was sent and has no outcome"
        case Early():
            return "its predecessor in the sequence has no outcome"
        case Unapproved():
            return "it waits for an approval"
        case KeyExpired():
            return "its key has expired"
        case Mismatch():
            return "its key is taken by another request"
        case Unavailable(error):
            return f"the store did not answer: {error}"
        case _:
            assert_never(ending)
