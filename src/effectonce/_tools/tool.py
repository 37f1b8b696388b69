"""A tool: a user's function with its contract, turned into flows.

Sync or async is known when the function is decorated. A sync tool gets a sync wrapper and an
async tool an async one; both prepare the same request and drive the same flow.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from effectonce._core.call import GuardedCall
from effectonce._core.canonical import canonical, fingerprint
from effectonce._core.classification.classify import classifier
from effectonce._core.codec import REDACTED
from effectonce._core.counters import PROBE_HAPPENED
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending, Fresh, Replay
from effectonce._core.guarantees import Capability, Kind, Terms
from effectonce._core.keys import (
    AtOrdinal,
    AtStep,
    ByContent,
    ByName,
    Explanation,
    InSequence,
    Part,
    Place,
    Stable,
    derive,
)
from effectonce._core.ops import Flow, Recorded
from effectonce._core.record import Record, Request
from effectonce._core.retry_state import Plan
from effectonce._drivers import drive
from effectonce._log import LOG
from effectonce._runtime.isolation import declared_lazy
from effectonce._runtime.performers import AsyncPerformer, Performer, Prepared, Setup, adrive_call
from effectonce._runtime.signature import ToolSignature, is_async
from effectonce._runtime.step import StepContext, here, stable
from effectonce._tools.approval_rule import ApprovalRule, is_approved
from effectonce._tools.check_declaration import DeclarationCheck
from effectonce._tools.context import PLAIN, F, GuardContext, Hosting, partial_success
from effectonce._tools.error_text import ON_A_LOOP, outside_a_step
from effectonce._tools.identity import ASKED_MAX, Identity, same_call
from effectonce._tools.precondition import precondition_of
from effectonce._tools.searching import SearchRule
from effectonce._tools.separate_dispatch import AnnouncedPerformer, AsyncAnnouncedPerformer
from effectonce._tools.spending import SpendingRule
from effectonce.effect import Effect, running
from effectonce.errors import (
    CircuitOpen,
    ContractViolation,
    GaveUp,
    InDoubt,
    InFlight,
    LeaseLost,
    StoreUnavailable,
)
from effectonce.outcome import Outcome, conclude
from effectonce.policy import Contract
from effectonce.retries.budget import RetryBudget
from effectonce.retries.circuit import Circuit
from effectonce.retries.retry import retrying
from effectonce.retries.turn import step_of, turn_here
from effectonce.stores.base import LocalStore

if TYPE_CHECKING:
    from effectonce._tools.instrument import CallEvents


# A fallback may speak for a tool that could not run or has no outcome to show; never for a
# caller's own mistake.
FALLBACK_FOR = (StoreUnavailable, CircuitOpen, InFlight, InDoubt, GaveUp, LeaseLost)


class GuardedTool:
    """Behind the wrapper: what is known of a tool. Nothing outside this file sets any of it."""

    def __init__(
        self,
        house: GuardContext,
        contract: Contract,
        function: Callable[..., Any],
        identity: Sequence[str | Stable] | None,
        breaker: Circuit | None = None,
        budget: RetryBudget | None = None,
        hosting: Hosting = PLAIN,
    ) -> None:
        self.house, self.contract, self.function, self.hosting = house, contract, function, hosting
        classify = classifier(
            contract.not_sent,
            contract.rejected,
            rules=contract.rules,
            one_request=contract.one_request,
            wall_clock=time.time,
        )
        self.retrying = retrying(contract.retry, classify, breaker, budget)
        self.is_async = is_async(function)
        declared = None if identity is None else tuple(identity)
        fields = contract.volatile, contract.redact, contract.added
        self.signature = ToolSignature(
            function,
            contract.name,
            declared,
            *fields,
            nfc=contract.nfc,
            recall=hosting.recall,
            approved=is_approved(contract),
        )
        if contract.kind is not Kind.READ and declared_lazy(self.signature.returns):
            raise TypeError(
                f"{contract.name} declares that it returns {self.signature.returns}, which happens"
                " after the tool has returned: its effect would be recorded before that. Finish it"
                " inside the tool and return the result"
            )
        self.terms = (
            msgspec.structs.replace(contract.terms, steps=True) if hosting.steps else contract.terms
        )
        self.approval = ApprovalRule.of(contract, self.signature)
        self.spending = SpendingRule.of(contract, self.signature, house.secret)
        self._searching = SearchRule.of(contract, self.signature, house.secret)
        rules = (self.approval, self.spending, self._searching)
        self._ordinary = rules == (None, None, None) and not contract.downstream.before_sending
        self._warned_of_loop = False
        self.probe_function: Callable[..., Any] | None = None
        self.fallback_function: Callable[..., Any] | None = None
        self._events: CallEvents | None = None  # while the guard has no observer
        # what a call means does not change with the time
        self._lasting = not self.signature.changing and self.approval is None
        self._plan_calls()
        self._prefix = canonical(contract.name)
        # a read has no effect, and a workflow has those of its steps
        counted = contract.kind is not Kind.READ and not hosting.steps
        self.counters = house.watch.counters_of(contract.name) if counted else None
        self._look = house.store.look if isinstance(house.store, LocalStore) else None
        self.same_call: dict[tuple[StepContext, bytes], tuple[Request, EffectRef]] = {}
        house.watch.know(self)

    def watch(self) -> None:
        """Report every call from now on."""
        from effectonce._tools.instrument import CallEvents

        self._events = CallEvents(self)

    def _plan_calls(self) -> None:
        contract, house, probed = self.contract, self.house, self.probe_function is not None
        self.check = DeclarationCheck(
            contract, self.function, self.retrying.classify, has_probe=probed
        )
        self.plan = Plan(
            lease_s=contract.lease_s,
            wait_s=contract.wait_s,
            retrying=self.retrying,
            separate_dispatch=contract.dispatches_apart,
            has_probe=probed,
            encode=self.hosting.encoder(contract.name, self.signature.returns),
            encode_partial=partial_success,
        )
        apart = contract.dispatches_apart and self.terms.downstream is not Capability.TRANSACTION
        announced = apart and (self.check.announces or contract.through)
        self.performing = self.hosting.performing or (
            AnnouncedPerformer if announced else Performer
        )
        self.aperforming = self.hosting.aperforming or (
            AsyncAnnouncedPerformer if announced else AsyncPerformer
        )
        self.setup = Setup(
            house.store,
            house.heart,
            house.secret,
            contract.lease_s,
            self.function,
            self.probe_function,
            self.plan.encode,
            house.keep,
            self.check,
            contract.one_request,
            contract.sent_key,
            precondition_of(contract, self.signature, is_async=self.is_async),
        )

    # ------------------------------------------------------------ registration

    def probe(self, function: F) -> F:
        if self.contract.downstream.capability not in (Capability.PROBE, Capability.KEY):
            raise ContractViolation(f"{self.contract.name}.probe needs downstream='probe' or 'key'")
        self.require_same_mode(function, "probe")
        self.signature.require_same_arguments(function, "probe")
        self.probe_function = function
        self._plan_calls()
        return function

    def fallback(self, function: F) -> F:
        self.require_same_mode(function, "fallback")
        self.signature.require_same_arguments(function, "fallback", None)
        self.fallback_function = function
        return function

    def rescue(self, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the fallback says to an error that it may speak for; without one, the error."""
        self.house.notice(error, self)
        if self.fallback_function is None or not isinstance(error, FALLBACK_FOR):
            raise error
        return self.fallback_function(error, *args, **kwargs)

    async def arescue(
        self, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        self.house.notice(error, self)
        if self.fallback_function is None or not isinstance(error, FALLBACK_FOR):
            raise error
        return await self.fallback_function(error, *args, **kwargs)

    def warn_of_loop(self) -> None:
        """Warn once of a sync tool on a running loop; not in a notebook, whose loop is idle."""
        if not self._warned_of_loop and not hasattr(builtins, "__IPYTHON__"):
            self._warned_of_loop = True
            LOG.warning(ON_A_LOOP, self.contract.name, self.contract.name)

    def require_same_mode(self, function: Callable[..., Any], what: str) -> None:
        if is_async(function) is not self.is_async:
            mine, its = ("async def", "def") if self.is_async else ("def", "async def")
            raise TypeError(
                f"{self.contract.name} is {mine}, its {what} is {its}: both must be def, or both"
                " async def"
            )

    # ------------------------------------------------------------ preparing a call

    def prepare(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: tuple[Part, ...] | None = None
    ) -> Prepared:
        """Check all that can be checked, then say which effect this is. Nothing is claimed yet."""
        try:
            boundary, asked, outer, signature = here.get(), None, running.get(), self.signature
            if outer is not None:
                outer.used.add("key")  # the key of this call is made of it
            if boundary is not None and boundary.lasting and key is None and self._lasting:
                asked = same_call(boundary, args, kwargs)
                known = None if asked is None else self.same_call.get(asked)
                if known is not None:
                    if outer is not None:
                        self._refuse_inside_a_transaction(outer)
                    return Prepared(known[0], known[1], args, kwargs, True)
            if self.approval is not None:  # what is sent is the very copy that is approved
                args, kwargs = signature.copied(args, kwargs)
            arguments = signature.bind(args, kwargs)
            signature.validate(arguments)
            if boundary is None or outer is not None or self.contract.permission is not None:
                boundary = self._boundary(boundary, outer, key)
            request = self._request(arguments, boundary, key)
            ref = EffectRef(
                self.contract.name, request.key, request.tenant, request.scope, request.step
            )
            if asked is None:
                return self._prepared(request, ref, args, kwargs)
            if len(self.same_call) >= ASKED_MAX:
                self.same_call.clear()
            self.same_call[asked] = (request, ref)
            return Prepared(request, ref, args, kwargs)  # of plain data, which cannot be changed
        except ContractViolation as error:
            if self._events is not None:
                self._events.of_refusal(error)
            raise

    def _prepared(
        self, request: Request, ref: EffectRef, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Prepared:
        """Arguments as they are now: if the caller changes its own later, this call keeps these."""
        if self.signature.unchanging(args, kwargs):
            return Prepared(request, ref, args, kwargs)
        copied = self.signature.copied
        return Prepared(request, ref, *copied(args, kwargs), copied=copied)

    def prepare_step(
        self, place: EffectRef, terms: Terms, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Prepared:
        """The same for a step at a known place: arguments change its fingerprint, not its key."""
        if self.approval is not None:
            args, kwargs = self.signature.copied(args, kwargs)
        arguments = self.signature.bind(args, kwargs)
        self.signature.validate(arguments)
        self._refuse_inside_a_transaction(running.get())
        _, matched, stored = self.signature.forms(arguments)
        if self.approval is not None:
            terms, matched = self.approval.asked(terms, matched, arguments)
        asked = fingerprint(self._prefix + matched, self.house.secret)
        request = Request(place.key, asked, terms, place.tenant, place.scope, place.step, stored)
        return self._prepared(request, place, args, kwargs)

    def _boundary(
        self, boundary: StepContext | None, outer: Effect | None, key: tuple[Part, ...] | None
    ) -> StepContext:
        """Where this call happens, if it may: *outer* is the effect that it is made in."""
        if boundary is None:
            if key is None and self.contract.dedup is None and not self.terms.steps:
                raise outside_a_step(self.contract.name)
            boundary = StepContext(tenant=self.house.tenant)
        permission = self.contract.permission
        if permission is not None and permission not in boundary.permissions:
            raise ContractViolation(
                f"{self.contract.name} needs the permission {permission!r}, which this step does"
                " not have. Nothing was sent."
            )
        self._refuse_inside_a_transaction(outer)
        return boundary

    def _refuse_inside_a_transaction(self, outer: Effect | None) -> None:
        if outer is not None and outer.lent is not None:
            raise ContractViolation(
                f"{self.contract.name} was called inside the transaction of {outer.ref.tool}, where"
                " it could not be recorded on its own. Nothing was sent. Call it before or after."
            )

    def _request(
        self, arguments: dict[str, Any], boundary: StepContext, key: tuple[Part, ...] | None
    ) -> Request:
        secret = self.house.secret
        intent, matched, stored = self.signature.forms(arguments)
        identity = Identity(boundary.tenant, boundary.scope, self.contract.name, intent, secret)
        place, terms = self._place(boundary, intent, key), self.check.terms(self.terms)
        if self.approval is not None:
            terms, matched = self.approval.asked(terms, matched, arguments)
        asked = fingerprint(self._prefix + matched, secret)
        return identity.at(place, asked, terms, stored, latched=boundary.latch)

    def _place(self, boundary: StepContext, intent: bytes, key: tuple[Part, ...] | None) -> Place:
        if key is not None:
            return ByName(stable(key, f"the key of {self.contract.name}"))
        if self.contract.dedup is not None or (self.terms.steps and boundary.scope == ""):
            return ByContent()
        if boundary.stream is not None:
            return InSequence(*boundary.stream)
        if boundary.step is not None:
            return AtStep(boundary.step)
        return AtOrdinal(
            boundary.ordinal(
                self.contract.name, lambda shown: self.signature.is_intent(shown, intent)
            )
        )

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Why this call has the key it has."""
        arguments = self.signature.bind(args, kwargs)
        boundary = self._boundary(here.get(), running.get(), None)
        request = self._request(arguments, boundary, None)
        intent, _, _ = self.signature.forms(arguments)
        hashed, matched = self.signature.identity, self.signature.matched
        arguments |= {name: self._redacted(name, arguments[name]) for name in self.signature.redact}
        return Explanation(
            key=request.key,
            tenant=request.tenant,
            scope=request.scope,
            place=self._place(boundary, intent, None),
            tool=self.contract.name,
            fingerprint=request.fingerprint,
            hashed={name: arguments[name] for name in hashed},
            matched={name: arguments[name] for name in matched if name not in hashed},
            stripped={name: arguments[name] for name in self.signature.volatile},
        )

    def _redacted(self, name: str, value: Any) -> str:
        """Stands for a hidden value; if it counts, with a few characters to tell two apart."""
        if name not in self.signature.matched:
            return REDACTED
        return f"[redacted {derive('redacted', canonical(value), secret=self.house.secret)[:8]}]"

    # ------------------------------------------------------------ running a call

    def call(self, prepared: Prepared) -> Outcome[Any]:
        return self.concluded(self.run(prepared), prepared)

    async def acall(self, prepared: Prepared) -> Outcome[Any]:
        return self.concluded(await self.arun(prepared), prepared)

    def concluded(self, ending: Ending, prepared: Prepared) -> Outcome[Any]:
        """How a call ended. A doubt says where it can be looked up, and is noticed."""
        try:
            outcome = conclude(ending, prepared.ref, self.signature.returns)
        except InDoubt as error:
            self.house.notice(error, self)
            raise
        self.house.notice(outcome.error, self)
        return outcome

    def run(self, prepared: Prepared) -> Ending:
        request, cache, counters = prepared.request, self.house.cache, self.counters
        known = (
            self.known(prepared)
            if cache.size or (prepared.again and self._look is not None)
            else None
        )
        if known is not None:
            if counters is not None:
                counters.replays.append((request.tenant, known.state))
                if counters.all.idle:
                    counters.all.wake()
            return Replay(known, coalesced=False)
        ending = drive(self.flow(prepared), self.performing(self.setup, prepared))
        if cache.size > 0:
            cache.remember(request, ending, self.terms.window_s)
        if counters is not None:
            counters.ended(request.tenant, ending)
        return ending

    async def arun(self, prepared: Prepared) -> Ending:
        request, cache, counters = prepared.request, self.house.cache, self.counters
        known = (
            self.known(prepared)
            if cache.size or (prepared.again and self._look is not None)
            else None
        )
        if known is not None:
            if counters is not None:
                counters.replays.append((request.tenant, known.state))
                if counters.all.idle:
                    counters.all.wake()
            return Replay(known, coalesced=False)
        ending = await adrive_call(self.flow(prepared), self.aperforming(self.setup, prepared))
        if cache.size > 0:
            cache.remember(request, ending, self.terms.window_s)
        if counters is not None:
            counters.ended(request.tenant, ending)
        return ending

    def flow(self, prepared: Prepared, calling: type[GuardedCall] | None = None) -> Flow[Ending]:
        """The call as a flow for a performer; *calling*, if not in this tool's own way."""
        calling, env, inside = calling or self.hosting.calling, self.house.env, turn_here.get()
        turn, step = (None, "") if inside is None else (inside.turn, step_of(prepared.ref))
        again = prepared.again
        call = calling(prepared.request, self.plan, env, again=again, turn=turn, step=step)
        if self._ordinary:
            return self.recorded(call.flow(), prepared)
        if self.spending is not None:
            self.spending.applied_to(call, prepared)
        if self.approval is not None:
            self.approval.applied_to(call)
        if self.contract.downstream.before_sending:
            call.conditional = call.probes_first = True
        flow = call.flow()
        if self._searching is not None:
            flow = self._searching.indexed(flow, prepared)
        return self.recorded(flow, prepared)

    def recorded(self, flow: Flow[Ending], prepared: Prepared) -> Flow[Ending]:
        """The flow of a call with its events, if there is an observer."""
        return flow if self._events is None else self._events.of_call(flow, prepared)

    def known(self, prepared: Prepared) -> Recorded | None:
        """The outcome, if a look is enough: in this process, or a store without a round trip."""
        request, cache = prepared.request, self.house.cache
        known = cache.get(request.key, request.fingerprint) if cache.size else None
        if known is None and prepared.again and self._look is not None:
            known = self._look(request)
            if known is not None and cache.size:
                cache.put(request.key, request.fingerprint, known)
        if known is not None and self._events is not None:
            self._events.of_replay(known, prepared)
        return known

    def reconcile(self, record: Record) -> Outcome[Any]:
        """Ask the probe about a record in doubt."""
        prepared = self.recalled(record)
        flow = self.asking(record, prepared)
        return self._settled(drive(flow, Performer(self.setup, prepared)), prepared, record)

    async def areconcile(self, record: Record) -> Outcome[Any]:
        prepared = self.recalled(record)
        flow = self.asking(record, prepared)
        ending = await adrive_call(flow, AsyncPerformer(self.setup, prepared))
        return self._settled(ending, prepared, record)

    def asking(self, record: Record, prepared: Prepared) -> Flow[Ending]:
        """To ask the probe, and do nothing else."""
        flow = GuardedCall(prepared.request, self.plan, self.house.env).reconcile()
        return flow if self._events is None else self._events.of_probe(flow, record, prepared)

    def _settled(self, ending: Ending, prepared: Prepared, before: Record) -> Outcome[Any]:
        if self.counters is not None and isinstance(ending, Fresh):
            age_s = time.time() - before.decided_at
            self.counters.settled(before.request.tenant, PROBE_HAPPENED, age_s)
        self.house.cache.remember(prepared.request, ending, self.terms.window_s)
        return self.house.looked_up(conclude(ending, prepared.ref, self.signature.returns))

    def recalled(self, record: Record) -> Prepared:
        """The call that a record is about, from what it stores."""
        request = record.request
        args, kwargs = self.signature.call_with(self.signature.decode(request.arguments))
        ref = EffectRef(
            self.contract.name, request.key, request.tenant, request.scope, request.step
        )
        return Prepared(request, ref, args, kwargs)
