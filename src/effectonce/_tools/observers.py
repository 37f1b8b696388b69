"""The observers of a guard's effects. Mostly there are none: no reports, and no cost to a call."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from effectonce._core.counters import PERSON_HAPPENED, PERSON_NOT_HAPPENED, PERSON_RETRIED
from effectonce._core.effect_ref import EffectRef
from effectonce._core.ops import Confirm, Rearm, Refute, Swept
from effectonce._core.record import Record
from effectonce._log import LOG
from effectonce._runtime.counters import Counters, ToolCounters
from effectonce._runtime.signature import is_async
from effectonce.errors import ContractViolation

if TYPE_CHECKING:
    from effectonce.observe.events import Event
    from effectonce.retries.budget import RetryBudget
    from effectonce.retries.circuit import Circuit
Observer: TypeAlias = "Callable[[Event], object]"


class Observers:
    """The observers of one guard, and the dependencies that its tools call.

    An observer may say what it wants to hear of: `events`, a set of names. And whether it wants
    digests of arguments: `digests`.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = counters  # None: nothing is counted in the store
        self.observers: tuple[Observer, ...] = ()
        self.failures: Counter[str] = Counter()  # how often each kind of observer raised
        self.digests = False
        self.circuits: dict[str, Circuit] = {}
        self.budgets: dict[str, RetryBudget] = {}
        self._tools: weakref.WeakSet[Any] = weakref.WeakSet()
        self._followed: set[str] = set()  # circuits that tell of their changes
        self._by_name: dict[str, tuple[Observer, ...]] = {}

    def add(self, observer: Observer) -> None:
        if isinstance(observer, type):  # it would be made anew for each event, and report nothing
            raise ContractViolation(
                f"{observer!r} is a class: give an object of it, {observer.__name__}(...)"
            )
        if not callable(observer):
            raise ContractViolation(
                f"{observer!r} cannot be called with events: give a function of one event"
            )
        if is_async(observer):
            raise ContractViolation(
                f"{observer!r} is async, and would not be awaited: give a def that hands the work"
                " over"
            )
        self.observers = (*self.observers, observer)
        self.digests = self.digests or getattr(observer, "digests", False)
        self._by_name = {}
        for tool in list(self._tools):
            self._follow(tool)

    def know(self, tool: Any) -> None:
        """A tool of this guard: if anybody wants to know, it tells from now on."""
        circuit, budget = tool.retrying.circuit, tool.retrying.tokens
        if budget is not None:
            self.budgets[budget.name] = budget
        if circuit is not None:
            self.circuits.setdefault(circuit.name, circuit)
        self._tools.add(tool)
        if self.observers:
            self._follow(tool)

    def _follow(self, tool: Any) -> None:
        tool.watch()
        circuit = tool.retrying.circuit
        if circuit is not None and circuit.name not in self._followed:
            self._followed.add(circuit.name)
            circuit.watch(partial(_moved, self, circuit.name))

    def of(self, name: str) -> tuple[Observer, ...]:
        """Who wants to hear of events of this name."""
        # looked at once: an observer that comes meanwhile begins with another one
        by_name = self._by_name
        known = by_name.get(name)
        if known is None:
            wants = [getattr(observer, "events", None) for observer in self.observers]
            known = tuple(
                o
                for o, names in zip(self.observers, wants, strict=True)
                if names is None or name in names
            )
            by_name[name] = known
        return known

    def counters_of(self, tool: str) -> ToolCounters | None:
        return None if self.counters is None else self.counters.of(tool)

    def emit(self, event: Event) -> None:
        """Call every observer of this event. What an observer does wrong is never the call's."""
        for observer in self.of(event.name):
            self._ask(observer, observer, event)

    def close(self) -> None:
        """Let observers write down what they have put aside."""
        for observer in self.observers:
            close = getattr(observer, "close", None)
            if close is not None:
                self._ask(observer, close)
        if self.counters is not None:
            self.counters.close()

    def _ask(self, observer: Observer, act: Callable[..., object], *args: object) -> None:
        try:
            act(*args)
        except Exception as error:  # noqa: BLE001
            # the observer's own; what was reported has still happened
            self._failed(observer, error)

    def _failed(self, observer: Observer, error: Exception) -> None:
        kind = getattr(observer, "__qualname__", type(observer).__qualname__)
        self.failures[kind] += 1
        if self.failures[kind] == 1:
            LOG.warning(
                "the observer %s failed, which is logged once and counted: %r",
                kind,
                error,
                exc_info=error,
            )


def _moved(watch: Observers, dependency: str, _old: Any, new: Any, stats: Any) -> None:
    tell(watch, name="breaker", dependency=dependency, outcome=str(new), reason=stats.why)


_RESOLUTIONS = {
    Confirm: ("happened", PERSON_HAPPENED),
    Refute: ("not_happened", PERSON_NOT_HAPPENED),
    Rearm: ("retried", PERSON_RETRIED),
}


def settled(watch: Observers, op: Confirm | Refute | Rearm, before: Record) -> None:
    """A person has spoken."""
    age_s = max(0.0, time.time() - before.decided_at) if before.decided_at else None
    outcome, field = _RESOLUTIONS[type(op)]
    counters = watch.counters_of(before.request.terms.tool)
    if counters is not None:
        counters.settled(before.request.tenant, field, age_s)
    notify_of(
        watch,
        "settled",
        before,
        outcome=outcome,
        by=op.by,
        reason=op.reason,
        age_s=age_s,
    )


def notify_of(watch: Observers, name: str, record: Record, **data: Any) -> None:
    """Report what a person did with the effect of a record."""
    request, terms = record.request, record.request.terms
    effect = EffectRef(terms.tool, request.key, request.tenant, request.scope, request.step)
    tell(watch, name=name, tool=terms.tool, kind=str(terms.kind), effect=effect, **data)


def tidied(watch: Observers, swept: Swept) -> None:
    """A sweep went round."""
    if swept.total == 0:
        return
    tell(watch, name="swept", count=swept.total)
    if swept.doubted:
        if watch.counters is not None:
            watch.counters.doubted(swept.doubted)
        tell(watch, name="in_doubt", count=swept.doubted, reason="its owner vanished")


def tell(watch: Observers, **data: Any) -> None:
    """Report what no flow knows: the fields of an `Event` but the time. No observers: no effect."""
    if watch.observers:
        from effectonce.observe.events import Event

        watch.emit(Event(at=time.time(), **data))
