"""Ten steps, killed at random moments and resumed: each effect once, the same result for
everybody. 1,000 runs each in `make soak`.
"""

import pytest

from tests.crash.workflows import soak


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_a_workflow_that_is_killed_again_and_again_does_each_step_once(store):
    verdict = soak(24, store)

    assert verdict["killed"] >= 24
    assert verdict["broken"] == []
