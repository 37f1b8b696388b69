"""The providers as a page: `python -m effectonce.cli._provider_page`, between the marks of
docs/reference/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from effectonce.providers import Fact, Provider, provider, providers
from effectonce.views.providers import answers, overview, remark


def markdown() -> str:
    """One table of all, then one of each."""
    found = [provider(name) for name in providers()]
    return "\n".join(
        [*_overview(found), "", *(line for each in found for line in _section(each))]
    ).rstrip()


def _overview(found: list[Provider]) -> Iterator[str]:
    yield "| provider | key | window | a repeat gets |"
    yield "|---|---|---|---|"
    for each in found:
        yield f"| [`{each.name}`](#{_anchor(each)}) | {' | '.join(overview(each))} |"


def _section(found: Provider) -> Iterator[str]:
    yield f"### `{found.name}`: {found.title}"
    yield ""
    yield found.summary
    yield ""
    yield "| | | source |"
    yield "|---|---|---|"
    for field, label, value in answers(found):
        yield f"| {label} | {value} | {_source(getattr(found.facts, field)) if field else ''} |"
    yield ""


def _source(fact: Fact) -> str:
    page = [] if fact.unverified else [f"[{fact.date}]({fact.link})"]
    return "; ".join([*page, *([remark(fact)] if remark(fact) else [])])


def _anchor(found: Provider) -> str:
    """As GitHub makes it of a heading."""
    kept = (c for c in f"{found.name}: {found.title}".lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", "-")


if __name__ == "__main__":
    print(markdown())
