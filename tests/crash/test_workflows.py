"""Ten steps, killed at random moments and resumed: each effect once, the same result for
everybody. 1,000 runs each in `make soak`.
"""

from tests.crash.tiers import on_stores
from tests.crash.workflows import soak


@on_stores("sqlite", name="store")
def test_a_workflow_that_is_killed_again_and_again_does_each_step_once(store):
    verdict = soak(12, store)

    assert verdict["killed"] >= 12
    assert verdict["broken"] == []
