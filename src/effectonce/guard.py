"""The Guard: one line on a tool, and its effect lands once."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from effectonce._core.classification.classify import Rules, as_rules
from effectonce._core.guarantees import TOMBSTONE_S, Capability, CapabilityName, Kind, KindName
from effectonce._core.keys import Part, Secret, Stable
from effectonce._core.retry_state import Env
from effectonce._environment import report
from effectonce._log import LOG
from effectonce._random import rng
from effectonce._runtime.counters import Counters, days_of
from effectonce._runtime.heartbeat import Heartbeat
from effectonce._runtime.owner_token import new_token
from effectonce._runtime.replay_cache import ReplayCache
from effectonce._runtime.step import (
    Delivered,
    Step,
    StepContext,
    deliveries,
    named,
    place,
    stable_part,
)
from effectonce._runtime.unprotected_sends import only_through
from effectonce._tools.client_retries import amplified
from effectonce._tools.context import PLAIN, GuardContext, Hosting, Tool, not_kept
from effectonce._tools.direct_call import called
from effectonce._tools.observers import Observer, Observers
from effectonce._tools.provider_terms import terms_of
from effectonce._tools.registry import register, tool_of
from effectonce._tools.tool import GuardedTool
from effectonce._tools.wrapper import wrap
from effectonce._validate import (
    errors,
    fields,
    flags,
    of_type,
    parenthesised,
    seconds,
    several,
    whole,
)
from effectonce.errors import ContractViolation, Rejected
from effectonce.health import Health, examine
from effectonce.outcome import Outcome
from effectonce.policy import Budget, Contract, Downstream, Retry, TimeWindow, kind_of, window_of
from effectonce.policy.permissions import Allowance, Approval
from effectonce.recovery.background import BackgroundReconciler
from effectonce.recovery.in_doubt import Settlement
from effectonce.recovery.pace import ReconcilePace, pace_of
from effectonce.recovery.pausing import pauses_of
from effectonce.retries.budget import RetryBudget
from effectonce.retries.circuit import Circuit
from effectonce.retries.turn import TurnBudget
from effectonce.stores import Capabilities, Store, as_store
from effectonce.stores._urls import where_is
from effectonce.stores.base import Finding
from effectonce.stores.encrypted import sealed
from effectonce.stores.keyring import Keyring

if TYPE_CHECKING:
    from effectonce.dead_letters import DeadLetters
    from effectonce.workflows import WorkflowOptions, Workflows
    from effectonce.workflows._run import Run

from effectonce.recovery.operations import GuardOperations, spool_of

P = ParamSpec("P")
_NOTHING: frozenset[str] = frozenset()
# exactly these: True is 1 to a dict, and not to a key
_REMEMBERED = frozenset({str, int, type(None)})
R = TypeVar("R")


class Guard(GuardOperations):
    """Protects tools: whatever retries, the effect lands once, or you learn that nobody can know.

    *store* is a URL (`sqlite:///effects.db`, `postgresql://…`, `redis://…`, `memory://`) or a
    store of your own. *tenant* is whose effects these are, unless a step says otherwise.
    *secret* makes keys and fingerprints unguessable. *keyring* seals arguments and results in
    the store. *cache* is how many known outcomes this process remembers. *spool* is a folder for
    outcomes that could not be stored in time; a store given by its URL has one among the user's
    state. *observers* are called with every event, see `effectonce.observe`. *reconcile*: the
    probes of tools are asked in the background about what is in doubt, at this `ReconcilePace`;
    False: only when you ask for it. *counters*: for how many days the store keeps what was
    counted for `guard.report()`; 0: nothing is counted. 90, unless the environment says otherwise.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        tenant: str | Stable = "main",
        secret: bytes = b"",
        keyring: Keyring | None = None,
        cache: int = 4096,
        spool: str | os.PathLike[str] | None = None,
        observers: Iterable[Observer] = (),
        reconcile: bool | ReconcilePace = True,
        counters: int | None = None,
    ) -> None:
        whole(cache=cache)
        report(os.environ)
        self.keyring = keyring
        self.store: Store = sealed(as_store(store), keyring, secret)
        self.spool = spool_of(
            store if isinstance(store, str) else "memory:", self.store, spool, keyring, secret
        )
        pauses = pauses_of(self.store)
        env = Env(now=time.monotonic, new_token=new_token, rng=rng, pauses=pauses)
        self._tools: dict[str, GuardedTool] = {}
        days = days_of(counters, os.environ)
        watch = Observers(Counters(self.store, days) if days else None)
        self._desk = Settlement(self.store, self._tools, watch)
        whose, pace = named(tenant, "tenant"), pace_of(reconcile, os.environ)
        self._background = BackgroundReconciler(self._desk, pace, whose)
        self._house = GuardContext(
            store=self.store,
            tenant=whose,
            secret=Secret(secret),
            env=env,
            heart=Heartbeat(self.store),
            cache=ReplayCache(cache, time.monotonic),
            keep=not_kept if self.spool is None else self.spool.keep,
            watch=watch,
            where=where_is(store, self.store),
            doubted=self._background.doubted,
        )
        self._amplified: dict[str, Finding | None] = {}  # of tools whose clients retry, too
        shared = isinstance(store, str) and not store.startswith("memory:")
        # Guards that have all of it in common share keys.
        self._keys = (store if shared else id(store), self._house.tenant, self._house.secret)
        for observer in observers:
            self.observe(observer)

    # ------------------------------------------------------------ tools

    @parenthesised
    def tool(
        self,
        *,
        kind: KindName | Kind,
        downstream: CapabilityName | Downstream | None = None,
        provider: str | None = None,
        identity: Sequence[str | Stable] | None = None,
        volatile: Sequence[str] = (),
        redact: Sequence[str] = (),
        added: Mapping[str, Any] | None = None,
        nfc: bool = False,
        name: str | None = None,
        version: str = "1",
        window: float | timedelta | None = None,
        tombstone: float | timedelta = TOMBSTONE_S,
        lease_s: float = 30.0,
        wait_s: float = 30.0,
        retry: Retry | None = None,
        permission: str | None = None,
        approval: Approval | Callable[..., bool] | bool = False,
        allowance: Allowance | Sequence[Allowance] = (),
        spends: str | int | Callable[..., int] = 1,
        searchable: Sequence[str] = (),
        separate_dispatch: bool | None = None,
        not_sent: Sequence[type[BaseException]] = (),
        rejected: Sequence[type[BaseException]] = (),
        rules: Rules = (),
        one_request: bool = False,
        through: Any = (),
        dedup: TimeWindow | None = None,
        accept_store_loss: bool = False,
        breaker: Circuit | None = None,
        budget: RetryBudget | None = None,
        clients: Sequence[Any] = (),
    ) -> Callable[[Callable[P, R]], Tool[P, R]]:
        """Guard a function: it is called as before, and its effect lands once.

        *kind* says what running twice would do, *downstream* what help there is, or *provider*
        whose API it is, if effectonce knows that one: `effectonce provider list`. *identity*
        fields are the key, *volatile* ones are ignored, all others must match. *not_sent* and
        *rejected* are exception types that prove that nothing happened. *one_request*: it makes
        one request, and nothing below it retries. *through*: it sends only through these
        protected clients, or `"protected"`. *breaker* and *budget* are those of the dependency
        that it calls. *approval*: a person has to let it be sent. *spends* says how
        much of an *allowance* it takes. *searchable*: arguments that find its effects, with
        `guard.search`. All are explained in docs/reference/contracts.md.
        """
        theirs = terms_of(provider, downstream)

        def decorate(function: Callable[P, R]) -> Tool[P, R]:
            contract = Contract(
                name=name or str(getattr(function, "__name__", "")),
                kind=kind_of(kind),
                downstream=theirs.downstream,
                version=version,
                identity=fields(identity),
                volatile=several("volatile", volatile),
                redact=several("redact", redact),
                added=added or {},
                nfc=nfc,
                window_s=window_of(kind_of(kind), window),
                tombstone_s=seconds(tombstone, "tombstone"),
                lease_s=lease_s,
                wait_s=wait_s,
                retry=Retry() if retry is None else retry,
                permission=permission,
                approval=Approval.of(approval),
                allowances=Allowance.several(allowance),
                spends=spends,
                searchable=several("searchable", searchable),
                separate_dispatch=separate_dispatch,
                not_sent=errors("not_sent", not_sent),
                rejected=(Rejected, *errors("rejected", rejected)),
                rules=(*as_rules(rules), *theirs.rules),
                one_request=one_request,
                through=only_through(through),
                dedup=dedup,
                accept_store_loss=accept_store_loss,
                provider=theirs.provider,
                sent_key=theirs.sent_key,
            )
            self._check_store(contract)
            tool = GuardedTool(self._house, contract, function, identity, breaker, budget)
            return cast("Tool[P, R]", wrap(self._register(tool, clients), self._host))

        return decorate

    @cached_property
    def workflows(self) -> Workflows:
        """The runs of this guard's workflows: look at them, resume them, cancel them."""
        from effectonce.workflows import Workflows

        return Workflows(self.store, self._house, self._register)

    @overload
    def workflow(self, function: Callable[Concatenate[Run, P], R], /) -> Tool[P, R]: ...

    @overload
    def workflow(
        self, **options: Unpack[WorkflowOptions]
    ) -> Callable[[Callable[Concatenate[Run, P], R]], Tool[P, R]]: ...

    # mypy does not see that it does
    def workflow(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Make a function durable: its first parameter is a `Run`, which it asks for steps.
        Called again, it goes on where it stopped.

        *identity* are the arguments that name a run; the others must not change while it is
        open. See `WorkflowOptions`.
        """
        if function is None:
            return lambda decorated: self.workflows.define(decorated, **options)
        return self.workflows.define(function, **options)

    def _host(
        self,
        contract: Contract,
        function: Callable[..., Any],
        *,
        identity: Sequence[str] = (),
        breaker: Circuit | None = None,
        budget: RetryBudget | None = None,
        other: Callable[..., Any] | None = None,
        hosting: Hosting = PLAIN,
        listed: bool = True,
    ) -> GuardedTool:
        """The door for rooms above that make requests of their own, such as HTTP: what
        *function* does is an effect like any other.

        *other* is the same for sync or async callers, whichever this is not: the guard knows
        both by one name. A tool that is not *listed* is for one call: the guard does not
        remember it.
        """
        self._check_store(contract)
        tool = GuardedTool(self._house, contract, function, identity, breaker, budget, hosting)
        known = self._tools.get(contract.name)
        if listed and (known is None or known.function is not other):
            register(self._tools, tool, self._keys)
        return tool

    def _check_store(self, contract: Contract) -> None:
        """Can this store keep what this contract promises? Asked only where it matters: a store
        may have to ask its server.
        """
        capability = contract.downstream.capability
        relies = contract.kind is Kind.IRREVERSIBLE and not contract.accept_store_loss
        if capability is Capability.TRANSACTION or relies:
            store = self.store.capabilities
            promised = Capabilities(
                durable=store.durable or contract.accept_store_loss, transactions=store.transactions
            )
            why = promised.unfit_for(contract.kind, capability)
            if why:
                raise ContractViolation(
                    f"{contract.name} is {contract.kind} with downstream={str(capability)!r}, which"
                    f" this store cannot hold: {why}."
                )
        for note in contract.notes:
            LOG.log(logging.WARNING if contract.kind is Kind.READ else logging.INFO, note)

    def _register(self, tool: GuardedTool, clients: Sequence[Any] = ()) -> GuardedTool:
        # A redacted argument still counts, and a plain digest of a card number tells as much as
        # the number itself.
        counted = [name for name in tool.signature.redact if name in tool.signature.matched]
        if counted and not self._house.secret:
            raise ContractViolation(
                f"{tool.contract.name}: {', '.join(counted)} would not be stored, but could be"
                " guessed from the key and the fingerprint. Give the guard a secret, Guard(...,"
                f" secret=...), or declare volatile={counted!r} as well."
            )
        register(self._tools, tool, self._keys)
        self._amplified[tool.contract.name] = amplified(tool.contract, clients)
        return tool

    def _tool(self, tool: str | Tool[..., Any]) -> GuardedTool:
        guarded = self._tools.get(tool) if isinstance(tool, str) else tool_of(tool)
        if guarded is None or self._tools.get(guarded.contract.name) is not guarded:
            raise ContractViolation(
                f"{tool!r} is not a tool of this guard; it has {', '.join(self._tools) or 'none'}"
            )
        return guarded

    # ------------------------------------------------------------ places

    def step(
        self,
        scope: str | Stable,
        step: Part | None = None,
        *,
        tenant: str | Stable | None = None,
        permissions: Iterable[str] = (),
        delivered: Iterable[Delivered] = (),
        asked_by: str = "",
        latch: bool = True,
    ) -> Step:
        """The outermost layer that can decide to retry: a conversation or workflow, and the step
        in it.

        The same call in the same step is the same effect. Without a step id, a call that the
        model makes again after it was shown the result is a new effect: *delivered* is what it
        was shown. While one call of a step has no outcome, the step runs no other, unless
        *latch* is False. *asked_by* is the person or program that calls are made for: who has to
        approve one sees the name.
        """
        allowed = frozenset(several("permissions", permissions)) if permissions else _NOTHING
        if latch is not True:
            flags(latch=latch)
        whose = self._house.tenant if tenant is None else named(tenant, "tenant")
        if type(step) in _REMEMBERED and type(scope) is str and not (delivered or asked_by):
            return Step(place(whose, scope, step, latch, allowed))
        boundary = StepContext(
            tenant=whose,
            scope=named(scope, "scope"),
            step=None if step is None else stable_part(step, "the step id"),
            latch=latch,
            permissions=allowed,
            delivered=deliveries(delivered),
            asked_by=named(asked_by, "asked_by") if asked_by else "",
        )
        return Step(boundary)

    def sequence(
        self,
        stream: str | Stable,
        number: int,
        *,
        tenant: str | Stable | None = None,
        permissions: Iterable[str] = (),
    ) -> Step:
        """Number *number* of *stream*, counted from 1: runs only after its predecessor has an
        outcome; a repeat is replayed.

        For ordered changes by one writer, such as the events of one account. Do not use it for
        concurrent clients, which would only get in each other's way, or where numbers may be
        skipped: a gap stops the stream.
        """
        whole(number=number)
        if number < 1:
            raise ContractViolation(
                f"number {number} of {stream!r}: a sequence counts from 1. Nothing was sent."
            )
        boundary = StepContext(
            tenant=self._house.tenant if tenant is None else named(tenant, "tenant"),
            stream=(named(stream, "stream"), int(number)),
            permissions=frozenset(several("permissions", permissions)),
        )
        return Step(boundary)

    def turn(
        self,
        scope: str | Stable,
        turn: Part,
        *,
        tenant: str | Stable | None = None,
        budget: Budget | None = None,
    ) -> TurnBudget:
        """One turn of an agent, from the user's words to the answer: all calls inside spend from
        one *budget*.

        It is kept in the store, so a process that resumes the turn goes on with what is left. An
        attempt costs one or two more round trips; known outcomes cost nothing. What is used up
        ends calls with `GaveUp`.
        """
        tenant = self._house.tenant if tenant is None else named(tenant, "tenant")
        name = stable_part(turn, "the turn id")
        of_type("budget", budget, Budget, "what the turn may spend: budget=Budget(steps=8)")
        return TurnBudget(
            self.store, tenant, named(scope, "scope"), name, Budget() if budget is None else budget
        )

    # ------------------------------------------------------------ calls

    @overload  # the first that fits: an async tool is one that returns a coroutine
    def call(  # type: ignore[overload-overlap]
        self,
        tool: Tool[..., Coroutine[Any, Any, R]],
        arguments: Mapping[str, Any],
        *,
        key: Part | tuple[Part, ...] | None = None,
        version: str | None = None,
    ) -> Coroutine[Any, Any, Outcome[R]]: ...

    @overload
    def call(
        self,
        tool: Tool[..., R],
        arguments: Mapping[str, Any],
        *,
        key: Part | tuple[Part, ...] | None = None,
        version: str | None = None,
    ) -> Outcome[R]: ...

    @overload
    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        key: Part | tuple[Part, ...] | None = None,
        version: str | None = None,
    ) -> Any: ...

    def call(
        self,
        tool: str | Tool[..., Any],
        arguments: Mapping[str, Any],
        *,
        key: Part | tuple[Part, ...] | None = None,
        version: str | None = None,
    ) -> Any:
        """Call a tool and get the whole `Outcome`: was it replayed, is it in doubt? Await an async
        tool. *key* is a business key that a person can read, such as `("user_123", "weekly_email",
        "2025-W12")`; it needs no step. *version* refuses the call if the tool has moved on.
        Refusals and give-ups are raised; outcomes are returned.
        """
        return called(self._tool(tool), arguments, key, version)

    @property
    def dead_letters(self) -> DeadLetters:
        """What gave up or cannot go on: list it, redrive it under the same key, discard it,
        carry it to another store.
        """
        from effectonce.dead_letters import DeadLetters

        return DeadLetters(self.store, self._tools, self._house.watch)

    def health(self) -> Health:
        """How the store is, and whether it can keep what the tools of this guard promise. Never
        raises for a sick store.
        """
        health = examine(self.store, [tool.contract for tool in self._tools.values()])
        kept = (
            Finding("spool", "0 outcomes wait for the store")
            if self.spool is None
            else self.spool.finding()
        )
        amplified = [found for found in self._amplified.values() if found is not None]
        return msgspec.structs.replace(health, findings=(*health.findings, kept, *amplified))

    def close(self) -> None:
        """Give back connections, and ask no more probes. The guard can be used again afterwards."""
        self._background.close()
        self._house.watch.close()
        self.store.close()
