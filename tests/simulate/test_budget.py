"""What a retry budget allows while some calls fail, beside gRPC's throttle."""

import re
from pathlib import Path

import pytest

from effectonce.simulate import budget

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "simulations.md"


@pytest.fixture(scope="module")
def result():
    return budget.simulate()


def of(result, policy, figure):
    found = next(one for one in result.policies if one.policy == policy)
    return dict(zip(result.shares, getattr(found, figure), strict=True))


def test_where_retries_help_the_budget_allows_all_of_them(result):
    allowed = of(result, "effectonce", "allowed")

    assert [allowed[share] for share in (0.01, 0.05, 0.1, 0.2)] == [1, 1, 1, 1]


def test_where_nothing_answers_it_allows_hardly_any(result):
    assert of(result, "effectonce", "sent")[1.0] < 1.01
    assert of(result, "none", "sent")[1.0] == 3


def test_the_throttle_of_grpc_stops_at_one_failure_in_ten(result):
    allowed = of(result, "gRPC A6", "allowed")

    assert allowed[0.05] > 0.95
    assert allowed[0.1] < 0.5
    assert allowed[0.2] < 0.01


def test_the_same_seed_gives_the_same_figures():
    few = {"calls": 200}

    assert budget.simulate(seed=1, **few) == budget.simulate(seed=1, **few)
    assert budget.simulate(seed=1, **few) != budget.simulate(seed=2, **few)


def test_the_budget_is_the_shipped_one(monkeypatch):
    monkeypatch.setattr(budget.RetryBudget, "refund", lambda self, verdict: None)

    assert of(budget.simulate(), "effectonce", "allowed")[0.2] < 0.4


def test_the_page_shows_the_figures(result):
    shown = re.search(r"<!-- budget -->\n(.*?)<!-- /budget -->", PAGE.read_text(), re.DOTALL)[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines()[2:]
    ]

    assert rows == [
        [
            f"{share:.0%}",
            *(
                f"{of(result, policy, 'allowed')[share]:.1%}"
                for policy in ("effectonce", "gRPC A6")
            ),
            *(
                f"{of(result, policy, 'failed')[share]:.1%}"
                for policy in ("none", "effectonce", "gRPC A6")
            ),
        ]
        for share in result.shares
    ]
