"""Make the site: `make docs`. The pages of docs/ as they are, the reference of all public names,
and pictures of the protocol, with a search; a dead link or a warning ends it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from website.api import api_page, public_names
from website.diagrams import recorded_call, rules_table, sequence_svg, states_svg

from effectonce.cli._pages import LINK, DocsPage, docs_pages

ROOT = Path(__file__).parent.parent
PARTS = {
    "tutorial": "Tutorial",
    "howto": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "python": "Python",
}
# What furo leaves out, and a reader who listens to a page needs.
NAMED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results">': '<h1>Search</h1>\n<div id="search-results">',
}
PICTURES = "explanation/pictures"
PICTURES_WISH = "see the states of an effect and a call as pictures"


def toctrees(topics: Sequence[str]) -> str:
    """The order of the index, part by part, for the sidebar."""
    return "\n".join(line for part in PARTS for line in _toctree(part, topics))


def _toctree(part: str, topics: Sequence[str]) -> Iterator[str]:
    yield from ("```{toctree}", ":hidden:", f":caption: {PARTS[part]}", "")
    yield from (topic for topic in topics if topic.startswith(f"{part}/"))
    yield from ("```", "")


def within_the_site(page: DocsPage) -> str:
    """Its text, with links to what is not a page: a file of the repository is offered for
    download, a folder is only named.
    """

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2].partition("#")[0]
        path = ((ROOT / "docs" / page.topic).parent / target).resolve()
        if "://" in target or not target or path.is_relative_to(ROOT / "docs"):
            return found[0]
        return words if path.is_dir() else f"{{download}}`{words.strip('`')} <{target}>`"

    return LINK.sub(link, page.text)


def pictures() -> str:
    """The page with the pictures, as Markdown."""
    return "\n\n".join(
        [
            "# Pictures of the protocol",
            (
                "Drawn from the code when this site was made. A call that runs, and the same call"
                " from another process, which gets the stored outcome:"
            ),
            sequence_svg(recorded_call()),
            "## The states",
            (
                "Each arc has the names of the rules that lead along it; the names in a box belong"
                " to rules that leave the state as it is."
            ),
            states_svg(),
            "## The rules",
            (
                "`RULES`, row by row. The words in the last column are functions of"
                " `effectonce/_core/rules.py`."
            ),
            rules_table(),
        ]
    )


def llms_txt(pages: Sequence[DocsPage], modules: Sequence[str]) -> str:
    """An index for programs that read: each page with one line."""
    claim = pages[0].text.split("\n\n")[1]
    lines = [f"# {pages[0].title}", "", f"> {claim}", ""]
    for part, caption in PARTS.items():
        lines += [f"## {caption}", ""]
        for page in pages:
            if page.topic.startswith(f"{part}/"):
                lines.append(f"- [{page.title}]({page.topic}.html): {page.wish}")
        if part == "explanation":
            lines.append(f"- [Pictures of the protocol]({PICTURES}.html): {PICTURES_WISH}")
        if part == "python":
            lines += [
                f"- [{name}](python/{name}.html): the public names of `{name}`" for name in modules
            ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def put_together(source: Path) -> None:
    """Everything that Sphinx reads, in a folder of its own: docs/ stays as it is."""
    pages, names = docs_pages(), public_names()
    generated = {PICTURES: pictures()}
    topics = [*(page.topic for page in pages), *generated, *(f"python/{name}" for name in names)]
    for page in pages:
        write(source / f"{page.topic}.md", within_the_site(page))
    write(source / "index.md", f"{within_the_site(pages[0])}\n{toctrees(topics)}")
    for topic, text in generated.items():
        write(source / f"{topic}.md", text)
    for module, listed in names.items():
        write(source / "python" / f"{module}.rst", api_page(module, listed))
    for beside in ("examples", "model", "oncebench", "tests", "README.md", "SECURITY.md"):
        (source.parent / beside).symlink_to(ROOT / beside)  # what pages offer for download
    write(source.parent / "llms.txt", llms_txt(pages, list(names)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(folder: Path) -> None:
    """Build into *folder*/html."""
    shutil.rmtree(folder, ignore_errors=True)
    put_together(folder / "source" / "docs")
    strict = ["--fail-on-warning", "--keep-going", "--quiet"]
    sphinx = [sys.executable, "-m", "sphinx", *strict, "-b", "html", "-c", str(ROOT / "website")]
    ended = subprocess.run(
        [*sphinx, str(folder / "source" / "docs"), str(folder / "html")], check=False
    )
    if ended.returncode:
        sys.exit(ended.returncode)
    for page in (folder / "html").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for given, named in NAMED.items():
            text = text.replace(given, named)
        page.write_text(text, encoding="utf-8")
    shutil.copy(folder / "source" / "llms.txt", folder / "html")
    for left in (".doctrees", "_sources"):  # of Sphinx alone
        shutil.rmtree(folder / "html" / left)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
