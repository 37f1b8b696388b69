"""Tools that a framework runs, as effects of the engine: what the agent SDKs share.

A framework tells us which tool it is about to run, with which arguments, in which conversation,
and what the model was shown before. That is all a key needs:

    scope    the conversation, as the framework names it; never an id of a run, a task or a call
    intent   the tool and its identity arguments, with the defaults of its schema filled in
    place    the ordinal: how many successful results for this intent the model has been shown

A tool that is guarded already keeps its contract: its call is only put in its place. Any other
tool has the contract that is declared here by its name, or the safe one: a write whose outcome
is unknown unless it answers.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from effectonce._core.canonical import NotCanonical, canonical, fingerprint
from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.codec import encode_or_excuse
from effectonce._core.effect_ref import EffectRef
from effectonce._core.guarantees import Kind, Terms
from effectonce._core.keys import AtOrdinal, Stable
from effectonce._core.ops import Find, Flow, Unavailable
from effectonce._core.record import Record
from effectonce._core.rules import outcome_pending
from effectonce._drivers import drive
from effectonce._log import LOG
from effectonce._runtime.performers import Prepared, adrive_call
from effectonce._runtime.plain_performers import AsyncPlain, Plain
from effectonce._runtime.step import (
    Delivered,
    Step,
    StepContext,
    at_ordinal,
    flagged,
    here,
    named,
)
from effectonce._tools.identity import Identity
from effectonce._tools.tool import GuardedTool
from effectonce.approvals._ask_only import ask_only
from effectonce.effect import is_running
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.guard import Guard
from effectonce.integrations._contracts import (
    SAFE,
    Declared,
    ToolOptions,
    approval_rule,
    declare,
    refuse_unknown,
    with_defaults,
)
from effectonce.integrations._redrive import add_probe, hosting_of
from effectonce.integrations._single_run import SingleRun
from effectonce.outcome import Outcome
from effectonce.policy import misspelt

Written = Callable[[Any], Any]
KeyAt = Callable[[int], str]  # by the ordinal
Converted = tuple[tuple[Any, ...], dict[str, Any]]

# a definite error of a tool's own, as the model reads it where the framework has no good word
FAILED = {
    "code": "TOOL_FAILED",
    "retriable": False,
    "message": "The tool failed, and nothing was done.",
    "corrective_action": "Correct the call, or do without it.",
}


class AgentCall(Struct, frozen=True, kw_only=True):
    """A framework's call. *schema*: the JSON schema that the model sees, for its defaults."""

    tool: str
    arguments: Mapping[str, Any]
    scope: str | Stable  # looked at, unless it is one that the framework keeps
    tenant: str | Stable | None = None
    asked_by: str = ""  # for whom, if it needs an approval
    shown: Iterable[Delivered] = ()
    schema: Mapping[str, Any] = {}  # a struct makes a new one each time


class ControlFlow(Exception):
    """What the framework raises to steer: the tool is run again later, so nothing is recorded."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
        self.effectonce_verdict = Verdict(
            Bucket.SCHEMA, Certainty.NOT_SENT, "the framework goes elsewhere first", retry=False
        )


class ReportedError(Exception):
    """The framework reports an error of the tool as a *result*. Did the tool run?"""

    def __init__(self, result: Any, why: str, *, ran: bool) -> None:
        super().__init__(why)
        self.result = result
        self.effectonce_verdict = Verdict(Bucket.SCHEMA, Certainty.NOT_SENT, why, retry=False)
        if ran:
            self.effectonce_verdict = Verdict(
                Bucket.SERVER_ERROR, Certainty.AMBIGUOUS, why, retry=False
            )


class ToolRun:
    """One run of the tool by its framework. What it returns is kept as it is; what is recorded
    is its *plain* form.

    *one* is that run where others may stand between: if it failed, that is judged, and not what
    they made of it.
    """

    def __init__(
        self,
        proceed: Callable[[], Any],
        plain: Written,
        passing: tuple[type[BaseException], ...] = (),
        one: SingleRun | None = None,
    ) -> None:
        self._proceed, self._plain, self._passing = proceed, plain, passing
        self.one = SingleRun() if one is None else one
        self.own: Any = None
        self.arguments: Mapping[str, Any] = {}

    def run(self) -> Any:
        try:
            own = self.one.ask(self._proceed)
        except self._passing as error:
            raise ControlFlow(error) from error
        return self._written(own)

    async def arun(self) -> Any:
        try:
            own = await self.one.aask(self._proceed)
        except self._passing as error:
            raise ControlFlow(error) from error
        return self._written(own)

    def _written(self, own: Any) -> Any:
        """The result, unless it says that it is none. What cannot be written was still done."""
        try:
            plain = self._plain(own)
        except ReportedError:
            raise
        except Exception:  # noqa: BLE001
            # whatever a serialiser raises: the engine says on the record why there is no result
            plain = own
        self.own = own
        return plain


def _run(leg: ToolRun) -> Any:
    return leg.run()


async def _arun(leg: ToolRun) -> Any:
    return await leg.arun()


class ToolAnswer(Struct, frozen=True):
    """How a call ended: with the framework's *own* result, or a plain one recorded before."""

    own: Any
    recorded: Any
    # None: it failed for certain, and the framework has words of its own for that
    outcome: Outcome[Any] | None

    @property
    def fresh(self) -> bool:
        return self.outcome is None or (not self.outcome.replayed and self.own is not None)


class AgentTools:
    """The tools of an agent, each with its contract."""

    def __init__(
        self,
        guard: Guard,
        contracts: Mapping[str, ToolOptions] | None,
        default: ToolOptions | None,
        recorded: Written = lambda result: result,
    ) -> None:
        """*recorded*: how the framework's results are recorded, for one that came without it."""
        self.guard, self._recorded = guard, recorded
        self._house = guard._house  # noqa: SLF001  # it stands above the guard
        self._options = dict(contracts or {})
        self._default = SAFE if default is None else default
        self._contracts: dict[str, Declared] = {}
        self._tools: dict[tuple[str, bool], GuardedTool] = {}
        for name in self._options:
            asynchronous = self.declared(name).outside.asynchronous  # a mistake in it is raised now
            if asynchronous is not None:
                self._tool(name, asynchronous=asynchronous)  # there may be letters of it already

    def declared(self, name: str) -> Declared:
        if name not in self._contracts:
            options = self._options.get(name, self._default)
            near = difflib.get_close_matches(name, self._options, 1, 0.8)
            if near and name not in self._options:
                LOG.warning(
                    "the tool %s has no contract, so the default holds for it; is the one of %s"
                    " meant for it?",
                    name,
                    near[0],
                )
            refuse_unknown(name, options)
            self._contracts[name] = declare(name, **options)
        return self._contracts[name]

    def passes(self, name: str) -> bool:
        """A read changes nothing: the framework runs it as it likes."""
        return self.declared(name).contract.kind is Kind.READ

    def mine(self, function: Any) -> GuardedTool | None:
        """The tool of this guard that *function* is, if it is one."""
        guarded = getattr(function, "__effectonce_tool__", None)
        mine = isinstance(guarded, GuardedTool) and guarded.house is self._house
        return guarded if mine else None

    def asks_a_person(self, guarded: GuardedTool | None, name: str) -> bool:
        contract = self.declared(name).contract if guarded is None else guarded.contract
        return contract.approval is not None

    def may_need_approval(self, guarded: GuardedTool | None, call: AgentCall) -> bool:
        """As far as the model's arguments tell it, before the framework has converted them."""
        arguments = with_defaults(call.schema, call.arguments)
        declared = self.declared(call.tool)
        contract, rule = declared.contract, declared.rule
        if guarded is not None:
            contract, rule = guarded.contract, approval_rule(call.tool, guarded.contract.approval)
        if rule is None:
            return contract.approval is not None
        try:
            return rule.needed(arguments)
        except ContractViolation:  # the call itself says what is wrong
            return True

    def within(self, guarded: GuardedTool, call: AgentCall) -> Step:
        """The place of a guarded tool's call. A message's calls run at once: there is no latch."""
        step, flow = self._counted(guarded, call)
        return at_ordinal(step, guarded.contract.name, drive(flow, Plain(self.guard.store)))

    async def awithin(self, guarded: GuardedTool, call: AgentCall) -> Step:
        step, flow = self._counted(guarded, call)
        ordinal = await adrive_call(flow, AsyncPlain(self.guard.store))
        return at_ordinal(step, guarded.contract.name, ordinal)

    def _counted(self, guarded: GuardedTool, call: AgentCall) -> tuple[Step, Flow[int]]:
        signature, name, secret = guarded.signature, guarded.contract.name, self._house.secret
        uncounted = set(signature.names) - set(signature.identity)

        def intent(arguments: Mapping[str, Any]) -> bytes:
            """As the model wrote it: what the framework changes or adds is not in the history."""
            known = with_defaults(call.schema, arguments)
            counted = {name: value for name, value in known.items() if name not in uncounted}
            return canonical(counted)

        try:
            asked = intent(call.arguments)
            ordinal = sum(intent(d.arguments) == asked for d in call.shown if d.tool == call.tool)
        except NotCanonical as error:
            raise ContractViolation(f"{call.tool}: {error}. Nothing was sent.") from None
        step = self.guard.step(
            call.scope, tenant=Stable(self._whose(call)), latch=False, asked_by=_asker(call)
        )
        at, known = step.boundary, with_defaults(call.schema, call.arguments)
        # the framework will add to it, so its key is not known here
        if not set(signature.identity) <= known.keys():
            return step, _place(ordinal, None)
        whole = canonical({field: known[field] for field in signature.identity})
        identity = Identity(at.tenant, at.scope, name, whole, secret)
        return step, _place(ordinal, lambda place: identity.key(AtOrdinal(place)))

    def run(self, call: AgentCall, leg: ToolRun) -> ToolAnswer:
        """Run it once, or answer with what is known. Raises our errors, the tool's own if it
        failed for certain, and `ReportedError`.
        """
        tool = self._tool(call.tool, asynchronous=False)
        try:
            asked = self._asked(tool, call, leg)
            effect = asked.at(drive(asked.place(), Plain(self.guard.store)))
            if is_running(effect.request.key):  # a part of its own effect, which judges it
                plain = leg.run()
                return ToolAnswer(leg.own, plain, None)
            with _asking(effect, call):
                return _answer(tool.call(effect), leg)
        except ControlFlow as passed:
            raise passed.error from None
        except Exception as error:  # noqa: BLE001
            # whatever the call ended with: raised again, unless the framework has words for it
            return _instead(error, leg)

    async def arun(self, call: AgentCall, leg: ToolRun) -> ToolAnswer:
        tool = self._tool(call.tool, asynchronous=True)
        try:
            asked = self._asked(tool, call, leg)
            effect = asked.at(await adrive_call(asked.place(), AsyncPlain(self.guard.store)))
            if is_running(effect.request.key):
                plain = await leg.arun()
                return ToolAnswer(leg.own, plain, None)
            with _asking(effect, call):
                return _answer(await tool.acall(effect), leg)
        except ControlFlow as passed:
            raise passed.error from None
        except Exception as error:  # noqa: BLE001  # as above
            return _instead(error, leg)

    async def aask(
        self, guarded: GuardedTool | None, call: AgentCall, converted: Callable[[], Converted]
    ) -> bool:
        """Write down that it waits for a person, and raise that. If it does not, nothing happens:
        nothing is sent here. Returns whether the store has decided about it. *converted*: the
        arguments of a guarded tool.
        """
        if guarded is not None:
            async with await self.awithin(guarded, call):
                return await self._aask(guarded, guarded.prepare(*converted()))
        tool, leg = self._tool(call.tool, asynchronous=True), ToolRun(dict, self._recorded)
        asked = self._asked(tool, call, leg)
        effect = asked.at(await adrive_call(asked.place(), AsyncPlain(self.guard.store)))
        with _asking(effect, call):
            return await self._aask(tool, effect)

    async def _aask(self, tool: GuardedTool, effect: Prepared) -> bool:
        asked = await adrive_call(ask_only(tool, effect), AsyncPlain(self.guard.store))
        if not isinstance(asked, bool):
            tool.concluded(asked, effect)  # which raises it
        return asked is True

    def _tool(self, name: str, *, asynchronous: bool) -> GuardedTool:
        known = self._tools.get((name, asynchronous))
        if known is not None:
            return known
        function, other = (_arun, _run) if asynchronous else (_run, _arun)
        declared = self.declared(name)

        def leg(act: Callable[[], Any]) -> ToolRun:
            return ToolRun(act, self._recorded)

        hosting = hosting_of(name, declared.outside, leg, asynchronous=asynchronous)
        # the door for rooms like this one
        made = self.guard._host(declared.contract, function, other=other, hosting=hosting)  # noqa: SLF001
        add_probe(made, declared.outside, self._recorded)
        return self._tools.setdefault((name, asynchronous), made)

    def _whose(self, call: AgentCall) -> str:
        return self._house.tenant if call.tenant is None else flagged(call.tenant, "tenant")

    def _asked(self, tool: GuardedTool, call: AgentCall, leg: ToolRun) -> _Asked:
        declared, name, secret = self.declared(call.tool), tool.contract.name, self._house.secret
        tenant, scope = self._whose(call), named(call.scope, "scope")
        arguments = with_defaults(call.schema, call.arguments)
        fields = (*(declared.identity or ()), *declared.volatile)
        # A default is for many tools, not all of which have all of its fields.
        wrong = misspelt(call.tool, fields, call.schema) if call.tool in self._options else ""
        if wrong:
            raise ContractViolation(f"{wrong}. Nothing was sent.")
        try:
            intent, matched = declared.intent(arguments), declared.requested(arguments)
            shown = (d.arguments for d in call.shown if d.tool == call.tool)
            known = (declared.intent(with_defaults(call.schema, each)) for each in shown)
            ordinal = sum(each == intent for each in known)
        except NotCanonical as error:
            raise ContractViolation(f"{call.tool}: {error}. Nothing was sent.") from None
        leg.arguments = arguments
        wanted = fingerprint(canonical(name) + matched, secret)
        identity = Identity(tenant, scope, name, intent, secret)
        terms = declared.terms(tool.terms, arguments)
        return _Asked(identity, wanted, terms, encode_or_excuse(arguments), leg, ordinal)


class _Asked(Struct, frozen=True):
    """A call whose place is known as far as the history tells it."""

    identity: Identity
    fingerprint: str
    terms: Terms
    arguments: bytes
    leg: ToolRun
    ordinal: int

    def place(self) -> Flow[int]:
        return _place(self.ordinal, lambda ordinal: self.identity.key(AtOrdinal(ordinal)))

    def at(self, ordinal: int) -> Prepared:
        request = self.identity.at(AtOrdinal(ordinal), self.fingerprint, self.terms, self.arguments)
        ref = EffectRef(request.terms.tool, request.key, request.tenant, request.scope)
        return Prepared(request, ref, (self.leg,), {})


def _asker(call: AgentCall) -> str:
    outer = here.get()
    return call.asked_by or ("" if outer is None else outer.asked_by)


@contextlib.contextmanager
def _asking(effect: Prepared, call: AgentCall) -> Iterator[None]:
    """Where it is known who asks, the place is otherwise the one that it has without that."""
    outer, ref = here.get(), effect.ref
    if not (call.asked_by and effect.request.terms.approval):
        yield
        return
    bare = StepContext(tenant=ref.tenant, scope=ref.tool)
    place = structs.replace(bare if outer is None else outer, asked_by=_asker(call))
    token = here.set(place)
    try:
        yield
    finally:
        here.reset(token)


def _place(ordinal: int, key: KeyAt | None) -> Flow[int]:
    """While its intent's last effect has no outcome, a call is for it: no result was ever shown."""
    if key is None:
        return ordinal
    for earlier in range(ordinal - 1, -1, -1):
        found: Record | Unavailable | None = yield from Find(key(earlier))
        if isinstance(found, Unavailable):
            raise found.error
        if found is not None:
            return earlier if outcome_pending(found) else ordinal
    return ordinal


class CallAgain(str):
    """A recorded result as the model saw it, where a framework makes the text of others itself."""

    __slots__ = ()


class Shown:
    """What was last sent to the model, by run: an object that lives as long as the run."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[weakref.ref[Any], list[Any]]] = {}

    def note(self, run: Any, items: Iterable[Any]) -> None:
        name = id(run)
        self._items[name] = (weakref.ref(run, lambda _: self._items.pop(name, None)), list(items))

    def to(self, run: Any) -> list[Any] | None:
        known = self._items.get(id(run))
        return None if known is None else known[1]


def error_text(error: EffectOnceError) -> str:
    return json.dumps(error.as_model_error())


def text_of(result: Any) -> str:
    """A result from outside the framework (a probe, a person), as text for the model."""
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=str)


def is_error_text(text: Any) -> bool:
    """Is this an error of ours that the model got? A layer may have put words around it."""
    began = text.find('{"code": "') if isinstance(text, str) else -1
    if began < 0:
        return False
    try:
        data, _ = json.JSONDecoder().raw_decode(text, began)
    except ValueError:
        return False
    return is_error(data)


def is_error(data: Any) -> bool:
    """The same, where a framework hands on data."""
    return isinstance(data, Mapping) and {"code", "retriable", "corrective_action"} <= data.keys()


def _answer(outcome: Outcome[Any], leg: ToolRun) -> ToolAnswer:
    if outcome.error is not None:
        raise outcome.error
    return ToolAnswer(leg.own, outcome.value, outcome)


def _instead(error: Exception, leg: ToolRun) -> ToolAnswer:
    """It is definite: those between may have words of their own for it."""
    instead = leg.one.instead_of(error)
    if instead is None:
        raise error
    return ToolAnswer(instead, None, None)
