"""What others wrote has nothing in it that a terminal obeys, and loses nothing in JSON."""

import json
import sys
import unicodedata

import pytest

from effectonce._text import harmless, harmless_json, on_one_line

EVERY = "".join(map(chr, range(sys.maxunicode + 1)))
SEEN = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)  # signs around numbers


def obeyed():
    """All that is no text by Unicode's own account: controls, formats, halves, ends of lines."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {char for char in EVERY if unicodedata.category(char) in kinds} - SEEN


def test_no_control_is_left_but_ends_of_lines_and_tabs():
    left = {char for char in obeyed() if char in harmless(char)}

    assert {"\n", "\t"} <= left
    assert {unicodedata.name(char, repr(char)).split()[0] for char in left - {"\n", "\t"}} <= {
        "EGYPTIAN",
        "SHORTHAND",
        "MUSICAL",
    }


def test_a_row_stays_one_row():
    assert on_one_line("a\nb\tc\rd") == "a b c\N{REPLACEMENT CHARACTER}d"


@pytest.mark.parametrize("text", ["plain", "\x1b[2J", "\ud83d", "\U000e0041", "a\nb", "\u202e"])
def test_json_means_the_same(text):
    document = harmless_json(json.dumps([text], ensure_ascii=False))

    assert json.loads(document) == [text]
    assert document.isprintable()


def test_text_is_left_alone():
    said = "Grüße, 銀行 ₹ עברית 🙂"

    assert harmless(said) == on_one_line(said) == harmless_json(said) == said
