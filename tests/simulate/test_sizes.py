"""A size with which nothing would happen is refused, and not told as a result."""

from math import inf, nan

import pytest

from effectonce.simulate import budget, jitter, storm, turns


@pytest.mark.parametrize(
    ("experiment", "sizes"),
    [
        (jitter, {"clients": 0}),
        (jitter, {"clients": -1}),
        (jitter, {"runs": 0}),
        (storm, {"rate": 0}),
        (storm, {"rate": -1.0}),
        (storm, {"rate": nan}),
        (storm, {"rate": inf}),
        (turns, {"turns": 0}),
        (turns, {"turns": -5}),
        (budget, {"calls": 1}),
        (budget, {"attempts": 0}),
    ],
    ids=str,
)
def test_a_size_with_which_there_is_nothing_to_see_is_refused_by_name(experiment, sizes):
    ((name, size),) = sizes.items()

    with pytest.raises(ValueError, match=rf"^{name}={size}: choose 1(00)? or more$"):
        experiment.simulate(**sizes)


@pytest.mark.parametrize("waits", [{"base_ms": 0}, {"base_ms": 10, "cap_ms": 5}, {"message_ms": 0}])
def test_waits_that_make_no_sense_are_refused(waits):
    with pytest.raises(ValueError, match="_ms="):
        jitter.Waits(**waits)
