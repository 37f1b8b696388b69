"""Both stores, both colours, one suite."""

import pytest

from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance import CHECKS, COLOURS, Bench

OPENERS = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda path, clock: SqliteStore(path / "effects.db", clock=clock),
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("backend", OPENERS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, backend, colour, tmp_path):
    with Bench(lambda clock: OPENERS[backend](tmp_path, clock), colour) as bench:
        check(bench)


def test_the_suite_is_not_empty():
    assert len(CHECKS) >= 60
