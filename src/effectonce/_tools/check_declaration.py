"""A declaration is checked, not believed: does a tool use the help that it declares?

`downstream="key"` helps only if the key is sent, `"transaction"` only if the work is done on the
lent connection. Both have to be read from `current_effect()` first, so it is noticed which
attempts did. An attempt that did not is judged as `downstream="none"`: if it ends without an
answer, it is in doubt, and is not sent again.

A tool that was seen to use it in this process, whose own code reads it, or names a protected
client that sends it, keeps its word: an attempt of such a tool that ended before it read its key
had not come to the request yet. Most tools look something up first.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import Any

from msgspec import structs

from effectonce._core.classification.classify import Classifier
from effectonce._core.classification.verdicts import Certainty
from effectonce._core.guarantees import GUARANTEES, Capability, Resend, Terms
from effectonce._core.observed_sends import Seen, Sight, of_another, seen
from effectonce._core.ops import Answer, Ok, Raised
from effectonce._core.safe_access import attempt
from effectonce._log import LOG
from effectonce._runtime.unprotected_sends import install, sends_the_key, tasks_of
from effectonce.effect import OVER, Effect
from effectonce.policy import Contract

_ADVICE = {
    Capability.KEY: (
        "never read its key, so the downstream cannot recognise a second request. Send"
        " current_effect().downstream_key with the request, or send it through a client of"
        " effectonce.http.client.protect(); otherwise declare downstream='none'. Until it reads its"
        " key, a call without an answer is in doubt and is not sent again"
    ),
    Capability.TRANSACTION: (
        "never used its connection, so what it did is not in the transaction of its record. Write"
        " through current_effect().connection, or declare what the downstream really offers"
    ),
    Capability.PROBE: (
        "has no probe, so nothing can be asked and a call without an answer stays in doubt."
        " Register one with @{tool}.probe, or declare downstream='none'"
    ),
}
_USED = {Capability.KEY: "key", Capability.TRANSACTION: "connection"}
_READ_AS = {
    "key": frozenset({"downstream_key", "key_as", "request_key"}),
    "connection": frozenset({"connection"}),
}


class DeclarationCheck:
    """What was seen of one tool's declaration in this process."""

    def __init__(
        self,
        contract: Contract,
        function: Callable[..., Any],
        classify: Classifier,
        *,
        has_probe: bool,
    ) -> None:
        self._classify = classify
        self._tool, self._capability = contract.name, contract.downstream.capability
        relies = GUARANTEES[contract.kind, self._capability].resend is Resend.WINDOW
        self._checks_key = self._capability is Capability.KEY and relies
        self._needs = (
            _USED.get(self._capability, "")
            if relies or self._capability is Capability.TRANSACTION
            else ""
        )
        self._missing_probe = self._capability is Capability.PROBE and not has_probe
        self._through, self._inferred = contract.through, contract.inferred
        self.announces = announces(function)
        if self._through or self.announces:
            install()
        self._seen, self._warned = (
            bool(self._needs) and _keeps_its_word(function, self._needs, contract),
            False,
        )
        # the declared terms, and the same without the help
        self._unaided: tuple[Terms, Terms] | None = None

    def __call__(self, effect: Effect, answer: Answer) -> Answer:
        """The answer of an attempt; its error says if the tool did not use what it declares."""
        if self._missing_probe and not self._warned:
            self._warn()
        if effect.used:
            self._seen = self._seen or self._needs in effect.used
            if "sending" in effect.used and not self.announces:
                self.announces = True
                install()
        if type(answer) is Ok:
            if self._needs and not self._seen and not self._warned:
                self._warn()
        elif isinstance(answer, Raised):
            unaided = bool(self._needs) and not self._seen
            return (
                Raised(answer.error, unaided, self._witnessed(effect, answer.error))
                if self._inferred or unaided
                else answer
            )
        return answer

    def _witnessed(self, effect: Effect, error: BaseException) -> Seen | None:
        """What left in a failed attempt: all, if its tool says so and was seen doing no more."""
        if not self._inferred:
            return None
        if not (self._through or self.announces):
            return _summed(effect, whole=False)
        effect.used.add(OVER)  # first: what is about to send either is seen here, or sees this
        found = _summed(effect, whole=not effect.elsewhere and not tasks_of(effect))
        nothing_left = found.whole and found.sight is Sight.NOTHING
        if not (nothing_left or self._says_not_sent(effect, error)):
            effect.used.discard(OVER)
        return found

    def _says_not_sent(self, effect: Effect, error: BaseException) -> bool:
        """Does the tool's own word settle it, whatever was seen? Then it may be run again."""
        unsent = self._classify(error).certainty is Certainty.NOT_SENT
        return unsent and not of_another(error, effect.ref.key)

    def believe(self) -> None:
        """It is known otherwise that the tool keeps its word."""
        self._seen = True

    def _warn(self) -> None:
        self._warned = True
        advice = _ADVICE[self._capability].replace("{tool}", self._tool)
        LOG.warning("%s declares downstream=%r and %s.", self._tool, str(self._capability), advice)

    def terms(self, declared: Terms) -> Terms:
        """What new calls may rely on: not on a key that calls before them did without."""
        if not (self._checks_key and self._warned and not self._seen):
            return declared
        if self._unaided is None or self._unaided[0] is not declared:
            self._unaided = (
                declared,
                structs.replace(declared, downstream=Capability.NONE, resend_s=0.0),
            )
        return self._unaided[1]


def _summed(effect: Effect, *, whole: bool) -> Seen:
    return seen(effect.requests, whole=whole, alone=sum(map(len, effect.sent.values())) <= 1)


def announces(function: Callable[..., Any]) -> bool:
    """Does it say itself when it sends? Both names in one place: either alone may be another's."""
    return _reads(function, frozenset({"sending"}), beside=frozenset({"current_effect"}))


def names_of(function: Callable[..., Any], levels: int = 2) -> dict[tuple[str, str], Any]:
    """What a function, or those of its module that it names, read from it: by module and name."""
    inner = inspect.unwrap(function.func if isinstance(function, partial) else function)
    code, module = getattr(inner, "__code__", None), getattr(inner, "__globals__", {})
    if not isinstance(code, CodeType):
        return {}
    here = {
        (inner.__module__, name): module[name] for name in sorted(_globals(code)) if name in module
    }
    helpers = [each for each in here.values() if _helps(each, module)] if levels > 0 else []
    return here | {
        place: thing for helper in helpers for place, thing in names_of(helper, levels - 1).items()
    }


def _helps(thing: Any, module: Mapping[str, Any]) -> bool:
    """Is it a function of this module, and no tool with a declaration of its own?"""
    return (
        inspect.isfunction(thing)
        and thing.__globals__ is module
        and not hasattr(thing, "__effectonce_tool__")
    )


def _globals(code: CodeType) -> set[str]:
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return own.union(*(_globals(each) for each in code.co_consts if isinstance(each, CodeType)))


def _keeps_its_word(function: Callable[..., Any], need: str, contract: Contract) -> bool:
    # a client puts the key into a header: a provider that reads it elsewhere does not see it
    by_client = need == "key" and (contract.sent_key is None or contract.sent_key.header != "")
    return _reads(function, _READ_AS[need]) or (
        by_client and any(sends_the_key(each) for each in _named_by(function))
    )


def _named_by(function: Callable[..., Any]) -> list[Any]:
    """What the code of a function names: of its module, and of the functions around it."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        return []
    module = getattr(inner, "__globals__", {})
    cells = [
        attempt(getattr, cell, "cell_contents")
        for cell in getattr(inner, "__closure__", None) or ()
    ]
    return [*(module[name] for name in _names(code) if name in module), *cells]


def _reads(
    function: Callable[..., Any],
    names: frozenset[str],
    levels: int = 2,
    beside: frozenset[str] = frozenset(),
) -> bool:
    """Does a function, or one it names in its module, read one of *names*, and name *beside*?"""
    while isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return False
    named = _names(code)
    if named & names and named >= beside:
        return True
    module = getattr(inspect.unwrap(function), "__globals__", {})
    helpers = [
        each
        for name in named
        if inspect.isfunction(each := module.get(name)) and each.__globals__ is module
    ]
    return levels > 0 and any(_reads(helper, names, levels - 1, beside) for helper in helpers)


def _names(code: CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)
