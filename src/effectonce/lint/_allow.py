"""Allowances: `# effectonce: allow EO101 because the key is written down first`, on the line or
alone on the line above.

An allowance says why. One without a reason is a finding, and so is one that allows nothing: it
hides what comes later.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_MARK = re.compile(r"#\s*effectonce:\s*(?P<text>.*)")
_ALLOW = re.compile(
    r"allow\s+(?P<codes>EO\d+(?:\s*,\s*EO\d+)*)(?:\s+because\s+(?P<reason>\S.*))?\s*"
)


@dataclass(frozen=True, slots=True)
class AllowComment:
    """What a comment allows, and where."""

    line: int
    column: int
    covers: int  # the line that it is about
    codes: tuple[str, ...]  # none: it could not be read
    reason: str


def allowances(source: bytes) -> Iterator[AllowComment]:
    """Those of a file that was parsed."""
    if b"effectonce:" not in source:
        return
    tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    below = _lines_below(tokens)
    for number, token in enumerate(tokens):
        found = _MARK.fullmatch(token.string) if token.type == tokenize.COMMENT else None
        if found is None:
            continue
        alone = not token.line[: token.start[1]].strip()
        allowed = _ALLOW.fullmatch(found["text"])
        yield AllowComment(
            line=token.start[0],
            column=token.start[1] + 1,
            covers=below[number] if alone else token.start[0],
            codes=() if allowed is None else tuple(re.findall(r"EO\d+", allowed["codes"])),
            reason="" if allowed is None else allowed["reason"] or "",
        )


def _lines_below(tokens: list[tokenize.TokenInfo]) -> list[int]:
    """The line of the next code for each token, or its own if none. From the end: one pass."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    found, code = list[int](), 0
    for token in reversed(tokens):
        found.append(code or token.start[0])
        if token.type not in skipped:
            code = token.start[0]
    return found[::-1]
