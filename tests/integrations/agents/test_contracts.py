"""A contract that is declared by name and misspelt is told when it is declared."""

import pytest

from effectonce import ContractViolation, Guard
from effectonce.integrations._tools import Toolbox


@pytest.mark.parametrize(
    ("option", "guess"),
    [("volatle", "did you mean 'volatile'\\?"), ("x", "there are kind, downstream, identity, volatile, ")],
)
def test_an_option_that_there_is_not_is_told_with_what_there_is(option, guess):
    with pytest.raises(ContractViolation, match=f"refund: a contract has no '{option}'; {guess}"):
        Toolbox(Guard("memory://"), {"refund": {option: ["reason"]}}, None)
