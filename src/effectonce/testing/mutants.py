"""Stores that are broken on purpose, each in one way. The conformance suite must catch every one
of them.

A mutant is the reference store with one rule of the table sabotaged, or with one habit that real
stores have. If you write a store, you do not need this file; if you write a check, it tells you
what the check is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from msgspec.structs import replace

from effectonce._core import guards
from effectonce._core.ops import Claim, Complete, ListCells, Search, Sweep, WriteCell
from effectonce._core.record import Record, Scene, State
from effectonce._core.rules import RULES, Guard, TransitionRule, index
from effectonce.stores.base import Store
from effectonce.stores.memory import MemoryStore
from effectonce.testing import faulty_stores as faulty
from effectonce.testing.clock import FakeClock


@dataclass(frozen=True, slots=True)
class Mutant:
    """A store with one fault, and the rule of the protocol that the fault breaks."""

    name: str
    breaks: int  # rule 1 to 11 of the protocol; 0: what any record store must do
    open: Callable[[FakeClock], Store]


# ---------------------------------------------------------------- sabotaged tables


def _ruled(rules: tuple[TransitionRule, ...]) -> Callable[[FakeClock], Store]:
    return lambda clock: MemoryStore(clock=clock, table=index(rules))


def _asking(guard: Guard, instead: Callable[..., bool]) -> Callable[[FakeClock], Store]:
    """Every rule that asks *guard* asks *instead*."""
    swap = {guard: instead}
    return _ruled(
        tuple(replace(rule, when=tuple(swap.get(g, g) for g in rule.when)) for rule in RULES)
    )


def _yes(*_: Any) -> bool:
    return True


def _no(*_: Any) -> bool:
    return False


def _owns_by_token(r: Record, op: Any, _: Scene) -> bool:
    return bool(r.token == op.token)


def _owns_by_epoch(r: Record, op: Any, _: Scene) -> bool:
    return bool(r.epoch == op.epoch)


def _resendable_since_the_last_send(r: Record, _op: Any, scene: Scene) -> bool:
    return r.sends == 0 or scene.now < r.sent_until - 30 + r.request.terms.resend_s


def _quiet_even_if_irreversible(r: Record, _op: Any, scene: Scene) -> bool:
    delay_s = r.request.terms.delay_s
    return delay_s is not None and scene.now > r.sent_until + delay_s


def _quiet_when_the_answer_is_used(r: Record, op: Any, scene: Scene) -> bool:
    return r.sent_until == 0 or guards.quiet(r, op, scene)


def _late_any_send(r: Record, op: Complete, _: Scene) -> bool:
    return r.dtoken == op.token


def _swept_away(start: State) -> Callable[[FakeClock], Store]:
    when = (guards.lease_over,)
    rule = TransitionRule("!", Sweep, start, State.ABSENT, when, lambda _r, _op, _scene: None)
    return _ruled((*RULES, rule))


def _without_latch_at_dispatch() -> tuple[TransitionRule, ...]:
    def changed(r: TransitionRule) -> TransitionRule:
        if r.name not in ("T3", "T5b"):
            return r
        return replace(r, when=tuple(g for g in r.when if g is not guards.unlatched))

    return tuple(map(changed, RULES))


def _claims_without_dispatching(r: Record | None, op: Claim, scene: Scene) -> Record:
    return Record(op.request, State.CLAIMED, 1, op.token, scene.now + op.lease_s, scene.now)


_UNDISPATCHED = TransitionRule(
    "T1",
    Claim,
    State.ABSENT,
    State.CLAIMED,
    (guards.in_turn, guards.unlatched),
    _claims_without_dispatching,
)


def _resendable_by_the_shorter_window(r: Record, op: Any, scene: Scene) -> bool:
    asked_s = op.request.terms.resend_s if isinstance(op, Claim) else inf
    resend_s = min(r.request.terms.resend_s, asked_s)
    return r.sends == 0 or scene.now < r.first_dispatch_at + resend_s


def _approved_for_ever(r: Record, op: Claim, _scene: Scene) -> bool:
    return not op.request.terms.approval or r.sends > 0 or r.dedup_until != inf


def _approved_by_the_clock_alone(r: Record, op: Claim, scene: Scene) -> bool:
    given = r.dedup_until != inf and scene.now < r.dedup_until
    return not op.request.terms.approval or r.sends > 0 or given


def _wished_as_before(r: Record, op: Claim, _scene: Scene) -> Record:
    """It takes the new arguments, and keeps what was approved for the old ones."""
    return replace(r, request=op.request)


def _keeping_approvals() -> tuple[TransitionRule, ...]:
    def changed(r: TransitionRule) -> TransitionRule:
        wishes = r.name == "T14" and r.op is Claim
        return replace(r, change=_wished_as_before) if wishes else r

    return tuple(map(changed, RULES))


_OVERWRITING = tuple(
    TransitionRule("!", r.op, State.COMPLETED, r.end, (), r.change)
    for r in RULES
    if r.name == "T11b"
)
MUTANTS: tuple[Mutant, ...] = (
    Mutant("a live lease can be stolen", 1, _asking(guards.lease_over, _yes)),
    Mutant("a dead lease is never stolen", 1, _asking(guards.lease_over, _no)),
    Mutant("nothing is fenced", 2, _asking(guards.owns, _yes)),
    Mutant("fenced by the token only", 2, _asking(guards.owns, _owns_by_token)),
    Mutant("fenced by the epoch only", 2, _asking(guards.owns, _owns_by_epoch)),
    Mutant("a claim that was to dispatch does not", 3, _ruled((_UNDISPATCHED, *RULES))),
    Mutant("a send is not counted", 3, _asking(guards.next_send, _yes)),
    Mutant("any send can be taken back", 4, _asking(guards.this_send, _yes)),
    Mutant("a lost effect is sent again without a key", 4, _asking(guards.resendable, _yes)),
    Mutant(
        "a lost effect is never sent again",
        4,
        _asking(guards.resendable, lambda r, *_: r.sends == 0),
    ),
    Mutant(
        "the downstream window starts anew with each send",
        4,
        _asking(guards.resendable, _resendable_since_the_last_send),
    ),
    Mutant("a claim completes without having been sent", 4, _asking(guards.done_unsent, _yes)),
    Mutant("a rejection is always a failure", 5, _asking(guards.rejection_is_final, _yes)),
    Mutant("a rejection is never a failure", 5, _asking(guards.rejection_is_final, _no)),
    Mutant("not found is proof", 6, _asking(guards.asked_when_quiet, _yes)),
    Mutant(
        "not found is proof when it is used",
        6,
        _asking(guards.asked_when_quiet, _quiet_when_the_answer_is_used),
    ),
    Mutant(
        "an irreversible effect is re-run",
        6,
        _asking(guards.asked_when_quiet, _quiet_even_if_irreversible),
    ),
    Mutant("an expired key runs again", 7, _asking(guards.may_rerun, guards.window_over)),
    Mutant("a swept key is forgotten", 7, _asking(guards.remembered, _no)),
    Mutant("a tombstone is forgotten at once", 7, _asking(guards.unremembered, _yes)),
    Mutant("a window ends at once", 7, _asking(guards.window_over, _yes)),
    Mutant("a sweep removes claims", 7, _swept_away(State.CLAIMED)),
    Mutant("a sweep removes doubts", 7, _swept_away(State.IN_DOUBT)),
    Mutant("a step has no latch", 8, _asking(guards.unlatched, _yes)),
    Mutant("the latch is looked at when claiming only", 8, _ruled(_without_latch_at_dispatch())),
    Mutant("one latch for all", 8, faulty.OneLatchForAll),
    Mutant("a lost acknowledgement is a refusal", 9, faulty.ForgetsAcknowledgements),
    Mutant("it decides on an old read", 10, faulty.DecidesOnAnOldRead),
    Mutant("an empty outcome is none", 11, faulty.TestsPresenceByTruth),
    Mutant("late evidence of any send settles", 5, _asking(guards.late_only_send, _late_any_send)),
    Mutant("late evidence never settles", 11, _asking(guards.late_only_send, _no)),
    Mutant("late evidence is dropped", 11, faulty.DropsEvidence),
    Mutant("a completion forgets the evidence", 0, faulty.CompletesWithoutEvidence),
    Mutant("a late result makes room for attempts", 11, faulty.KeepsTheLast),
    Mutant("evidence stays as it was when it is full", 0, faulty.KeepsTheFirst),
    Mutant("what was never sent cannot be discarded", 0, _asking(guards.never_sent, _no)),
    Mutant("what was sent can be discarded", 4, _asking(guards.never_sent, _yes)),
    Mutant("another request inherits the key", 0, _asking(guards.same_request, _yes)),
    Mutant("a sequence has no order", 0, _asking(guards.in_turn, _yes)),
    Mutant("terms follow the newest deploy", 0, faulty.RepinsTerms),
    Mutant("terms never change, though nothing was sent", 0, faulty.NeverChangesTerms),
    Mutant(
        "a key helps what was sent without it",
        4,
        _asking(guards.resendable, _resendable_by_the_shorter_window),
    ),
    Mutant("what needs an approval is sent without one", 0, _asking(guards.approved, _yes)),
    Mutant("an approval never ends", 0, _asking(guards.approved, _approved_for_ever)),
    Mutant(
        "an approval lasts longer when the clock is put back",
        0,
        _asking(guards.approved, _approved_by_the_clock_alone),
    ),
    Mutant("an approval stays when arguments change", 0, _ruled(_keeping_approvals())),
    Mutant("who asked approves it", 0, _asking(guards.by_another, _yes)),
    Mutant("arguments are approved unseen", 0, _asking(guards.wished, _yes)),
    Mutant("arguments are rejected unseen", 0, _asking(guards.as_seen, _yes)),
    Mutant("a rejection ends what was sent", 0, _asking(guards.of_a_send, _yes)),
    Mutant("a new wish has no one to approve it", 0, _asking(guards.another_wish, _no)),
    Mutant("a person overwrites an outcome", 0, _ruled((*RULES, *_OVERWRITING))),
    Mutant("a reference is the beginning of a key", 0, faulty.FindsByTheBeginning),
    Mutant("a search begins with the oldest", 0, faulty.FindsTheOldestFirst),
    Mutant("a search shows what other tenants have", 0, faulty.taken_with(Search, tenant=None)),
    Mutant("a cell is replaced by who did not see it", 0, faulty.ReplacesCellsUnseen),
    Mutant("a cell that is gone is replaced", 0, faulty.BringsCellsBack),
    Mutant("a cell is never forgotten", 0, faulty.taken_with(WriteCell, keep_s=inf)),
    Mutant("a write does not keep a cell any longer", 0, faulty.ForgetsCellsAsAtFirst),
    Mutant("a cell's revision comes back", 0, faulty.NumbersCellsFromOne),
    Mutant("a write to a cell makes no new revision", 0, faulty.KeepsRevisions),
    Mutant("a sweep forgets every cell", 0, faulty.SweepsAllCells),
    Mutant("a record takes the place of a cell", 0, faulty.KeepsCellsAsRecords),
    Mutant("cells are listed in the order of their writing", 0, faulty.ListsInTheOrderOfWriting),
    Mutant("a page of cells begins with the last one again", 0, faulty.ListsWithTheLastOneAgain),
    Mutant("cells that are over are listed", 0, faulty.ListsWhatIsOver),
    Mutant("a prefix of cells has no case", 0, faulty.ListsPrefixesAsWords),
    Mutant("cells are listed forwards only", 0, faulty.taken_with(ListCells, backwards=False)),
    Mutant("several ops stop at the first refusal", 9, faulty.StopsAtTheFirstRefusal),
    Mutant("several ops are applied from the end", 3, faulty.TakesThemFromTheEnd),
)
