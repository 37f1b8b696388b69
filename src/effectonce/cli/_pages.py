"""The pages of the documentation, in the order of their index: what `effectonce docs` shows.

They are the Markdown files of `docs/`. The wheel brings them; a checkout has them beside `src`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INDEX = "index"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
IN_TITLE, IN_HEADING, IN_TEXT_MAX = 5, 10, 5  # what a word counts in a search


@dataclass(frozen=True, kw_only=True)
class DocsPage:
    """One page. *wish* is what the index says that you want when you read it."""

    topic: str  # its path without a suffix: "howto/in-doubt"
    wish: str
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ").replace("`", "")

    @property
    def sections(self) -> tuple[tuple[str, str], ...]:
        """Headings with what stands below each; a # inside code is no heading."""
        found, code = [("", [""])], False
        for line in self.text.splitlines()[1:]:
            code ^= line.lstrip().startswith("```")
            if not code and line.startswith("#"):
                found.append((line.lstrip("# ").replace("`", ""), []))
            else:
                found[-1][1].append(line)
        return tuple((heading, "\n".join(lines)) for heading, lines in found)


@dataclass(frozen=True, kw_only=True)
class DocsMatch:
    """A section that has all words of a search, and its first line with one of them."""

    topic: str
    title: str
    section: str
    line: str


def shipped(folder: str) -> Path:
    """Where `docs` or `examples` are: in the installed package, or in the checkout that runs."""
    package = Path(__file__).parent.parent
    installed = package / folder
    return installed if installed.is_dir() else package.parent.parent / folder


def docs_pages() -> list[DocsPage]:
    """Every page that the index links to, in its order, after the index itself."""
    folder = shipped("docs")
    index = (folder / f"{INDEX}.md").read_text(encoding="utf-8")
    wishes = {INDEX: "find the page for what you want"}
    for row in index.splitlines():
        for _, target in LINK.findall(row):
            wish = row.strip("| ").partition(" | ")[0]
            wishes.setdefault(target.partition("#")[0].removesuffix(".md"), wish)
    return [
        DocsPage(topic=topic, wish=wish, text=(folder / f"{topic}.md").read_text(encoding="utf-8"))
        for topic, wish in wishes.items()
    ]


def named(topic: str, pages: Sequence[DocsPage]) -> list[DocsPage]:
    """The pages that a topic may mean: its whole name, or the end of one."""
    wanted = topic.lower().removesuffix(".md").strip("/")
    whole = [page for page in pages if page.topic == wanted]
    return whole or [page for page in pages if page.topic.endswith(f"/{wanted}")]


def search(words: Sequence[str], pages: Sequence[DocsPage]) -> list[DocsMatch]:
    """Sections that have all *words*, the best first: a heading counts for more than a text."""
    wanted = [re.compile(rf"(?<!\w){re.escape(word)}", re.IGNORECASE) for word in words]
    found = [
        (_score(wanted, page.title, heading, text), _match(wanted, page, heading, text))
        for page in pages
        for heading, text in page.sections
    ]
    ranked = sorted((pair for pair in found if pair[0]), key=lambda pair: -pair[0])
    return [match for _, match in ranked]


def _score(words: Sequence[re.Pattern[str]], title: str, heading: str, text: str) -> int:
    """How well a section fits; 0 if one of the words is nowhere in it."""
    if not words or not all(word.search(heading) or word.search(text) for word in words):
        return 0
    return sum(
        (IN_TITLE if word.search(title) else 0)
        + (IN_HEADING if word.search(heading) else 0)
        + min(len(word.findall(text)), IN_TEXT_MAX)
        for word in words
    )


def _match(words: Sequence[re.Pattern[str]], page: DocsPage, heading: str, text: str) -> DocsMatch:
    lines = (line for line in text.splitlines() if any(word.search(line) for word in words))
    line = LINK.sub(r"\1", next(lines, "")).replace("**", "").strip("|#>-* ")
    return DocsMatch(topic=page.topic, title=page.title, section=heading, line=line)


def topic_of_link(page: str, target: str) -> str:
    """What a link on *page* leads to: a topic, a file of the repository, or an address. A place
    on the same page is "".
    """
    if "://" in target:
        return target
    if target.startswith("#"):
        return ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
    return path.removesuffix(".md") if not path.startswith("..") else path.removeprefix("../")
