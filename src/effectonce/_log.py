"""The log of this library. What others wrote begins no line of its own in it, and commands no terminal that shows it."""

from __future__ import annotations

import logging
from typing import Any

from effectonce._text import on_one_line

LOG = logging.getLogger("effectonce")


def _clean(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_cleaned, record.args))
    return True


def _cleaned(value: Any) -> Any:
    said = str(value)
    return value if said.isprintable() else on_one_line(said)


LOG.addFilter(_clean)
