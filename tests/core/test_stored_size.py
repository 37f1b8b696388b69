"""A result that is too large to be stored: it is known as done, and a repeat does not run the
tool again.
"""

import pytest

from effectonce import Guard, ResultUnavailable
from effectonce._core.codec import STORED_BYTES_MAX

HUGE = "x" * (STORED_BYTES_MAX + 1)


def test_a_result_that_is_too_large_is_returned_once_and_known_as_done():
    guard, runs = Guard("memory://", cache=0), []

    @guard.tool(kind="write")
    def export(report: str) -> str:
        runs.append(report)
        return HUGE

    with guard.step("chat", "export"):
        assert export("march") is HUGE
        with pytest.raises(ResultUnavailable, match="at most 16,777,216 are stored"):
            export("march")
    assert runs == ["march"]
