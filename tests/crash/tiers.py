"""Which stores, kinds and colours the small tier kills processes on."""

import pytest

from effectonce._core.guarantees import Capability, Kind
from tests.tiers import long_except

STORES = ("sqlite", "postgres", "redis")
COLOURS = ("sync", "async")
KINDS = [kind for kind in Kind if kind is not Kind.READ]


def on_stores(*small, name="url"):
    """Run a test on every store, in the small tier on these."""
    return pytest.mark.parametrize(name, long_except(small, STORES), indirect=name == "url")


def is_small(kind, capability, colour):
    """Tell whether the small tier has this combination: each kind with each capability once,
    alternating between the colours.
    """
    number = KINDS.index(kind) + list(Capability).index(capability)
    return colour == COLOURS[number % 2]


def combinations(kinds, capabilities):
    """A case for each kind with each capability in each colour."""
    return [
        pytest.param(
            kind,
            capability,
            colour,
            id=f"{kind}-{capability}-{colour}",
            marks=() if is_small(kind, capability, colour) else pytest.mark.long,
        )
        for kind in kinds
        for capability in capabilities
        for colour in COLOURS
    ]


def in_colours(*small):
    return pytest.mark.parametrize("colour", long_except(small, COLOURS))
