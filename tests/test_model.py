"""The model covers the whole table, holds, and finds what it must find. `python model/run.py` is
the same at larger bounds.
"""

import sys
from pathlib import Path

import pytest

from effectonce._core.rules import RULES

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))

import spending
from cases import BAD, QUICK
from explore import explore
from moves import Moves

# Rules that no good case of the model uses, and why.
NOT_MODELLED = {
    # A time window lets an effect repeat once it is over: that is what its user asked for, so
    # "once" is not there to be checked.
    ("T13", "Claim", "completed", "dispatched"),
    ("T13", "Claim", "completed", "claimed"),
    ("T13", "Claim", "failed", "dispatched"),
    ("T13", "Claim", "failed", "claimed"),
    # A key that is forgotten is as good as new: with a finite `tombstone_s` that is what its
    # user asked for.
    ("T12", "Sweep", "completed", "absent"),
    ("T12", "Sweep", "failed", "absent"),
    ("T12", "Sweep", "tombstone", "absent"),
}


def by_name(case):
    return case.name


def test_the_protocol_holds_and_every_rule_is_modelled_or_listed_with_a_reason():
    fired = set()
    for case in QUICK:
        report = explore(case)
        assert report.violations == {}, case.name
        assert report.stuck == 0, case.name
        fired |= report.fired

    table = {(rule.name, rule.op.__name__, rule.start, rule.end) for rule in RULES}
    assert fired | NOT_MODELLED == table
    assert fired & NOT_MODELLED == set()


@pytest.mark.long
@pytest.mark.parametrize("case", BAD, ids=by_name)
def test_a_sabotage_is_found(case):
    report = explore(case)

    assert case.expect in report.violations, report.violations
    assert report.violations[case.expect], "the way there"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.long) if "two payments" in case.name else case
        for case in spending.QUICK
    ],
    ids=by_name,
)
def test_an_allowance_holds_in_every_order(case):
    assert spending.explore(case).flaw == ""


@pytest.mark.long
@pytest.mark.parametrize("case", spending.BAD, ids=by_name)
def test_a_sabotage_of_an_allowance_is_found(case):
    report = spending.explore(case)

    assert report.flaw == case.expect
    assert report.trace, "the way there"


def test_workers_in_the_same_pose_do_the_same_whatever_led_them_there():
    moves = Moves(next(case for case in QUICK if case.cancels and case.throttles))
    seen, new = set(), {moves.first()}
    while new and len(seen) < 3000:
        seen |= new
        new = {after for world in new for _, after in moves.of(world)} - seen

    flows = moves.flows
    compared = 0
    for pose, twin in flows.twins.items():
        for answer in flows.answers(pose):
            one, other = (
                flows.replay((*flows.histories[pose], answer)),
                flows.replay((*twin, answer)),
            )
            assert (one.op, one.ending, one.cancelled) == (other.op, other.ending, other.cancelled)
            assert one.op is None or one.pose() == other.pose()
            compared += 1
    assert compared > 50
