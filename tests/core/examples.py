"""Properties in two tiers: `make test` tries a few examples of each, `make test-all` tries all."""

import functools
import inspect

import pytest
from hypothesis import given, settings

from tests.tiers import long_except


def two_tiers(smoke, full):
    """The parameter `number`: *smoke*, and in the long tier *full*."""
    return pytest.mark.parametrize("number", long_except([smoke], [smoke, full]))


def examples(*strategies, smoke=20, full=100, derandomize=False, **named_strategies):
    """Like `given`: with *smoke* examples, and in the long tier with *full* ones."""

    def decorate(check):
        checks = {
            number: settings(max_examples=number, derandomize=derandomize)(
                given(*strategies, **named_strategies)(check)
            )
            for number in (smoke, full)
        }

        @functools.wraps(check, updated=())
        def test(number, **fixtures):
            checks[number](**fixtures)

        fixtures = inspect.signature(checks[smoke]).parameters.values()
        number = inspect.Parameter("number", inspect.Parameter.KEYWORD_ONLY)
        test.__signature__ = inspect.Signature([*fixtures, number])
        return two_tiers(smoke, full)(test)

    return decorate
