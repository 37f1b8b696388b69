"""Allowances: `# effectonce: allow EO101 because the key is written down first`, on the line or alone on the line above.

An allowance says why. One without a reason is a finding, and so is one that allows nothing: it hides what comes later.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_MARK = re.compile(r"#\s*effectonce:\s*(?P<said>.*)")
_ALLOW = re.compile(r"allow\s+(?P<codes>EO\d+(?:\s*,\s*EO\d+)*)(?:\s+because\s+(?P<reason>\S.*))?\s*")


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a comment allows, and where."""

    line: int
    column: int
    covers: int  # the line that it is about
    codes: tuple[str, ...]  # none: it could not be read
    reason: str


def allowances(source: bytes) -> Iterator[Allowance]:
    """Those of a file that was parsed."""
    if b"effectonce:" not in source:
        return
    tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for number, token in enumerate(tokens):
        found = _MARK.fullmatch(token.string) if token.type == tokenize.COMMENT else None
        if found is None:
            continue
        alone = not token.line[: token.start[1]].strip()
        below = (later.start[0] for later in tokens[number + 1 :] if later.type not in skipped)
        said = _ALLOW.fullmatch(found["said"])
        yield Allowance(
            line=token.start[0],
            column=token.start[1] + 1,
            covers=next(below, token.start[0]) if alone else token.start[0],
            codes=() if said is None else tuple(re.findall(r"EO\d+", said["codes"])),
            reason="" if said is None else said["reason"] or "",
        )
