"""Raw requests to each door, in every run; `python -m tests.attacks.fuzz --requests 1000000`
sends more.
"""

import pytest

from tests.attacks.doors import DOORS
from tests.attacks.fuzz import fuzz


@pytest.mark.parametrize("requests", [160, pytest.param(800, marks=pytest.mark.long)])
@pytest.mark.parametrize("door", DOORS)
def test_raw_requests_find_no_way_through(door, requests):
    statuses, wrong, effects, _ = fuzz(door, requests)

    assert wrong == []
    assert sum(statuses.values()) == requests
    assert (effects > requests // 40) == (door != "dashboard")
