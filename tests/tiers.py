"""Two tiers of tests: `make test` leaves out the tests marked `long`, `make test-all` runs them too.

A test carries `@pytest.mark.long` when a quicker test guards the same promise. A test with several
axes of parameters (decorators, parametrized fixtures, or both) carries `@pytest.mark.cover(n)`:

    cover(1)    the axes do not interact: each value of each axis runs at least once
    cover(2)    pairs may interact: each pair of values runs at least once

The remaining combinations are marked `long`.
"""

import itertools

import pytest


def long_except(quick, values):
    """Return the values of a parameter: those that are not among *quick* are marked `long`."""
    return [
        value if value in quick else pytest.param(value, marks=pytest.mark.long) for value in values
    ]


def mark_long_combinations(items):
    """Mark the combinations that the tests with `cover` do not need as `long`."""
    families = {}
    for item in items:
        marker = item.get_closest_marker("cover")
        if marker is not None and item.get_closest_marker("long") is None:
            strength = marker.args[0]
            families.setdefault((item.nodeid.partition("[")[0], strength), []).append(item)
    for (_, strength), family in families.items():
        combinations = [_values(item) for item in family]
        needed = covering(combinations, strength)
        for position, item in enumerate(family):
            if position not in needed:
                item.add_marker(pytest.mark.long)


def covering(combinations, strength):
    """Return the positions of combinations that together have each *strength* values at once."""
    subsets = [
        set(itertools.combinations(enumerate(values), min(strength, len(values))))
        for values in combinations
    ]
    missing = set().union(*subsets)
    chosen = set()
    while missing:
        best = max(range(len(subsets)), key=lambda position: len(subsets[position] & missing))
        chosen.add(best)
        missing -= subsets[best]
    return chosen


def _values(item):
    """Return a value for each axis: the names of one `parametrize` are one axis, a fixture another.

    Values count by identity, because they need not be hashable.
    """
    parameters = item.callspec.params
    axes = [_names(marker.args[0]) for marker in item.iter_markers("parametrize")]
    fixtures = sorted(parameters.keys() - {name for names in axes for name in names})
    axes += [[name] for name in fixtures]
    return tuple(tuple(id(parameters[name]) for name in names) for names in axes)


def _names(argument):
    if isinstance(argument, str):
        return [name.strip() for name in argument.split(",")]
    return list(argument)
