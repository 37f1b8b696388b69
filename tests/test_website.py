"""What the site is made of. `make docs` builds it, and looks at it in a browser."""

import importlib
import re

from website.api import api_page, public_names
from website.build import PARTS, llms_txt, toctrees, within_the_site
from website.diagrams import Message, recorded_call, rules_table, sequence_svg, states_svg

import effectonce
from effectonce import State
from effectonce._core.rules import RULES
from effectonce.cli._pages import DocsPage, docs_pages


def test_every_public_name_is_on_a_page():
    names = public_names()

    assert names["effectonce"] == effectonce.__all__
    for module, listed in names.items():
        page = api_page(module, listed)
        assert [name for name in listed if f":: {module}.{name}\n" not in page] == []


def test_a_public_module_leaves_out_only_what_its_package_lists():
    for module, listed in public_names().items():
        left_out = set(importlib.import_module(module).__all__) - set(listed)
        above = {
            name
            for outer, its in public_names().items()
            if module.startswith(f"{outer}.")
            for name in its
        }
        assert left_out <= above | {
            "github",
            "gmail",
            "imap",
            "jira",
            "s3",
            "slack",
            "stripe",
            "dynamodb",
        }, module


def test_the_sidebar_has_every_page_once_in_the_order_of_the_index():
    topics = [page.topic for page in docs_pages()]
    shown = re.findall(r"^[a-z]+/.+$", toctrees(topics), re.MULTILINE)

    assert sorted(shown) == sorted(topics[1:])
    for part in PARTS:
        assert [t for t in shown if t.startswith(part)] == [t for t in topics if t.startswith(part)]


def test_the_picture_of_the_states_has_every_state_and_every_rule():
    picture = states_svg()

    assert {str(state) for state in State} <= set(re.findall(r"<tspan[^>]*>(\w+)<", picture))
    assert {rule.name for rule in RULES} <= set(re.findall(r"\w+", picture))
    moves = {(rule.start, rule.end) for rule in RULES if rule.start is not rule.end}
    assert picture.count("marker-end") == len(moves)


def test_a_rule_that_goes_away_goes_away_from_the_picture_and_the_table():
    fewer = tuple(rule for rule in RULES if rule.name != "T9")

    assert "T9" in states_svg()
    assert "T9" not in states_svg(fewer)
    assert len(rules_table(fewer).splitlines()) == len(rules_table().splitlines()) - 1


def test_the_picture_of_a_call_is_what_happens():
    said = recorded_call()

    assert [m.words for m in said if m.end == 2] == [
        "Claim (T1: absent → dispatched)",
        "Complete (T5: dispatched → completed)",
        "Claim",
    ]
    assert sum(message.end == 3 for message in said) == 1  # one effect for two calls
    assert all(message.words in sequence_svg(said) for message in said)


def test_what_is_said_cannot_break_the_picture():
    assert "&lt;script>" in sequence_svg([Message(0, 1, "<script>")])


def test_programs_get_one_line_for_each_page():
    pages = docs_pages()
    text = llms_txt(pages, ["effectonce"])

    for page in pages[1:]:
        assert text.count(f"]({page.topic}.html): {page.wish}\n") == 1
    assert "- [effectonce](python/effectonce.html): " in text


def test_links_out_of_the_pages_become_downloads_or_words():
    text = "[a](../../examples/undo.py) [b](../../tests/core) [c](mcp.md#x) [d](https://e.org/f)"

    assert within_the_site(DocsPage(topic="howto/undo", wish="", text=text)) == (
        "{download}`a <../../examples/undo.py>` b [c](mcp.md#x) [d](https://e.org/f)"
    )
