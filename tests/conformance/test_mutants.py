"""The suite catches every store that is broken on purpose; the kill tests catch every flow that
is.
"""

import pytest

from effectonce.testing.conformance import CHECKS, MODES, Bench
from effectonce.testing.mutants import MUTANTS


def caught_by(mutant, mode):
    """The checks that fail on this store."""
    failed = []
    for check in CHECKS:
        with Bench(mutant.open, mode) as bench:
            try:
                check(bench)
            except (AssertionError, KeyError):
                failed.append(check.__name__)
    return failed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_suite_catches(mutant, mode):
    assert caught_by(mutant, mode), f"no check notices that {mutant.name}"


def test_every_rule_of_the_protocol_has_a_mutant():
    assert {mutant.breaks for mutant in MUTANTS} == set(range(12))
