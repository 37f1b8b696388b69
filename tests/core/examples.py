"""Properties in two tiers: `make test` tries a few examples of each, `make test-all` tries all."""

import functools
import inspect

import pytest
from hypothesis import given, settings


def two_tiers(smoke, full):
    """The parameter `number`: *smoke*, and in the long tier *full*."""
    return pytest.mark.parametrize("number", [smoke, pytest.param(full, marks=pytest.mark.long)])


def first_of(values, smoke):
    """Values of a parameter: all but the first *smoke* ones are in the long tier."""
    return [
        *values[:smoke],
        *(pytest.param(each, marks=pytest.mark.long) for each in values[smoke:]),
    ]


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
