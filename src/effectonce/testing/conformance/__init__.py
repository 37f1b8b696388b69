"""What every store must do, as plain functions: run them against your own store, sync and async.

    from effectonce.testing import conformance

    @pytest.mark.parametrize("mode", conformance.MODES)
    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
    def test_my_store_conforms(check, mode, tmp_path):
        make = lambda clock: MyStore(tmp_path / "my.db", clock=clock)
        with conformance.Bench(make, mode) as bench:
            check(bench)

Let pytest say what a check found, in your conftest.py:
`pytest.register_assert_rewrite("effectonce.testing.conformance")`.

A check is the same for sync and async, and never waits: the bench has a clock that is turned by
hand. Your store is opened again, in the same place, to see whether it is as durable as it says.
A store that passes them all behaves like the reference; `effectonce.testing.mutants` is the list
of stores that must not pass.
"""

from __future__ import annotations

from collections.abc import Callable

from effectonce.testing.conformance import (
    approvals,
    cells,
    claims,
    doubts,
    neighbours,
    owners,
    pages,
    promises,
    together,
)
from effectonce.testing.conformance.bench import MODES, Bench, Mode

__all__ = ["CHECKS", "MODES", "Bench", "Mode"]

CHECKS: tuple[Callable[[Bench], None], ...] = tuple(
    check
    for room in (claims, owners, doubts, approvals, neighbours, pages, cells, together, promises)
    for check in vars(room).values()
    if callable(check)
    and getattr(check, "__annotations__", {}) == {"bench": "Bench", "return": "None"}
)
