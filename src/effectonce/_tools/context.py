"""What a tool is given when it is made: its guard's means, and who hosts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from effectonce._core.call import GuardedCall
from effectonce._core.codec import encode_partial
from effectonce._core.effect_ref import EffectRef
from effectonce._core.keys import Explanation
from effectonce._core.ops import Complete, Fail, Op
from effectonce._core.retry_state import Env
from effectonce._log import LOG
from effectonce._runtime.heartbeat import Heartbeat
from effectonce._runtime.performers import AsyncPerforming, Prepared, Setup
from effectonce._runtime.replay_cache import ReplayCache
from effectonce._runtime.signature import Recall
from effectonce._tools.observers import Observers
from effectonce.errors import InDoubt, PartialSuccess
from effectonce.outcome import Outcome, encoder
from effectonce.policy import Contract
from effectonce.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Tool(Protocol, Generic[P, R]):
    """A guarded function: call it as before."""

    __name__: str
    contract: Contract

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def probe(self, function: F) -> F:
        """Register how to ask the downstream: called like the tool, answers Found, NotFound or
        CannotTell.
        """

    def fallback(self, function: F) -> F:
        """Register what to answer when the tool cannot run: called with the error, then like the
        tool. Its answer is not stored.
        """

    def undo(self, function: Any = None, /, **options: Any) -> Any:
        """Register how an effect is undone by `guard.undo`: called with the arguments that it
        names, and with `result`, what the tool returned.
        """

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Why this call has the key it has. Nothing is sent."""


class GuardContext(Struct, frozen=True):
    """What all tools of one guard share."""

    store: Store
    tenant: str
    secret: bytes
    env: Env
    heart: Heartbeat
    cache: ReplayCache
    keep: Callable[[Complete | Fail], None]  # what could not be written to the store
    watch: Observers
    doubted: Callable[[Any, str], object]  # a call of this tool for this tenant ended in doubt
    where: str = ""  # the store, as a command names it

    def notice(self, error: BaseException | None, tool: Any) -> None:
        """A call of *tool* ended so. A doubt says where to look, and is asked in the background."""
        if isinstance(error, InDoubt):
            error.look_up(self.where)
            self.doubted(tool, self.tenant if error.effect is None else error.effect.tenant)

    def looked_up(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """What a probe came to, which begins nothing: it may be the background that asked."""
        if isinstance(outcome.error, InDoubt):
            outcome.error.look_up(self.where)
        return outcome


def not_kept(op: Complete | Fail) -> None:
    ended = EffectRef("", op.key).reference
    LOG.warning(
        "how %s ended was not written to the store, and there is no spool (Guard(spool=...))", ended
    )


class Hosting(Struct, frozen=True, kw_only=True):
    """What a workflow, an adapter or a proxy hands in when it makes a tool of its own."""

    calling: type[GuardedCall] = GuardedCall
    performing: Callable[[Setup, Prepared], Callable[[Op[Any]], Any]] | None = None
    aperforming: Callable[[Setup, Prepared], AsyncPerforming] | None = None
    encoder: Callable[[str, Any], Callable[[Any], bytes]] = encoder
    # stored arguments as a call again, where the function does not take them itself
    recall: Recall | None = None
    stays: str = ""  # why a call cannot be run here from its stored arguments
    steps: bool = False  # a workflow, whose record has records of steps


PLAIN = Hosting()  # a tool of a user


def partial_success(error: BaseException) -> bytes | None:
    """What a tool did that reports a partial success, as it is stored. None: it reports none."""
    if not isinstance(error, PartialSuccess):
        return None
    return encode_partial(str(error), error.done, error.corrective_action)
