"""Code as people write it: what is found in it, and what must not be."""

import re
from pathlib import Path

SNIPPET = re.compile(r"^## ([^\n]+)\n\n```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(name):
    """By their titles."""
    return dict(SNIPPET.findall((Path(__file__).parent / name).read_text()))


FOUND, NOT_FOUND = snippets("found.md"), snippets("not_found.md")
