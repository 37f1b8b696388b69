"""What only a person can settle, by cause."""

from effectonce import CannotTell, Guard
from effectonce.views.doubts import ASK, LOOK, grouped
from effectonce.views.effects import now_of
from tests.core.helpers import QUICK


def test_the_same_tool_and_the_same_cause_are_one_group(clock, store):
    guard = Guard(store, cache=0, reconcile=False)
    errors = [TimeoutError(f"request {n}") for n in range(3)] + [ConnectionResetError("peer (x)")]

    @guard.tool(kind="write", retry=QUICK)
    def pay(n: int):
        raise errors[n]

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    def ship(n: int):
        raise errors[n]

    ship.probe(lambda n: CannotTell())
    for n in range(4):
        with guard.step("pay", n):
            guard.call(pay, {"n": n})
        clock.advance(1)
    with guard.step("ship", 0):
        guard.call(ship, {"n": 0})

    timed_out, *rest = grouped(guard, guard.in_doubt(), now_of(guard))

    first = guard.in_doubt(tool="pay")[0]
    assert (timed_out.tool, timed_out.effects, timed_out.action) == ("pay", 3, LOOK)
    assert timed_out.cause == "it timed out (TimeoutError)"
    assert timed_out.since == first.decided_at
    assert timed_out.command == f"effectonce effect show {timed_out.example}"
    assert {(group.tool, group.action) for group in rest} == {("pay", LOOK), ("ship", ASK)}
    assert next(g for g in rest if g.action == ASK).command == (
        "effectonce indoubt reconcile --tool ship --app MODULE:GUARD"
    )
