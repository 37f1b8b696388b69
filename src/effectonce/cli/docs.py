"""`effectonce docs`: the documentation, in the terminal and offline."""

from __future__ import annotations

from dataclasses import asdict

import click

from effectonce.cli._console import console, echo, say
from effectonce.cli._exits import NOT_FOUND, Stop
from effectonce.cli._options import takes
from effectonce.cli._output import (
    field,
    on_a_line,
    print_one,
    print_pairs,
    print_rows,
    shape,
    shortened,
)
from effectonce.cli._pages import DocsPage, docs_pages, named, search, topic_of_link

SHOWN_MAX, LINE_MAX = 20, 160


@click.command()
@click.argument("topic", required=False)
@click.option(
    "--search",
    "words",
    metavar="WORDS",
    help="List the sections that have all of these words, of TOPIC or of all pages.",
)
@takes("output", "color")
def docs(*, topic: str | None, words: str | None) -> None:
    r"""Read the documentation here, offline: the pages that were installed with this version.

    Without a TOPIC all pages are listed. A TOPIC is the name of a page, such as
    howto/in-doubt, or its last part where only one page has it. In a pipe a page is its
    Markdown.

    \b
    Examples:
      effectonce docs
      effectonce docs in-doubt
      effectonce docs reference/states | less
      effectonce docs --search "lost answer"
    """
    pages = docs_pages()
    if topic is not None:
        pages = [_the_page(topic, pages)]
    if words is not None:
        _print_matches(words, pages)
    elif topic is not None:
        (page,) = pages
        print_one(_as_data(page) | {"text": page.text}, lambda: _show(page), schema="page")
    else:
        _print_topics(pages)


def _the_page(topic: str, pages: list[DocsPage]) -> DocsPage:
    import difflib

    found = named(topic, pages)
    if len(found) == 1:
        return found[0]
    if found:
        meant = " or ".join(f"`effectonce docs {page.topic}`" for page in found)
        raise Stop(f"{topic!r} is the name of {len(found)} pages.", NOT_FOUND, f"Give {meant}.")
    ends = {page.topic.rpartition("/")[2]: page.topic for page in pages}
    near = difflib.get_close_matches(topic.rpartition("/")[2].lower(), ends, 1)
    advice = f"Did you mean `effectonce docs {ends[near[0]]}`? " if near else ""
    advice += "`effectonce docs` lists all, `effectonce docs --search WORDS` finds words in them."
    raise Stop(f"there is no page {topic!r}.", NOT_FOUND, advice)


def _as_data(page: DocsPage) -> dict[str, str]:
    return {"topic": page.topic, "title": page.title, "wish": page.wish}


def _show(page: DocsPage) -> None:
    if shape() == "plain":
        echo(page.text, nl=False)
        return
    from effectonce.cli._markdown import PageOnTerminal

    console().print(PageOnTerminal(page.text, lambda target: topic_of_link(page.topic, target)))


def _print_topics(pages: list[DocsPage]) -> None:
    if shape() == "table":
        print_pairs([(page.topic, page.title) for page in pages])
        say("\nRead one: `effectonce docs TOPIC`. Find words: `effectonce docs --search WORDS`.")
        return
    columns = [field("TOPIC", "topic"), field("TITLE", "title")]
    print_rows([_as_data(page) for page in pages], columns, schema="page", empty="")


def _print_matches(words: str, pages: list[DocsPage]) -> None:
    found = search(words.split(), pages)
    shown = found[:SHOWN_MAX]
    if shape() == "table":
        for match in shown:
            place = match.topic + (f": {match.section}" if match.section else "")
            console().print(on_a_line(place), style="bold", markup=False)
            print_pairs([("", shortened(on_a_line(match.line), LINE_MAX))])
    columns = [field("TOPIC", "topic"), field("SECTION", "section"), field("LINE", "line")]
    if shape() != "table" or not found:
        nothing = f"No section has all of: {words}"
        items = [asdict(match) for match in shown]
        print_rows(items, columns, schema="match", plural="matches", empty=nothing)
    if len(found) > SHOWN_MAX and shape() in ("table", "plain"):
        say(f"{len(found) - SHOWN_MAX} more sections have them: give more words.")
