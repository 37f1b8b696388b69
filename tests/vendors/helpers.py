"""How the facts about vendors are written: `says(error)` is "bucket certainty", with the seconds
to wait if there are any.
"""

import time

import pytest

from effectonce import classify

LETTERS = {"not_sent": "N", "rejected": "R", "ambiguous": "M", "acted": "A"}


def says(thing, now=None):
    """The verdict as the tables write it: `rate_limit R`, `quota R 20 s`."""
    verdict = classify(thing, now=time.time() if now is None else now)
    delay = "" if verdict.retry_after_s is None else f" {verdict.retry_after_s:g} s"
    return f"{verdict.bucket} {LETTERS[verdict.certainty]}{delay}"


def raised(call):
    """The error that *call* raises."""
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def rows(table):
    """Return (name, expected) for each name of a table that groups names by what they mean."""
    return [(name, expected) for expected, names in table.items() for name in names.split()]
