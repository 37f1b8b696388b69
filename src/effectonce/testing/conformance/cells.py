"""Cells: small values that processes share, each replaced only by a process that has seen what
stands there.
"""

from __future__ import annotations

from math import inf

from effectonce._core.ops import Cell, Find, ListCells, ReadCell, Sweep, Tally, WriteCell
from effectonce.testing.conformance.bench import LEASE_S, RACERS, Bench, request

KEEP_S = 60.0


def _written(bench: Bench, value: bytes, *, name: str = "cell", keep_s: float = KEEP_S) -> int:
    """Replace whatever stands there; the revision that this made."""
    assert bench.apply(WriteCell(name, bench.apply(ReadCell(name)).revision, value, keep_s)) is None
    return bench.apply(ReadCell(name)).revision


def a_cell_that_was_never_written_is_none(bench: Bench) -> None:
    assert bench.apply(ReadCell("cell")) == Cell(bench.clock())


def a_cell_reads_as_it_was_written(bench: Bench) -> None:
    for name, value in (("cell", b"one"), ("a {b}: \0 ü", bytes(range(256))), ("empty", b"")):
        revision = _written(bench, value, name=name)
        assert bench.apply(ReadCell(name)) == Cell(bench.clock(), value, revision)
        assert revision > 0


def a_cell_is_replaced_only_by_who_saw_it(bench: Bench) -> None:
    first = _written(bench, b"one")
    second = _written(bench, b"two")
    stands = Cell(bench.clock(), b"two", second)
    for seen in (first, 0, second + 1):
        assert bench.apply(WriteCell("cell", seen, b"late", KEEP_S)) == stands
    assert bench.apply(ReadCell("cell")) == stands


def a_cell_that_is_gone_is_not_replaced(bench: Bench) -> None:
    assert bench.apply(WriteCell("cell", 7, b"late", KEEP_S)) == Cell(bench.clock())
    seen = _written(bench, b"one")
    bench.clock.advance(KEEP_S)
    assert bench.apply(WriteCell("cell", seen, b"late", KEEP_S)) == Cell(bench.clock())
    assert bench.apply(ReadCell("cell")) == Cell(bench.clock())


def a_repeated_write_returns_what_it_wrote(bench: Bench) -> None:
    """Its acknowledgement was lost. The value shows that no other process was faster."""
    for seen in (0, _written(bench, b"one", name="other")):
        write = WriteCell("other" if seen else "cell", seen, b"mine", KEEP_S)
        assert bench.apply(write) is None
        again = bench.apply(write)
        assert again is not None
        assert again.value == b"mine"
        assert again.revision == bench.apply(ReadCell(write.name)).revision


def a_cell_is_forgotten_in_time(bench: Bench) -> None:
    _written(bench, b"one")
    bench.clock.advance(KEEP_S - 1)
    assert bench.apply(ReadCell("cell")).value == b"one"
    bench.clock.advance(1)
    assert bench.apply(ReadCell("cell")) == Cell(bench.clock())
    assert bench.apply(WriteCell("cell", 0, b"two", KEEP_S)) is None


def every_write_says_anew_how_long_a_cell_is_kept(bench: Bench) -> None:
    _written(bench, b"one")
    bench.clock.advance(KEEP_S - 1)
    _written(bench, b"two")
    bench.clock.advance(KEEP_S - 1)
    assert bench.apply(ReadCell("cell")).value == b"two"
    _written(bench, b"three", keep_s=5.0)
    bench.clock.advance(5)
    assert bench.apply(ReadCell("cell")) == Cell(bench.clock())


def a_cell_may_be_kept_for_ever(bench: Bench) -> None:
    _written(bench, b"one", keep_s=inf)
    bench.clock.advance(1e9)
    bench.apply(Sweep())
    assert bench.apply(ReadCell("cell")).value == b"one"


def a_cells_revision_never_comes_back(bench: Bench) -> None:
    """Who has slept through the end of a cell must not take the next one for what he saw."""
    seen = []
    for sweep in (False, True, False):
        seen += [_written(bench, b"same"), _written(bench, b"same")]
        bench.clock.advance(KEEP_S)
        if sweep:
            bench.apply(Sweep())
    seen.append(_written(bench, b"same"))
    assert len(set(seen)) == len(seen)


def a_sweep_leaves_cells_that_are_in_time(bench: Bench) -> None:
    for n in range(3):
        _written(bench, b"past", name=f"past {n}")
    bench.clock.advance(KEEP_S)
    _written(bench, b"kept")
    assert bench.apply(Sweep(2)).total <= 2
    assert bench.apply(Sweep()).total <= 3
    assert bench.apply(Sweep()).total == 0
    assert bench.apply(ReadCell("cell")).value == b"kept"


def cells_and_records_do_not_meet(bench: Bench) -> None:
    _written(bench, b"one", name="k")
    assert bench.apply(Find("k")) is None
    bench.held(request("k"))
    bench.clock.advance(LEASE_S / 2)
    assert bench.apply(ReadCell("k")).value == b"one"
    assert sum(bench.apply(Tally()).values()) == 1


def of_many_that_saw_the_same_cell_one_writes(bench: Bench) -> None:
    for seen in (0, _written(bench, b"seen", name="old")):
        name = "old" if seen else "new"
        replies = bench.race(
            [WriteCell(name, seen, f"{n}".encode(), KEEP_S) for n in range(RACERS)]
        )
        stands = bench.apply(ReadCell(name))
        assert replies.count(None) == 1
        assert all(reply == stands for reply in replies if reply is not None)


def _listed(bench: Bench, *names: str, keep_s: float = KEEP_S) -> None:
    for name in names:
        seen, value = bench.apply(ReadCell(name)).revision, f"of {name}".encode()
        assert bench.apply(WriteCell(name, seen, value, keep_s, listed=True)) is None


def _names(bench: Bench, op: ListCells) -> list[str]:
    return [name for name, _ in bench.apply(op)]


def cells_are_listed_by_prefix_in_order(bench: Bench) -> None:
    _listed(bench, "log/b", "log/a", "log/ü", "log/a/1", "log", "log/", "logs/a", "Log/a", "other")
    expected = ["log/a", "log/a/1", "log/b", "log/ü"]
    found = tuple((name, f"of {name}".encode()) for name in expected)
    assert bench.apply(ListCells("log/")) == found
    assert _names(bench, ListCells("log/", backwards=True)) == expected[::-1]
    assert bench.apply(ListCells("unused/")) == ()


def cells_are_listed_page_by_page(bench: Bench) -> None:
    names = [f"log/{n:03d}" for n in range(7)]
    _listed(bench, *reversed(names))
    for backwards in (False, True):
        seen, page = list[str](), _names(bench, ListCells("log/", limit=3, backwards=backwards))
        while page and len(seen) <= len(names):
            assert len(page) <= 3
            seen += page
            page = _names(bench, ListCells("log/", page[-1], 3, backwards))
        assert seen == (names[::-1] if backwards else names)
    assert _names(bench, ListCells("log/", "log/0025")) == names[3:]
    assert _names(bench, ListCells("log/", "log/0025", backwards=True)) == names[2::-1]
    assert _names(bench, ListCells("log/", "a")) == names
    assert _names(bench, ListCells("log/", "z")) == []


def a_listed_cell_shows_its_last_value(bench: Bench) -> None:
    _listed(bench, "log/a")
    seen = bench.apply(ReadCell("log/a")).revision
    assert bench.apply(WriteCell("log/a", seen, b"two", KEEP_S, listed=True)) is None
    assert bench.apply(ListCells("log/")) == (("log/a", b"two"),)


def a_cell_past_its_time_is_not_listed(bench: Bench) -> None:
    _listed(bench, "log/a", "log/b")
    _listed(bench, "log/kept", keep_s=inf)
    bench.clock.advance(KEEP_S - 1)
    _listed(bench, "log/b")
    bench.clock.advance(1)
    assert _names(bench, ListCells("log/", limit=2)) == ["log/b", "log/kept"]
    assert _names(bench, ListCells("log/", limit=1, backwards=True)) == ["log/kept"]
