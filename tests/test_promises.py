"""The page of promises: every number has a row, and the named tests run in `make test`."""

import ast
import functools
import re
from pathlib import Path

from tests.run import OTHER_ENVIRONMENTS

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "tests" / "promises.md").read_text())
NAMED = sorted({cell for _, *cells in ROWS for cell in cells} - {"-"})
COUNTS = dict(zip("ABCDEFGHIJKLM", (9, 10, 3, 4, 5, 4, 3, 2, 3, 5, 2, 8, 7), strict=True))
UNGUARDED = {"L3", "L4"}  # not built


@functools.cache
def module_body(path):
    return ast.parse((ROOT / path).read_text()).body


def module_marks(body):
    """Return the marks that a module gives to all its tests."""
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return []


def test_every_promise_has_a_row_and_a_test():
    numbers = {f"{letter}{n + 1}" for letter, count in COUNTS.items() for n in range(count)}

    assert {item for item, *_ in ROWS} == numbers
    assert {item for item, lowest, _ in ROWS if lowest == "-"} == UNGUARDED


def test_every_named_test_runs_in_make_test():
    for named in NAMED:
        path, name = re.fullmatch(r"`([\w/]+\.py)::(\w+)`", named).groups()
        body = module_body(path)
        [test] = [node for node in body if getattr(node, "name", "") == name]
        marks = {ast.unparse(mark) for mark in [*test.decorator_list, *module_marks(body)]}

        assert "pytest.mark.long" not in marks, named
        assert not path.startswith(tuple(f"{folder}/" for folder in OTHER_ENVIRONMENTS)), named
