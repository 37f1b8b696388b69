"""The flow is stopped before and after each op it yields, for every kind, downstream and colour,
and resumed by another process.

What must hold is read from the guarantee table: the same data that the engine and the README use.
"""

import itertools
from pathlib import Path

import pytest

from effectonce import Keyring
from effectonce._core.guarantees import Capability, Kind, Resend
from effectonce.stores.encrypted import Sealed
from tests.crash.tiers import COLOURS, KINDS, combinations, in_colours
from tests.crash.world import DELAY_S, LEASE_S, World, status

SCENARIOS = (
    ("ok",),
    ("lost", "ok"),
    ("landed-unanswered", "ok"),
    ("not-sent", "ok"),
    ("busy", "ok"),
    ("refused",),
    ("lost", "refused"),
    ("landed-unanswered", "refused"),
    ("landed-unanswered", "not-sent", "ok"),
)
# a server takes a moment for each world
SERVER_SCENARIOS = (("ok",), ("landed-unanswered", "ok"), ("lost", "refused"))
MAX_OPS = 60
# What a store sees of a flow differs most between these two.
ENDS = ((Capability.KEY, "sync"), (Capability.TRANSACTION, "async"))


def worlds(
    place,
    kind,
    capability,
    colour,
    *,
    separate_dispatch=False,
    probe=True,
    delay_s=None,
    keyring=None,
    open_store=None,
    scenarios=SCENARIOS,
):
    """Every scenario, dying at every op, before and after it. The place is a folder, or a server
    that is used for every world.
    """
    for scenario, when in itertools.product(scenarios, ("before", "after")):
        for nth in range(MAX_OPS):
            behaviours = (
                ()
                if capability is Capability.TRANSACTION and "landed-unanswered" in scenario
                else scenario
            )
            world = World(
                kind,
                capability,
                colour,
                behaviours,
                separate_dispatch,
                delay_s,
                probe,
                die_at=(nth, when),
            )
            if not isinstance(place, Path):
                world.use_postgres(place.emptied())
            elif capability is Capability.TRANSACTION:
                world.use_sqlite(place / f"{'-'.join(scenario)}-{when}-{nth}.db")
            elif open_store is not None:
                world.store = open_store(world.clock)
            if keyring is not None:
                world.store = Sealed(world.store, keyring)
            died = world.crashed_call()
            yield scenario, world
            world.store.close()
            if not died:
                break


def resume(world, calls=3):
    """Other processes call the same effect, each after the last one's lease."""
    results = []
    for _ in range(calls):
        world.clock.advance(LEASE_S + 1)
        results.append(world.call())
    return results


def check(world, scenario, results):
    context = (
        f"{world.kind} {world.capability} {scenario} log={[type(op).__name__ for op in world.log]}"
        f" {results}"
    )
    effects, last, guarantee = world.count(), results[-1], world.guarantee
    if guarantee.effects_max is not None:
        assert effects <= guarantee.effects_max, f"duplicate: {context}"
    told = [result for result in results if status(result) == "succeeded"]
    assert all(result.value == told[0].value for result in told), f"callers disagree: {context}"
    if told:
        assert effects >= 1, f"phantom success: {context}"
        assert status(last) == "succeeded", f"a known outcome was lost: {context}"
    if any(status(result) == "failed" for result in results):
        assert effects == 0, f"false failure: {context}"
        assert not told, f"callers disagree: {context}"
    if guarantee.resend in (Resend.ALWAYS, Resend.WINDOW) and "refused" not in scenario:
        assert status(last) == "succeeded", f"wedged: {context}"
    else:
        assert status(last) in ("succeeded", "failed", "in_doubt"), f"unsettled: {context}"


@pytest.mark.parametrize(("kind", "capability", "colour"), combinations(KINDS, Capability))
def test_killed_at_every_op_the_guarantee_holds(kind, capability, colour, tmp_path):
    runs = 0
    for scenario, world in worlds(tmp_path, kind, capability, colour):
        check(world, scenario, resume(world))
        runs += 1
    assert runs > 40


@pytest.mark.parametrize(
    ("capability", "colour"),
    [
        pytest.param(each, colour, marks=() if (each, colour) in ENDS else pytest.mark.long)
        for each in Capability
        for colour in COLOURS
    ],
)
def test_killed_at_every_op_on_a_sealed_store_the_guarantee_holds(capability, colour, tmp_path):
    for scenario, world in worlds(
        tmp_path, Kind.WRITE, capability, colour, keyring=Keyring({"2026-11": b"n" * 32})
    ):
        check(world, scenario, resume(world))


@pytest.mark.parametrize(
    ("capability", "colour"),
    [
        pytest.param(each, colour, marks=() if (each, colour) in ENDS else pytest.mark.long)
        for each in Capability
        for colour in COLOURS
    ],
)
def test_killed_at_every_op_the_guarantee_holds_on_postgres(capability, colour, postgres):
    runs = 0
    for scenario, world in worlds(
        postgres, Kind.WRITE, capability, colour, scenarios=SERVER_SCENARIOS
    ):
        check(world, scenario, resume(world))
        runs += 1
    assert runs > 20


@pytest.mark.parametrize(
    ("kind", "capability", "colour"),
    combinations(
        (Kind.WRITE, Kind.IRREVERSIBLE), (Capability.KEY, Capability.PROBE, Capability.NONE)
    ),
)
def test_killed_at_every_op_with_a_separate_dispatch_the_guarantee_holds(
    kind, capability, colour, tmp_path
):
    for scenario, world in worlds(tmp_path, kind, capability, colour, separate_dispatch=True):
        died_unsent = world.sends == 0 and type(world.log[-1]).__name__ == "Claim"
        results = resume(world)
        check(world, scenario, results)
        if died_unsent and scenario == ("ok",):
            assert status(results[-1]) == "succeeded", (
                "a crash between claim and dispatch is re-run, not doubted"
            )


@pytest.mark.cover(1)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.IRREVERSIBLE])
def test_killed_at_every_op_while_the_probe_cannot_tell_nothing_is_re_run(kind, colour, tmp_path):
    for scenario, world in worlds(tmp_path, kind, Capability.PROBE, colour, probe=False):
        check(world, scenario, resume(world))


@in_colours("async")
def test_killed_at_every_op_a_declared_delay_bound_lets_a_write_finish(colour, tmp_path):
    for scenario, world in worlds(tmp_path, Kind.WRITE, Capability.PROBE, colour, delay_s=DELAY_S):
        results = resume(world, calls=6)
        check(world, scenario, results)
        if scenario == ("ok",):
            assert status(results[-1]) == "succeeded"
            assert world.count() == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_an_irreversible_effect_that_its_probe_does_not_find_waits_for_a_person(colour):
    world = World(Kind.IRREVERSIBLE, Capability.PROBE, colour, ("lost",), delay_s=0.0)

    results = [world.call(), *resume(world)]

    assert [status(result) for result in results] == ["in_doubt"] * 4
    assert (world.sends, world.count()) == (1, 0)


@in_colours("sync")
def test_killed_twice_in_a_row_the_guarantee_holds(colour):
    for capability, first, second in itertools.product(
        (Capability.KEY, Capability.NONE), range(6), range(6)
    ):
        for when in itertools.product(("before", "after"), repeat=2):
            world = World(Kind.WRITE, capability, colour, die_at=(first, when[0]))
            world.crashed_call()
            world.clock.advance(LEASE_S + 1)
            world.die_at = (world.now_at + 1 + second, when[1])
            world.crashed_call()
            world.die_at = None
            check(world, ("ok",), resume(world))


def test_the_command_stream_reads_like_the_protocol():
    world = World(Kind.WRITE, Capability.KEY, "sync", ("not-sent", "lost", "ok"))

    assert status(world.call()) == "succeeded"

    names = [type(op).__name__ for op in world.log]
    assert names == [
        "ReadCell",  # what is paused
        *("Claim", "Invoke", "Unsend", "Attest", "Sleep"),
        *("Dispatch", "Invoke", "Attest", "Sleep"),
        *("Dispatch", "Invoke", "Complete"),
    ]
