"""Every store, both colours, one suite."""

import pytest

from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance import CHECKS, COLOURS, Bench

OPENERS = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda asked, clock: SqliteStore(asked.getfixturevalue("tmp_path") / "effects.db", clock=clock),
    "postgres": lambda asked, clock: PostgresStore(asked.getfixturevalue("postgres").emptied(), clock=clock),
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("backend", OPENERS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, backend, colour, request):
    with Bench(lambda clock: OPENERS[backend](request, clock), colour) as bench:
        check(bench)


def test_the_suite_is_not_empty():
    assert len(CHECKS) >= 60
