"""A size with which nothing would happen is refused, and not told as a result."""

from math import inf, nan

import pytest

from effectonce.simulate import jitter, storm, turns


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
    ],
    ids=str,
)
def test_a_size_with_which_there_is_nothing_to_see_is_refused_by_name(experiment, sizes):
    ((name, size),) = sizes.items()

    with pytest.raises(ValueError, match=rf"^{name}={size}: choose 1(00)? or more$"):
        experiment.simulate(**sizes)
