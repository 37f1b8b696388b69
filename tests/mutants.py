"""Print the first check of the small tier that kills each mutant: python -m tests.mutants

A mutant is broken on purpose: a store, a statement of a store, a flow or a witness of requests.
Each line names the mutant, the check that fails with it, and the seconds until then. A check is
one that `make test` runs on the sound code. The command exits with 1 if a mutant survives.
"""

import contextlib
import itertools
import logging
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from effectonce._core.call import GuardedCall
from effectonce._core.guarantees import Capability, Kind
from effectonce.testing.conformance import CHECKS
from effectonce.testing.mutants import MUTANTS as STORES
from tests.conformance import test_wire_mutants as wire
from tests.conformance.test_mutants import fails
from tests.crash import test_flow_mutants as flows
from tests.crash.test_kill_at_every_op import check, resume, worlds
from tests.crash.tiers import COLOURS, is_small
from tests.http import test_witness_mutants as witness
from tests.servers.postgres import Postgres


def broken_stores():
    for mutant in STORES:
        yield f"store: {mutant.name}", partial(first_check, mutant)


def first_check(mutant):
    return next((check.__name__ for check in CHECKS if fails(check, mutant, "sync")), None)


def broken_statements(folder, postgres, monkeypatch):
    for fault in wire.SQLITE:
        killer = partial(wire.caught_on_sqlite, fault, folder, monkeypatch)
        yield f"statement of SQLite: {fault}", killer
    for fault in wire.POSTGRES:
        killer = partial(wire.caught_on_postgres, fault, postgres, monkeypatch)
        yield f"statement of PostgreSQL: {fault}", killer
    for fault in wire.REDIS:
        yield f"statement of Redis: {fault}", partial(wire.caught_on_redis, fault, monkeypatch)


def broken_flows(folder, monkeypatch):
    for method, sabotage, _ in flows.MUTANTS:
        killer = partial(first_flow_check, method, sabotage, folder, monkeypatch)
        yield f"flow: {sabotage.__name__}", killer


def first_flow_check(method, sabotage, folder, monkeypatch):
    monkeypatch.setattr(GuardedCall, method, sabotage)
    return next((name for name, run in flow_checks(folder) if is_killed_by(run)), None)


def flow_checks(folder):
    """The facts of the sound flow, and the cases of two tests that kill a process at every op."""
    for fact in flows.FACTS:
        yield fact.__name__, partial(fact, folder)
    cases = itertools.product(
        (False, True),
        (Kind.WRITE, Kind.IRREVERSIBLE),
        (Capability.NONE, Capability.KEY, Capability.PROBE),
        COLOURS,
    )
    for separate, *case in cases:
        if is_small(*case):
            name = "killed_at_every_op" + "_with_a_separate_dispatch" * separate
            run = partial(kill_at_every_op, folder, *case, separate_dispatch=separate)
            yield f"{name}[{'-'.join(case)}]", run


def kill_at_every_op(folder, *case, separate_dispatch):
    for scenario, world in worlds(folder, *case, separate_dispatch=separate_dispatch):
        check(world, scenario, resume(world))


def is_killed_by(run):
    try:
        run()
    except (AssertionError, RecursionError):
        return True
    return False


def broken_witnesses(monkeypatch):
    for sabotage, scene, _ in witness.MUTANTS:
        yield f"witness: {sabotage.__name__}", partial(scene_of, sabotage, scene, monkeypatch)


def scene_of(sabotage, scene, monkeypatch):
    with witness.Ledger() as ledger, contextlib.closing(witness.Scene(ledger)) as prepared:
        sabotage(monkeypatch)
        return scene.__name__ if scene(prepared) != "sound" else None


def main():
    logging.getLogger("effectonce").setLevel(logging.CRITICAL)
    survivors = 0
    with (
        tempfile.TemporaryDirectory(prefix="effectonce-mutants-") as folder,
        Postgres() as postgres,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        mutants = (
            *broken_stores(),
            *broken_statements(Path(folder), postgres, monkeypatch),
            *broken_flows(Path(folder), monkeypatch),
            *broken_witnesses(monkeypatch),
        )
        for name, killer in mutants:
            began = time.monotonic()
            killed_by = killer()
            monkeypatch.undo()
            survivors += killed_by is None
            print(
                f"{name}: {killed_by or 'SURVIVES'}, {time.monotonic() - began:.2f} s", flush=True
            )
    print(f"{len(mutants)} mutants, {survivors} survive")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
