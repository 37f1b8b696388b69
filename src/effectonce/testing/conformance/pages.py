"""What pages ask for: a bounded look that says where it ended."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from effectonce._core.ops import Claim, Fail, Sweep
from effectonce._core.pages import Beside, Count, Counts, Recent, Refer
from effectonce._core.record import Record, State
from effectonce.testing.conformance.bench import LEASE_S, Bench, request, terms


def _keys(records: tuple[Record, ...]) -> list[str]:
    return [record.request.key for record in records]


def _done(bench: Bench, key: str, **words: Any) -> None:
    bench.done(request(key, **words))
    bench.clock.advance(1)


def _one_of_each(bench: Bench) -> list[str]:
    _done(bench, "done")
    bench.in_doubt(request("doubtful"))
    bench.held(request("sent"))
    bench.apply(Claim(request("waits"), "t", LEASE_S, dispatch=False))
    token, epoch = bench.held(request("refused"))
    bench.apply(Fail("refused", token, epoch, b"no"))
    bench.done(request("buried", on=terms(window_s=1.0)))
    bench.clock.advance(2)
    bench.apply(Sweep())
    return ["buried", "done", "doubtful", "refused", "sent", "waits"]


def states_are_counted_as_far_as_is_asked(bench: Bench) -> None:
    assert bench.apply(Count()) == Counts({})
    for n in range(4):
        bench.in_doubt(request(f"k{n}"))
    bench.held(request("sent"))
    assert bench.apply(Count()) == Counts({State.IN_DOUBT: 4, State.DISPATCHED: 1})
    for n in range(20):
        _done(bench, f"done {n}")

    counts = bench.apply(Count(2))

    for state, there in {State.IN_DOUBT: 4, State.DISPATCHED: 1, State.COMPLETED: 20}.items():
        assert counts.numbers[state] <= there
        assert counts.numbers[state] == there or (
            state in counts.more and counts.numbers[state] >= min(there, 2)
        )
    assert State.DISPATCHED not in counts.more


def the_newest_come_first_page_by_page(bench: Bench) -> None:
    for n in range(5):
        _done(bench, f"k{n}")

    first = bench.apply(Recent(limit=2))
    assert _keys(first.records) == ["k4", "k3"]
    second = bench.apply(Recent(after=first.further, limit=2))
    assert _keys(second.records) == ["k2", "k1"]
    last = bench.apply(Recent(after=second.further, limit=2))
    assert (_keys(last.records), last.further) == (["k0"], None)


def every_record_is_on_one_page(bench: Bench) -> None:
    everything = _one_of_each(bench)

    assert sorted(_keys(bench.apply(Recent()).records)) == everything
    for limit in (1, 4):
        seen, page = list[str](), bench.apply(Recent(limit=limit))
        while page.further is not None:
            seen += _keys(page.records)
            page = bench.apply(Recent(after=page.further, limit=limit))
        assert sorted([*seen, *_keys(page.records)]) == everything


def pages_of_one_state_have_all_of_it_and_no_other(bench: Bench) -> None:
    _one_of_each(bench)
    states = {
        State.COMPLETED: "done",
        State.IN_DOUBT: "doubtful",
        State.DISPATCHED: "sent",
        State.CLAIMED: "waits",
        State.FAILED: "refused",
        State.TOMBSTONE: "buried",
    }
    for state, key in states.items():
        page = bench.apply(Recent(state=state))
        assert (_keys(page.records), page.further) == ([key], None)
        (record,) = page.records
        assert bench.apply(Recent(state=state, after=record)).records == ()


def a_look_for_what_is_rare_ends_and_goes_on(bench: Bench) -> None:
    _done(bench, "rare", tenant="odd", scope="chat")
    for n in range(6):
        _done(bench, f"k{n}")

    asked = (Recent(tenant="odd", looked_at=3, limit=1), Recent(scope="chat", looked_at=3, limit=1))
    for op in (*asked, Recent(state=State.COMPLETED, tenant="odd", looked_at=3, limit=1)):
        seen, page, looks = list[str](), bench.apply(op), 1
        while page.further is not None:
            seen += _keys(page.records)
            page, looks = bench.apply(replace(op, after=page.further)), looks + 1
        assert [*seen, *_keys(page.records)] == ["rare"]
        assert looks >= 3
    assert bench.apply(Recent(tool="unused")).records == ()
    since = bench.record(request("k4")).created_at
    assert _keys(bench.apply(Recent(since=since)).records) == ["k5", "k4"]


def a_page_after_doubts_goes_on_with_doubts(bench: Bench) -> None:
    for n in range(3):
        bench.in_doubt(request(f"k{n}"))
        bench.clock.advance(1)

    first = bench.apply(Recent(state=State.IN_DOUBT, limit=1))
    second = bench.apply(Recent(state=State.IN_DOUBT, after=first.further, limit=1))
    assert (_keys(first.records), _keys(second.records)) == (["k2"], ["k1"])


def an_effect_is_found_by_its_reference_without_looking_at_all(bench: Bench) -> None:
    alike, other = "f00" + "0" * 25 + "abcdef123456", "f00" + "0" * 25 + "abcdff000000"
    _done(bench, alike, tenant="odd")
    bench.in_doubt(request(other))

    def found(reference: str, tenant: str | None = None, limit: int = 9) -> list[str]:
        return _keys(bench.apply(Refer(reference, tenant, limit)))

    assert found("abcdef123456") == found("abcd", "odd") == [alike]
    assert found("abcdff000000") == found("abcd", limit=1) == [other]
    assert found("abcd") == [other, alike]
    assert found("f00") == found("%") == found("bcdef") == found("abcdff000000", "odd") == []


def a_whole_reference_is_found_however_old_it_is(bench: Bench) -> None:
    old, twin = "f00" + "0" * 25 + "abcdef123456", "e00" + "1" * 25 + "abcdef123456"
    other = "f00" + "0" * 25 + "abcdff000000"
    for key in (old, twin, other):
        _done(bench, key, tenant="odd" if key == twin else "")
    for n in range(4):
        _done(bench, f"k{n}")

    def found(reference: str, tenant: str | None = None, beginning: str = "") -> list[str]:
        return _keys(bench.apply(Refer(reference, tenant, looked_at=2, beginning=beginning)))

    # one that is found quickly may end the look
    assert found("abcdef123456") in ([twin], [twin, old])
    assert found("abcdef123456", "odd") == found("abcdef123456", beginning="e00111111111") == [twin]
    for tenant in (None, ""):
        assert found("abcdef123456", tenant, "f0000000") == [old]
    assert found("abcdff000000", beginning=other[:12]) == [other]
    for nothing in (("abcdef123456", None, "f0000001"), ("abcdef123456", "odd", "f0000000")):
        assert found(*nothing) == []
    assert found("0" * 12) == []


def records_of_one_run_are_found_beside_it(bench: Bench) -> None:
    run, step, other = "ab" * 20, "ab" * 4 + "0" * 32, "ab" * 3 + "0" * 34
    bench.in_doubt(request(step))
    for key in (run, other):
        _done(bench, key)

    assert sorted(_keys(bench.apply(Beside(run, 9)))) == [step, run]
    assert len(bench.apply(Beside(run, 1))) == 1
