"""The fixtures for other people's tests, on tools that are right and wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TOOLS = """
import fcntl, json, os, pathlib, urllib.request

def _post(order, key=None):
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    request = urllib.request.Request(os.environ["ONCEBENCH_URL"] + "/pay", json.dumps({"order": order}).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=2))

def naive(order):
    done = pathlib.Path(f"done-{order}")
    if not done.exists():
        _post(order)
        done.touch()

def keyed(order):
    for attempt in range(2):
        try:
            return _post(order, key=order)
        except OSError:
            if attempt:
                raise

async def keyed_async(order):
    return keyed(order)
"""


@pytest.fixture
def project(pytester):
    pytester.makepyfile(my_tools=TOOLS)
    source = Path(__file__).parent.parent / "src"
    pytester.makeconftest(
        f"import sys; sys.path.insert(0, {str(source)!r})\npytest_plugins = ['oncebench.plugin']"
    )
    return pytester


def run(project, code, *options):
    project.makepyfile(test_it=textwrap.dedent(code))
    return project.runpytest_subprocess("-p", "no:cacheprovider", *options)


def test_a_tool_that_sends_its_key_passes(project):
    result = run(
        project,
        """
        def test_kills(crash_everywhere):
            trials = crash_everywhere("my_tools:keyed", calls=[["o1"]], points=6)
            assert any(t.where.startswith("kill:") for t in trials)

        def test_answers(lose_every_answer):
            assert len(lose_every_answer("my_tools:keyed_async", calls=[["o1"]])) == 8

        def test_crowd(hammer):
            hammer("my_tools:keyed", call=["o1"], callers=4, honours_keys=True)
        """,
        "--once-seed=7",
    )

    result.assert_outcomes(passed=3)


@pytest.mark.long
def test_a_naive_tool_fails_with_what_happened(project):
    result = run(
        project,
        """
        def test_kills(crash_everywhere):
            crash_everywhere("my_tools:naive", calls=[["o1"]], points=10)

        def test_crowd(hammer):
            hammer("my_tools:naive", call=["o1"], callers=4)
        """,
    )

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*duplicate at kill:recvfrom:1*2 times, 1 is right*"])
    result.stdout.fnmatch_lines(["4 callers, * effects; 1 is right"])


def test_a_bank_that_forgets_is_found_by_the_contract_test(project):
    result = run(
        project,
        """
        def test_good(bank, check_downstream):
            found = check_downstream(bank().url + "/pay", body={"amount": 1}, window_s=0.5)
            assert (found.honours_keys, found.notices_mismatch, found.forgets_within_window) == (True, True, False)

        def test_forgets(bank, check_downstream):
            found = check_downstream(bank(window_s=0.3).url + "/pay", body={"amount": 1}, window_s=1)
            assert found.forgets_within_window is True

        def test_deaf(bank, check_downstream):
            found = check_downstream(bank(window_s=None).url + "/pay", body={"amount": 1})
            assert (found.honours_keys, found.notices_mismatch, found.forgets_within_window) == (False, False, None)
        """,
    )

    result.assert_outcomes(passed=3)
