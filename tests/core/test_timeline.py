"""The story of one effect: to the millisecond, in order, and what is not kept is said."""

import itertools

import pytest

from effectonce import Conflict, Guard, NotSent, Retry
from effectonce.observe import Audit
from effectonce.stores.memory import MemoryStore
from effectonce.views.audit import entries_about
from effectonce.views.effects import now_of, reference
from effectonce.views.text import Screen
from effectonce.views.timeline import BESIDE_MAX, not_kept, timeline
from effectonce.views.times import instant, later


def paid(times, guard):
    """An effect that failed once, landed, and was asked for again."""
    answers = itertools.chain([NotSent("not there")], itertools.repeat(None))

    @guard.tool(kind="write", identity=["invoice"], retry=Retry(attempts=2, base_s=0, cap_s=0))
    def pay(invoice: str, amount: int) -> str:
        if (error := next(answers)) is not None:
            raise error
        return "paid"

    with guard.step("chat", "pay"):
        for _ in range(1 + times):
            pay("inv_1", 1)
        with pytest.raises(Conflict):
            pay("inv_1", 2)
        key = pay.explain("inv_1", 1).key
    return guard.find(key)


def told(guard, record, entries=()):
    return timeline(record, now_of(guard), Screen(), entries)


def test_moments_are_shown_to_the_millisecond():
    assert instant(1_763_424_000.0125) == "2025-11-18 00:00:00.012"
    assert later(0.0125) in ("+0.013 s", "+0.012 s")
    assert later(7200) == "+2 h"


def test_without_an_audit_it_says_what_is_not_kept():
    guard = Guard("memory://")
    record = paid(2, guard)
    rows = told(guard, record)

    assert [at for at, _, _ in rows] == sorted(at for at, _, _ in rows)
    assert not any("repeated" in what for _, _, what in rows)
    assert "Only an audit keeps the calls that got its result again" in not_kept(
        record, audited=False
    )
    assert "kept where it needed an approval" in not_kept(record, audited=False)


def audited(times):
    """What the story of such an effect says with an audit."""
    guard = Guard(MemoryStore(), cache=0)
    audit = Audit(guard)
    guard.observe(audit)
    record = paid(times, guard)
    audit.close()
    entries = entries_about(guard, record, reference(record))
    return [what for _, _, what in told(guard, record, entries)]


def test_with_an_audit_attempts_repeats_and_conflicts_stand_in_their_order():
    said = audited(2)
    order = [
        "claimed",
        "attempt 1 failed with NotSent",
        "attempt 2 went well after",
        "a repeated call got its outcome",
        "a repeated call got its outcome",
        "a call with other arguments used its key",
    ]
    shown = [what for what in said if what.startswith(("attempt", "a repeated", "a call", "claim"))]

    assert len(shown) == len(order)
    assert all(what.startswith(begins) for what, begins in zip(shown, order, strict=True))


def test_of_very_many_repeats_the_last_are_shown():
    said = audited(50)

    assert len(said) < BESIDE_MAX + 10
    assert any("earlier entries are in the audit" in what for what in said)
