"""The table of SECURITY.md: each promise names a test, and the test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_promise_names_a_test_that_is_there():
    named = re.findall(
        r"^\|.*\| `(tests/[\w/]+\.py)::(\w+)` \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE
    )

    assert len(named) > 5
    for file, name in named:
        defined = {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in defined, f"{file}::{name}"


def test_every_line_of_the_table_names_a_test():
    table = (ROOT / "SECURITY.md").read_text().partition("| who attacks |")[2].splitlines()[2:]
    rows = [line for line in table if line.startswith("|")]

    assert rows
    assert [row for row in rows if "`tests/" not in row] == []
