"""Steps: the outermost layer that can decide to retry, and so the layer that gives an effect its
place.

A boundary lives in a context variable. It reaches every tool that is called inside it, through
threads that copy the context and tasks that inherit it, and it never passes through a tool's
parameters, where a model could see it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, Token
from functools import lru_cache
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from effectonce._core.effect_ref import INSIDE, EffectRef
from effectonce._core.keys import Part, Stable, UnstableKey, check_stable
from effectonce._core.stability import LASTING, changes_in, unstable_text
from effectonce._log import LOG
from effectonce._runtime.unawaited import WRAPPERS, look
from effectonce._validate import several
from effectonce.errors import ContractViolation

T = TypeVar("T")
_AN_ID = (
    'Say of what it is the id: f"chat-{id}". It has to be the same on every attempt: the id of a'
    " conversation or an order, not one that is made for the call."
)


class Delivered(Struct, frozen=True):
    """A successful result that the model was already shown: from the conversation's history."""

    tool: str
    arguments: Mapping[str, Any]


def deliveries(delivered: Iterable[Delivered]) -> tuple[Delivered, ...]:
    """What a model was shown, each with its tool and arguments."""
    shown = several("delivered", delivered)
    for each in shown:
        if not isinstance(each, Delivered) or not isinstance(each.arguments, Mapping):
            raise ContractViolation(
                f"delivered has {each!r}: give Delivered(tool, arguments). Nothing was sent."
            )
    return shown


class StepContext(Struct, frozen=True, kw_only=True, eq=False):
    """Where calls happen: whose, in which conversation or workflow, at which step."""

    tenant: str
    scope: str = ""
    step: str | None = None
    stream: tuple[str, int] | None = None
    latch: bool = True
    permissions: frozenset[str] = frozenset()
    delivered: tuple[Delivered, ...] = ()
    asked_by: str = ""  # for whom, if a call needs an approval
    # a tool, and how many results of the one call that is made here were shown
    counted: tuple[str, int] | None = None
    # entered again, this place is the same object: what was derived in it may be remembered
    lasting: bool = False

    def ordinal(self, tool: str, is_same: Callable[[Mapping[str, Any]], bool]) -> int:
        """How many results of *tool* the model was shown for this very call, as *is_same* knows."""
        if self.counted is not None and self.counted[0] == tool:
            return self.counted[1]
        return sum(is_same(shown.arguments) for shown in self.delivered if shown.tool == tool)


@lru_cache(maxsize=1024)
def place(
    tenant: str,
    scope: str,
    step: str | int | None,
    latch: bool,  # noqa: FBT001
    permissions: frozenset[str],  # noqa: FBT001, RUF100
) -> StepContext:  # noqa: FBT001, RUF100
    """A place in a conversation, cached: retries enter it again. *tenant* was checked before."""
    if step is not None and not (
        type(step) is str and step.isascii() and step != "" and changes_in(step) == ""
    ):
        step = stable_part(step, "the step id")  # says what is wrong with it, if anything is
    return StepContext(
        tenant=tenant,
        scope=_scope(scope),
        step=step,
        latch=latch,
        permissions=permissions,
        lasting=True,
    )


@lru_cache(maxsize=1024)  # a conversation has many steps
def _scope(scope: str) -> str:
    return named(scope, "scope")


here: ContextVar[StepContext | None] = ContextVar("effectonce_boundary", default=None)


def inside(effect: EffectRef, outer: StepContext | None) -> StepContext:
    """Where a running tool's guarded calls happen: a step of its effect, the same on every run."""
    return StepContext(
        tenant=effect.tenant,
        scope=effect.tool if outer is None else outer.scope,
        step=f"{INSIDE}{effect.key}",
        permissions=frozenset() if outer is None else outer.permissions,
        asked_by="" if outer is None else outer.asked_by,
    )


class ContextScope(Generic[T]):
    """`with` or `async with`: everything called inside sees this value."""

    __slots__ = ("_token", "_value")
    variable: ClassVar[ContextVar[Any]]
    what: ClassVar[str]

    def __init__(self, value: T) -> None:
        self._value = value
        self._token: Token[T | None] | None = None

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError(
                f"this {self.what} is already entered; make another with guard.{self.what}()"
            )
        self._token = self.variable.set(self._value)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        token, self._token = self._token, None
        if token is None:
            return
        wrong, mixed_up = "", self.variable.get() is not self._value
        try:
            self.variable.reset(token)
        except ValueError:
            wrong = (
                f"this {self.what} was entered in another task or thread, and is not left there."
                " Enter and leave it in one function: a generator, such as a fixture or a"
                " dependency of a web framework, may be ended elsewhere than it was begun."
            )
        else:
            if mixed_up:
                # and not to what was before: it is not known whether that was left meanwhile
                self.variable.set(None)
                wrong = (
                    f"another {self.what} was entered in this one and not left, so calls may have"
                    f" been made in the place of the other. Yield nothing inside a {self.what}: a"
                    " generator goes on in the context of who asks it."
                )
        if wrong and error is None:  # else that one tells more
            raise RuntimeError(wrong)
        if WRAPPERS:
            # there is no public way to ask who leaves it
            look(sys._getframe(1), error)  # noqa: SLF001

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)


class Step(ContextScope[StepContext]):
    """Everything called inside belongs to this boundary."""

    __slots__ = ()
    variable = here
    what = "step"

    @property
    def boundary(self) -> StepContext:
        return self._value


def at_ordinal(step: Step, tool: str, ordinal: int) -> Step:
    """The same step, for one call of *tool* whose results its framework has counted."""
    return Step(msgspec.structs.replace(step.boundary, counted=(tool, ordinal), lasting=False))


def stable(parts: Iterable[Part], where: str) -> tuple[str, ...]:
    """Key parts as text; one that changes on every attempt is a contract violation, explained."""
    checked = tuple(stable_part(part, where) for part in parts)
    if not checked:
        raise ContractViolation(f"{where} is empty. Nothing was sent.")
    return checked


def stable_part(part: Part, where: str) -> str:
    checked = _checked(part, where)
    if checked == "":
        raise ContractViolation(f"{where} is empty. Nothing was sent.")
    return writable(checked, where)


def _checked(part: Part, where: str, *, lasting: bool = False) -> str:
    try:
        return check_stable(part, where, lasting=lasting)
    except (UnstableKey, TypeError) as error:
        raise ContractViolation(f"{error} Nothing was sent.") from None


def named(value: str | Stable, what: str) -> str:
    """A tenant, scope or stream: a text that says something and stays. It may be a random id."""
    given = str(value.value) if isinstance(value, Stable) else value
    # callers without a type checker
    if not isinstance(given, str) or len(given) == 0:  # type: ignore[redundant-expr]
        if what == "scope" and isinstance(given, int | UUID):
            wrong = (
                f"{what} is {given!r}, the id of something, and must be a text. Nothing was sent."
            )
            raise ContractViolation(wrong, corrective_action=_AN_ID)
        raise ContractViolation(
            f"{what} must be a text that says something, not {given!r}. Nothing was sent."
        )
    # what a subclass holds, not what it says or thinks that it is equal to
    text = str.__str__(given)
    if not isinstance(value, Stable):
        _checked(text, what, lasting=True)
    return writable(text, what)


@lru_cache(maxsize=1024)  # one warning for each sort of value, and none for its repetition
def _warn(what: str, found: str) -> None:
    LOG.warning(
        "%s contains %s. It is taken as it is, because a refusal would stop the call. If it is made"
        " anew on every attempt, a retry is another effect; and it is stored and shown in the"
        " clear. Use an id that stays, such as that of the account.",
        what,
        found,
    )


def flagged(value: str | Stable, what: str) -> str:
    """The same for what a framework or login gives too late to choose: taken, with a warning."""
    text = named(
        value if isinstance(value, Stable) or not isinstance(value, str) else Stable(value), what
    )
    found = "" if isinstance(value, Stable) else unstable_text(text)
    if found and found not in LASTING:
        _warn(what, found)
    return text


def writable(text: str, what: str) -> str:
    """Half a surrogate pair, as broken JSON leaves it, is no text that a store could keep."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ContractViolation(
                f"{what} is {text!r}, which cannot be written as UTF-8. Nothing was sent."
            ) from None
    return text
