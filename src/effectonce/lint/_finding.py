"""What a rule is, and what it finds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from effectonce.lint._reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LintFinding:
    """Something that will go wrong, where it stands."""

    path: str
    line: int
    column: int
    code: str
    message: str
    end_line: int
    # an adapter of effectonce.integrations, or the middleware, which no file may have
    unless: str = ""
    given: str = ""  # and the other way round


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a rule found something, and what to say about it."""

    node: ast.AST
    message: str
    unless: str = ""
    given: str = ""


# The questions of the checklist. `rules/<code>.md` explains each, with an example both ways.
LintRules = dict[str, Callable[[Reading], Iterator[Hit]]]


@dataclass(frozen=True, slots=True)
class RulePage:
    """What is shown about a rule."""

    code: str
    name: str
    why: str
    bad: str
    good: str
    markdown: str


@cache
def page(code: str) -> RulePage:
    """The page of a rule: a title, a paragraph, and two examples, which are also its tests."""
    file = resources.files("effectonce.lint") / "rules" / f"{code}.md"
    text = file.read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    why, _, examples = rest.partition("Found:")
    bad, _, good = examples.partition("Not found:")
    name = title.removeprefix(f"# {code} ")
    return RulePage(code, name, why.strip(), _block(bad), _block(good), text.strip())


def _block(text: str) -> str:
    return text.partition("```py\n")[2].partition("```")[0]
