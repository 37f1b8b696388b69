r"""GitHub: leave a mark in the text, which is not shown, and list what was changed since. A search
would lag; a list need not be complete either, so what is not found may still be there.

    body=f"{text}\n{github.marker()}"                                    # in the tool
    note.probe(github.marked(lambda since, issue, text: repo.get_issue(issue).get_comments(since)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from effectonce.providers.probes._asking import MARK, Probe, asking, bounded, mark, since

__all__ = ["marked", "marker"]


def marker() -> str:
    """A comment in Markdown that names this effect."""
    return f"<!-- {MARK}: {mark()} -->"


def marked(
    listing: Callable[..., Iterable[Any]],
    *,
    result: Callable[[Any], Any] = lambda found: found.id,
    proof_after_s: float | None = None,
) -> Probe:
    """Found by the mark in its body. *listing* is called with a time, then like the tool, and
    returns the issues, pull requests or comments that were changed since that time.
    """

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        wanted = marker()
        for found in bounded(listing(since(), *args, **kwargs)):
            if wanted in (found.body or ""):
                yield found

    return asking("github", search, result, proof_after_s)
