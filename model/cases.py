"""What is explored: the protocol on each kind of terms, which must hold, and sabotages of it,
which must be found.

A sabotage is the real table with one guard or change replaced, the real flow with one method
replaced, or an environment that breaks a promise. Each is a mistake that somebody made: X1, X11,
X12 and X13 were ours until this model found them, the others are in code that people copy.
"""

from __future__ import annotations

from dataclasses import replace as but
from math import inf
from typing import Any

from msgspec.structs import replace

from effectonce._core import guards, rules
from effectonce._core.call import GuardedCall
from effectonce._core.endings import Rejection
from effectonce._core.guarantees import Capability, Kind, Terms
from effectonce._core.record import Scene
from effectonce._core.rules import RULES, Guard, TransitionRule
from ledger import STALE, UNAPPROVED
from world import DUPLICATE, FALSE_FAILURE, Case

RESEND_S = {Capability.KEY: 100.0, Capability.TRANSACTION: inf}


def _terms(downstream: Capability, **more: Any) -> Terms:
    """The terms of a tool that must not run twice."""
    settings = {
        "kind": Kind.WRITE,
        "window_s": 100.0,
        "resend_s": RESEND_S.get(downstream, 0.0),
    } | more
    return Terms(tool="pay", version="1", downstream=downstream, **settings)


TX = _terms(Capability.TRANSACTION)
KEY = _terms(Capability.KEY)
KEY_STORES = _terms(Capability.KEY, stores_rejections=True)
NONE = _terms(Capability.NONE)
APPROVED = _terms(Capability.KEY, approval=True)
NONE_APPROVED = _terms(Capability.NONE, approval=True)
PROBE = _terms(Capability.PROBE)
PROBE_BOUNDED = _terms(Capability.PROBE, delay_s=5.0)

# ---------------------------------------------------------------- must hold


class _AsksFirst(GuardedCall):
    """As a tool with `Downstream.probe(before_sending=True)` is called."""

    conditional = probes_first = True


GOOD: tuple[Case, ...] = (
    Case(name="TX     effect in our own transaction", terms=TX, owners=4, cuts=1, cancels=1),
    Case(name="KEY    downstream honours our key", terms=KEY, owners=3),
    Case(
        name="KEY    claim and dispatch apart",
        terms=KEY,
        owners=3,
        attempts=1,
        separate_dispatch=True,
    ),
    Case(name="KEY    + lost acknowledgements", terms=KEY, owners=2, cuts=1),
    Case(name="KEY    + twice as many of them", terms=KEY, owners=2, attempts=1, cuts=2),
    Case(
        name="KEY    + throttling, cancelled callers",
        terms=KEY,
        owners=2,
        cuts=1,
        cancels=1,
        throttles=True,
    ),
    Case(
        name="KEY    + the window for sending again ends",
        terms=KEY,
        owners=3,
        attempts=1,
        ages=True,
    ),
    Case(
        name="KEY    + a person settles doubts",
        terms=KEY,
        owners=3,
        attempts=1,
        person=True,
        ages=True,
    ),
    Case(
        name="KEY    + a probe, the window ends",
        terms=KEY,
        owners=3,
        attempts=1,
        ages=True,
        has_probe=True,
    ),
    Case(
        name="KEY    + a probe, lost acknowledgements",
        terms=KEY,
        owners=2,
        cuts=1,
        attempts=1,
        has_probe=True,
    ),
    Case(name="KEY    downstream stores its refusals", terms=KEY_STORES, owners=2, cuts=1),
    Case(name="KEY    same, store forgets once", terms=KEY_STORES, owners=3, attempts=1, losses=1),
    Case(name="NONE   at most once, then in doubt", terms=NONE, owners=3, workers=3, cuts=1),
    Case(
        name="NONE   claim and dispatch apart", terms=NONE, owners=3, cuts=1, separate_dispatch=True
    ),
    Case(
        name="NONE   + throttling, cancelled callers",
        terms=NONE,
        owners=3,
        cuts=1,
        cancels=1,
        throttles=True,
    ),
    Case(
        name="NONE   + the key's window ends, a person",
        terms=NONE,
        owners=3,
        cuts=1,
        closings=1,
        person=True,
    ),
    Case(
        name="KEY    + a person approves it first",
        terms=APPROVED,
        owners=2,
        attempts=1,
        cuts=1,
        person=True,
    ),
    Case(
        name="NONE   + a person approves it first, which ends",
        terms=NONE_APPROVED,
        owners=3,
        closings=1,
        person=True,
    ),
    Case(
        name="PROBE  not found: a person decides",
        terms=PROBE,
        owners=3,
        cuts=1,
        attempts=1,
        has_probe=True,
    ),
    Case(
        name="PROBE  not found: re-run, bounded delay",
        terms=PROBE_BOUNDED,
        owners=3,
        attempts=1,
        has_probe=True,
    ),
    Case(
        name="PROBE  same, asked before the first send, too",
        terms=PROBE_BOUNDED,
        owners=3,
        attempts=1,
        has_probe=True,
        flow=_AsksFirst,
    ),
    Case(
        name="PROBE  same, + lost acknowledgements",
        terms=PROBE_BOUNDED,
        owners=2,
        cuts=1,
        attempts=1,
        has_probe=True,
    ),
)


def _quick(case: Case) -> Case:
    """The same case within bounds that take about a second."""
    cuts = 0 if case.has_probe or case.terms.approval else case.cuts
    return but(case, owners=2, workers=2, cuts=cuts, attempts=1 if cuts else case.attempts)


# the last differs from the one before it by its cuts only
QUICK: tuple[Case, ...] = tuple(_quick(case) for case in GOOD[:-1])


# ---------------------------------------------------------------- must be found


def _always(*_: Any) -> bool:
    return True


def _never(*_: Any) -> bool:
    return False


def _swap(guards: dict[Guard, Guard]) -> tuple[TransitionRule, ...]:
    """The table with each guard of *guards* replaced."""
    return tuple(
        replace(rule, when=tuple(guards.get(guard, guard) for guard in rule.when)) for rule in RULES
    )


def _change(names: set[str], change: Any) -> tuple[TransitionRule, ...]:
    """The table with the change of the rules called *names* replaced."""
    return tuple(replace(rule, change=change) if rule.name in names else rule for rule in RULES)


def _owns_by_epoch(r: Any, op: Any, _: Scene) -> bool:
    return bool(r.epoch == op.epoch)


def _stolen_clean(r: Any, op: Any, scene: Scene) -> Any:
    """The successor does not know that its predecessor sent."""
    return rules._stolen(replace(r, sends=0), op, scene)  # noqa: SLF001


def _unsent_in_place(r: Any, op: Any, scene: Scene) -> Any:
    """Taking back leaves the epoch as it is."""
    return replace(rules._unsent(r, op, scene), epoch=r.epoch)  # noqa: SLF001


def _quiet_by_now(r: Any, op: Any, scene: Scene) -> bool:
    """Judge the delay bound when the probe's answer is used, not when it is asked."""
    return r.sent_until == 0.0 or guards.quiet(r, op, scene)


def _once_approved(r: Any, op: Any, _: Scene) -> bool:
    """Whether it was approved is asked, and not for how long."""
    return r.sends > 0 or r.dedup_until != inf


class _TellsUnrecordedFailures(GuardedCall):
    """A refusal counts as a failure although the store could not write it down."""

    def _unrecorded(self, error: BaseException) -> Rejection:
        return Rejection(error)


BAD: tuple[Case, ...] = (
    Case(
        name="X1   a successor forgets that there was a send",
        terms=KEY,
        rules=_change({"T2", "T8"}, _stolen_clean),
        expect=FALSE_FAILURE,
    ),
    Case(
        name='X2   "not found" re-runs, whatever is on its way',
        terms=PROBE_BOUNDED,
        has_probe=True,
        rules=_swap({guards.asked_when_quiet: _always}),
        expect=DUPLICATE,
    ),
    Case(
        name="X3   a refusal after a lost send is final",
        terms=KEY,
        rules=_swap({guards.rejection_is_final: _always}),
        expect=FALSE_FAILURE,
    ),
    Case(
        name="X4   the downstream forgets our key early",
        terms=KEY,
        forgets_early=True,
        expect=DUPLICATE,
    ),
    Case(name="X5   NONE, the store forgets", terms=NONE, losses=1, expect=DUPLICATE),
    Case(
        name="X6   KEY, the store forgets, refusals are not stored",
        terms=KEY,
        losses=1,
        expect=FALSE_FAILURE,
    ),
    Case(
        name="X7   the store forgets, owners fenced by epoch only",
        terms=KEY_STORES,
        losses=1,
        rules=_swap({guards.owns: _owns_by_epoch}),
        expect=STALE,
    ),
    Case(
        name="X8   a key whose window is over runs again",
        terms=NONE,
        closings=1,
        rules=_swap({guards.may_rerun: guards.window_over}),
        expect=DUPLICATE,
    ),
    Case(
        name="X9   an expired owner counts as failed: run again",
        terms=NONE,
        rules=_swap({guards.resendable: _always, guards.not_resendable: _never}),
        expect=DUPLICATE,
    ),
    Case(
        name="X10  our key downstream, but nobody is fenced",
        terms=KEY,
        rules=_swap({guards.owns: _always, guards.rejection_is_final: _always}),
        expect=STALE,
    ),
    Case(
        name="X11  the delay bound is judged after the probe looked",
        terms=PROBE_BOUNDED,
        has_probe=True,
        rules=_swap({guards.asked_when_quiet: _quiet_by_now}),
        expect=DUPLICATE,
    ),
    Case(
        name="X12  taking back a send leaves the epoch as it is",
        terms=NONE,
        separate_dispatch=True,
        cuts=1,
        rules=_change({"T4"}, _unsent_in_place),
        expect=DUPLICATE,
    ),
    Case(
        name="X13  a failure is told although it is not recorded",
        terms=KEY,
        attempts=1,
        cuts=1,
        flow=_TellsUnrecordedFailures,
        expect=FALSE_FAILURE,
    ),
    Case(
        name="X14  whoever comes first uses an approval that ended",
        terms=NONE_APPROVED,
        closings=1,
        person=True,
        rules=_swap({guards.approved: _once_approved}),
        expect=UNAPPROVED,
    ),
)
