"""A few thousand raw requests to each door, in every run; `python -m tests.attacks.fuzz
--requests 1000000` sends more.
"""

import pytest

from tests.attacks.doors import DOORS
from tests.attacks.fuzz import fuzz


@pytest.mark.parametrize("door", DOORS)
def test_raw_requests_find_no_way_through(door):
    statuses, wrong, effects, _ = fuzz(door, 800)

    assert wrong == []
    assert sum(statuses.values()) == 800
    assert (effects > 20) == (door != "dashboard")
