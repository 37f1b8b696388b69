"""The suite catches every store that is broken on purpose; the kill tests catch every flow that is."""

import pytest

from effectonce.testing.conformance import CHECKS, COLOURS, Bench
from effectonce.testing.mutants import MUTANTS


def caught_by(mutant, colour):
    """The checks that fail on this store."""
    failed = []
    for check in CHECKS:
        with Bench(mutant.open, colour) as bench:
            try:
                check(bench)
            except (AssertionError, KeyError):
                failed.append(check.__name__)
    return failed


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_suite_catches(mutant, colour):
    assert caught_by(mutant, colour), f"no check notices that {mutant.name}"


def test_every_rule_of_the_protocol_has_a_mutant():
    assert {mutant.breaks for mutant in MUTANTS} == set(range(12))
