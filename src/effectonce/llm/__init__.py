"""LLM calls: the same question in the same tenant is paid for once.

    ask = once_llm(guard, client.messages.create)
    message = ask(model="...", max_tokens=1024, messages=[...])   # asked again: the same answer
    was_cached(message)

A question changes nothing, costs money, and may be asked again: it is a read with a record. Its
identity is its content, which is every argument that can change the answer. So a run that
crashed and is resumed gets the answers that it had, a caller that asks while it is under way
gets the same answer, and after the window the model is asked anew. Another answer to the same
question is another `sample`.

An answer is kept as it is, a refusal or a cut-off one too; an error is none, and the next call
asks again. Retries are ours: those of the client are switched off, so that an attempt is one
request, counted by the turn.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from effectonce._core.classification.classify import Bucket, Certainty, Verdict, classify
from effectonce._core.codec import encode
from effectonce._core.effect_ref import EffectRef
from effectonce._core.ops import Find
from effectonce._core.record import Record, State
from effectonce._core.safe_access import attempt
from effectonce._log import LOG
from effectonce._runtime.performers import Prepared
from effectonce._runtime.signature import is_async
from effectonce._runtime.step import here
from effectonce._tools.tool import GuardedTool
from effectonce._validate import seconds, several
from effectonce.effect import current_effect
from effectonce.errors import ContractViolation
from effectonce.guard import Guard
from effectonce.llm._answers import (
    CACHED,
    INSTEAD,
    betas,
    is_given,
    is_marked,
    is_model,
    mark,
    plain,
    rebuilt,
)
from effectonce.llm._sdk_method import declared_answer, inmost, method_name, one_request_each
from effectonce.outcome import Outcome
from effectonce.policy import Contract, Downstream, Retry, TimeWindow, kind_of
from effectonce.retries.budget import RetryBudget
from effectonce.retries.circuit import Circuit
from effectonce.retries.turn import turn_here

__all__ = ["CLIENT_SIDE", "LLMCall", "once_llm", "was_cached", "was_fallback"]
R = TypeVar("R")
# How and for whom it is asked, not what. Of the headers, those of a beta count.
CLIENT_SIDE = frozenset({
    "extra_headers", "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
    "service_tier", "timeout", "user",
})  # fmt: skip
_REFUSED = {"stream": "a stream cannot be recorded", "background": "its answer is not there yet"}
# After these, another model may answer.
DOWN = frozenset({
    Bucket.CIRCUIT_OPEN, Bucket.NO_ANSWER, Bucket.OVERLOADED, Bucket.QUOTA, Bucket.RATE_LIMIT,
    Bucket.SERVER_ERROR, Bucket.UNREACHABLE,
})  # fmt: skip


def once_llm(
    guard: Guard,
    create: Callable[..., R],
    *,
    name: str | None = None,
    window: float | timedelta = 3600.0,
    shared: bool = True,
    volatile: Sequence[str] = (),
    returns: type | None = None,
    retry: Retry | None = None,
    wait_s: float | None = None,
    lease_s: float = 30.0,
    breaker: Circuit | None = None,
    budget: RetryBudget | None = None,
    fallback: Sequence[str | Mapping[str, Any]] = (),
) -> LLMCall[R]:
    """Ask each question once: *create* is a method of an SDK's client, or any function of
    keyword arguments, sync or async.

    An answer is given again for *window*. It is *shared* in its tenant; if not, it belongs to
    the conversation of the step that it is asked in. *volatile* are arguments that do not change
    the answer, besides `CLIENT_SIDE`. *returns* is the model that answers are rebuilt as, where
    *create* does not declare it. *name* is part of every key; by default it says which method
    this is. *fallback* are models, or mappings of parameters, to ask with when the first one is
    down: each answer has its own key, each model its own circuit like *breaker*, and
    `was_fallback` tells.
    """
    if getattr(create, "__name__", "").endswith("stream"):
        raise ContractViolation(
            f"{create.__name__}: a stream cannot be recorded. Give the method that answers in one"
            " piece."
        )
    policy = Retry(deadline_s=600.0) if retry is None else retry
    contract = Contract(
        name=name or method_name(create),
        kind=kind_of("read"),
        downstream=Downstream.none(),
        identity=("content",),
        volatile=("asking",),
        redact=("content", "asking"),  # prompts are long, and private; the answer is what is kept
        lease_s=lease_s,
        wait_s=policy.deadline_s if wait_s is None else wait_s,
        retry=policy,
        one_request=True,
        dedup=TimeWindow(seconds=seconds(window, "window")),
    )
    once, at = one_request_each(create)
    function, other = (_aask, _ask) if is_async(inmost(create)) else (_ask, _aask)
    tool = guard._host(  # noqa: SLF001  # it stands above the guard
        contract, function, identity=("content",), breaker=breaker, budget=budget, other=other
    )
    instead = tuple(
        {"model": each} if isinstance(each, str) else dict(each)
        for each in several("fallback", fallback)
    )
    tools = (
        tool,
        *(
            guard._host(  # noqa: SLF001  # the same
                contract,
                function,
                identity=("content",),
                breaker=_circuit_of(breaker, number, each),
                budget=budget,
                listed=False,
            )
            for number, each in enumerate(instead, 1)
        ),
    )
    volatile_too = CLIENT_SIDE | set(volatile)
    answers = declared_answer(create) if returns is None else returns
    return LLMCall(tools, once, at, volatile_too, answers, shared=shared, instead=instead)


def _circuit_of(breaker: Circuit | None, number: int, asked: Mapping[str, Any]) -> Circuit | None:
    """One for each model: the first may be down while this one answers, and the other way round."""
    if breaker is None:
        return None
    name = f"{breaker.name}/{asked.get('model', number)}"
    return Circuit(name, breaker.policy, shared=breaker.shared)


class LLMCall(Generic[R]):
    """A method that answers each question once. Call it as before; `call(...)`: the `Outcome`."""

    def __init__(
        self,
        tools: tuple[GuardedTool, ...],
        create: Callable[..., R],
        at: str,
        volatile: frozenset[str],
        returns: Any,
        *,
        shared: bool,
        instead: tuple[dict[str, Any], ...],
    ) -> None:
        self._tools, self._create, self._at = tools, create, at
        self._tool = tools[0]
        self._volatile, self._returns = volatile, returns
        self._shared, self._instead = shared, instead
        self._signature = inspect.signature(create)
        self.__effectonce_async__ = self._tool.is_async  # as a step of a workflow

    def __call__(self, *, sample: int = 0, **parameters: Any) -> R:
        """The answer. *sample* 1, 2, ... are other answers to the same question."""
        if self._tool.is_async:
            # what `create` returns is awaited as well
            return self._aunwrapped(sample, parameters)  # type: ignore[return-value]
        return self.call(sample=sample, **parameters).unwrap()  # type: ignore[no-any-return]

    def call(self, *, sample: int = 0, **parameters: Any) -> Any:
        """The same as an `Outcome`: was it replayed? For an async method, await it."""
        if self._tool.is_async:
            return self._acall(sample, parameters)
        keys, store = self._keys(sample, parameters), self._tool.house.store
        known = [store.apply(Find(key)) for key in keys]
        failed: Exception | None = None
        for number, question in self._questions(parameters, known):
            asking, prepared = self._asked(sample, question)
            try:
                outcome = self._tools[number].call(prepared)
                return _instead(self._concluded(outcome, asking), number)
            except _NotKept as why:
                return _instead(why.as_outcome(prepared.ref, asking), number)
            except Exception as error:  # of an SDK: the tables say what it means
                if not _is_down(error):
                    raise
                failed = failed or error
        assert failed is not None
        raise failed

    async def _acall(self, sample: int, parameters: Mapping[str, Any]) -> Outcome[Any]:
        keys, store = self._keys(sample, parameters), self._tool.house.store
        known = [await store.aapply(Find(key)) for key in keys]
        failed: Exception | None = None
        for number, question in self._questions(parameters, known):
            asking, prepared = self._asked(sample, question)
            try:
                outcome = await self._tools[number].acall(prepared)
                return _instead(self._concluded(outcome, asking), number)
            except _NotKept as why:
                return _instead(why.as_outcome(prepared.ref, asking), number)
            except Exception as error:  # of an SDK: the tables say what it means
                if not _is_down(error):
                    raise
                failed = failed or error
        assert failed is not None
        raise failed

    def _keys(self, sample: int, parameters: Mapping[str, Any]) -> list[str]:
        """Under which keys an answer may be recorded, if there is more than one."""
        asked = self._models(parameters) if self._instead else []
        return [self._asked(sample, each)[1].ref.key for each in asked]

    def _models(self, parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The question itself, and as it is asked of other models."""
        return [parameters, *(dict(parameters) | each for each in self._instead)]

    def _questions(
        self, parameters: Mapping[str, Any], known: Sequence[Record | None]
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """What to ask, in order; 0: the question itself. An answered one gets no other model."""
        asked, now = list(enumerate(self._models(parameters))), time.time()
        for record, question in zip(known, asked, strict=False):
            if record is not None and _is_answer(record, now):
                return [question]
        return asked

    async def _aunwrapped(self, sample: int, parameters: Mapping[str, Any]) -> Any:
        return (await self._acall(sample, parameters)).unwrap()

    def _asked(self, sample: int, given: Mapping[str, Any]) -> tuple[_Asking, Prepared]:
        """What is keyed is what is sent."""
        name = self._tool.contract.name
        for flag, why in _REFUSED.items():
            if given.get(flag) is True:
                raise ContractViolation(
                    f"{name}: {flag}=True: {why}. Nothing was sent. Ask without it, or ask the"
                    " client itself."
                )
        parameters = {
            key: value if key in self._volatile else plain(value)
            for key, value in given.items()
            if is_given(value)
        }
        content = {
            "asked": {key: value for key, value in parameters.items() if key not in self._volatile},
            "at": self._at,
            "betas": betas(given.get("extra_headers")),
            "sample": sample,
            "scope": self._scope(name),
        }
        try:
            self._signature.bind(**parameters)
        except TypeError as error:
            raise ContractViolation(f"{name}: {error}. Nothing was sent.") from None
        timed = "timeout" in self._signature.parameters
        asking = _Asking(self._create, parameters, takes_timeout=timed)
        asked = {"model": str(given.get("model")), "content": content, "asking": asking}
        return asking, self._tool.prepare((), asked)

    def _scope(self, name: str) -> str:
        boundary = here.get()
        if self._shared:
            return ""
        if boundary is None or not boundary.scope:
            raise ContractViolation(
                f"{name} is not shared, and was asked outside a conversation. Nothing was sent. Ask"
                " inside `with guard.step(conversation, step):`, or with once_llm(...,"
                " shared=True)."
            )
        return boundary.scope

    def _concluded(self, outcome: Outcome[Any], asking: _Asking) -> Outcome[Any]:
        if outcome.error is not None:
            return outcome
        answer, recorded = asking.own, outcome.value
        if outcome.replayed and recorded is not None:
            if "fields" in recorded:
                answer = rebuilt(self._returns, recorded["fields"], outcome.effect)
                mark(CACHED, answer)
            else:
                answer = recorded["answer"]
        elif self._returns is None and is_model(answer):
            self._returns = type(answer)
        return msgspec.structs.replace(outcome, value=answer)


def was_cached(answer: Any) -> bool:
    """Was this answer known, so that no model was asked for it? Takes an answer of an SDK, or an
    `Outcome`.

    Plain dicts and strings carry no such mark: ask for the `Outcome`, `ask.call(...)`.
    """
    if isinstance(answer, Outcome):
        return answer.replayed
    if not is_model(answer):
        raise TypeError(
            f"a {type(answer).__name__} cannot say whether it was cached: use ask.call(...), and"
            " its `replayed`"
        )
    return is_marked(CACHED, answer)


def was_fallback(answer: Any) -> bool:
    """Did another model answer, as the first was down? Takes an SDK's answer, or its `Outcome`."""
    return is_marked(INSTEAD, answer.value if isinstance(answer, Outcome) else answer)


def _instead(outcome: Outcome[Any], number: int) -> Outcome[Any]:
    if number and is_model(outcome.value):
        mark(INSTEAD, outcome.value)
    return outcome


def _is_answer(record: Record, now: float) -> bool:
    return record.state is State.COMPLETED and record.dedup_until > now


def _is_down(error: Exception) -> bool:
    """Could another model answer? Not if the question is wrong, or not allowed."""
    return classify(error).bucket in DOWN


# ---------------------------------------------------------------- asking


class _Asking:
    """One question under way. What comes back is kept as it is; its plain form is recorded."""

    def __init__(
        self, create: Callable[..., Any], parameters: dict[str, Any], *, takes_timeout: bool
    ) -> None:
        self.create, self.parameters, self.takes_timeout = create, parameters, takes_timeout
        self.own: Any = None

    def timed(self) -> dict[str, Any]:
        """In a turn, no request outlives it."""
        if turn_here.get() is None or "timeout" in self.parameters or not self.takes_timeout:
            return self.parameters
        return self.parameters | {"timeout": current_effect().remaining_s}

    def answered(self, own: Any) -> dict[str, Any]:
        self.own = own
        made = {"answer": own}
        if is_model(own):
            made = {"fields": attempt(plain, own)}  # a model's own methods run here
            if made["fields"] is None:
                raise _NotKept(ValueError(f"a {type(own).__name__} does not tell its fields"))
        try:
            encode(made)
        except ValueError as error:
            # it is not storable, or a model's field is not; the caller has paid for it
            raise _NotKept(error) from error
        return made


class _NotKept(Exception):
    """An answer that cannot be stored: it is given, and the next caller asks the model again."""

    def __init__(self, why: Exception) -> None:
        super().__init__(f"its answer cannot be kept: {why}")
        self.effectonce_verdict = Verdict(Bucket.SCHEMA, Certainty.NOT_SENT, str(self), retry=False)

    def as_outcome(self, effect: EffectRef, asking: _Asking) -> Outcome[Any]:
        advice = "It is asked anew each time. Let it return plain data, or a model."
        LOG.warning("%s: %s. %s", effect, self, advice)
        return Outcome(status="succeeded", effect=effect, value=asking.own, recorded=False)


# they are its identity, and what people see of it
def _ask(model: str, content: Any, asking: Any) -> Any:
    with _NoAnswer():
        return asking.answered(asking.create(**asking.timed()))


async def _aask(model: str, content: Any, asking: Any) -> Any:
    with _NoAnswer():
        return asking.answered(await asking.create(**asking.timed()))


class _NoAnswer:
    """A refusal (final) or unknown error (doubt) is no answer: the question may be asked again."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        verdict = classify(error) if isinstance(error, Exception) else None
        if verdict is not None and not verdict.retryable:
            error.effectonce_verdict = verdict.but(certainty=Certainty.NOT_SENT, retry=False)  # type: ignore[union-attr]
