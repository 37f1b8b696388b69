"""The log of this library. What others wrote begins no line of its own in it, and commands no
terminal that shows it.
"""

from __future__ import annotations

import logging
from typing import Any

from effectonce._text import harmless, on_one_line

_FORMAT = logging.Formatter()
LOG = logging.getLogger("effectonce")


def _clean(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_cleaned, record.args))
    if record.exc_info and record.exc_info[1] is not None:
        # a formatter writes this instead of its own
        record.exc_text = _indented(_FORMAT.formatException(record.exc_info))
    return True


def _indented(trace: str) -> str:
    """The text of an error may have lines of its own: each stands behind those of the log."""
    return "\n".join(f"  {line}" for line in harmless(trace).split("\n"))


def _cleaned(value: Any) -> Any:
    text = str(value)
    return value if text.isprintable() else on_one_line(text)


LOG.addFilter(_clean)
