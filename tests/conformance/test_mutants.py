"""The suite catches every store that is broken on purpose. `python -m tests.mutants` prints the
check that does.
"""

import pytest

from effectonce.testing.conformance import CHECKS, MODES, Bench
from effectonce.testing.mutants import MUTANTS


def fails(check, mutant, mode):
    with Bench(mutant.open, mode) as bench:
        try:
            check(bench)
        except (AssertionError, KeyError):
            return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_suite_catches(mutant, mode):
    assert any(fails(check, mutant, mode) for check in CHECKS), (
        f"no check notices that {mutant.name}"
    )


def test_every_rule_of_the_protocol_has_a_mutant():
    assert {mutant.breaks for mutant in MUTANTS} == set(range(12))
