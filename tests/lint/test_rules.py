"""Each rule finds what it is about, and nothing else."""

import re

import pytest

from effectonce.lint import CODES, check_source, page
from effectonce.lint import _known as known
from tests.lint.snippets import FOUND, NOT_FOUND


def codes(source):
    return {finding.code for finding in check_source(source)}


@pytest.mark.parametrize("code", CODES)
def test_the_examples_of_a_rule_are_what_it_says(code):
    told = page(code)

    assert codes(told.bad) == {code}
    assert codes(told.good) == set()
    assert told.name
    assert told.why


@pytest.mark.parametrize("title", FOUND)
def test_what_people_write_is_found(title):
    assert title.partition(":")[0] in codes(FOUND[title])


@pytest.mark.parametrize("title", NOT_FOUND)
def test_what_is_right_is_not_found(title):
    assert check_source(NOT_FOUND[title]) == []


@pytest.mark.parametrize("code", CODES)
def test_what_is_said_is_a_sentence_that_ends(code):
    for finding in check_source(page(code).bad):
        assert finding.message.endswith(".")
        assert not finding.message.endswith("..")
        assert not re.search(r"\s{2}|\{|\bNone\b", finding.message.replace("jitter=None", ""))
        assert len(finding.message) < 320


def test_one_for_each_item_is_said_as_that():
    (finding,) = check_source(FOUND["EO205: one for each"])

    assert finding.message.startswith("pay does this for each item")


def test_every_rule_has_a_case_of_its_own():
    assert {title.partition(":")[0] for title in FOUND} >= {code for code in CODES if code >= "EO1"}


def test_no_file_about_us_is_passed_by_for_its_words():
    """A file is only looked at if it has one of them, so each pattern has one too."""
    frameworks = [row[0] for table in (known.TOOLS, known.AGENTS, known.ENGINES) for row in table]
    sends = [known.HTTP, *(pattern for pattern, _ in known.EFFECTS)]

    def without(patterns, words):
        return [
            p.pattern
            for p in patterns
            if not any(word in p.pattern.replace("\\", "").lower() for word in words)
        ]

    assert without(frameworks, known.WORDS) == []
    assert without(sends, known.SENDS) == []
    assert without([row[0] for row in known.ENDPOINTS], known.SERVES) == []
    assert [
        library
        for library in known.RETRY_DECORATORS.values()
        if not any(word in library for word in known.WORDS)
    ] == []
