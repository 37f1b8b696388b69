"""What others wrote, made safe where it comes out: on a screen, in a tab-separated line, in a
log line, in JSON.

An error message of a downstream, the path of a request or the name of a step may hold characters
that a terminal obeys, that begin a new line, that turn the text after them around, or that
cannot be seen. Each exit uses one of these functions.
"""

from __future__ import annotations

_RANGES = (
    # C0: ESC moves the cursor, recolours or renames the terminal; CR overwrites what stands there
    (0x00, 0x20),
    (0x7F, 0xA0),  # DEL, and C1: what ESC does, in one character
    (0xAD, 0xAE),  # a hyphen that cannot be seen
    (0x061C, 0x061D),  # turns around what follows, as do most of the next
    (0x180E, 0x180F),
    (0x200B, 0x2010),  # no width; LRM and RLM
    (0x2028, 0x202F),  # ends of lines; embeddings and overrides
    (0x2060, 0x2070),  # no width; isolates
    (0xD800, 0xE000),  # half a character: it cannot be written as UTF-8
    (0xFEFF, 0xFF00),
    (0xFFF9, 0xFFFC),  # annotations
    (0xE0000, 0xE0080),  # tags, which cannot be seen and can be read by a program
)
_OBEYED = tuple(number for first, end in _RANGES for number in range(first, end))
_REPLACED = dict.fromkeys(_OBEYED, "\N{REPLACEMENT CHARACTER}")
_TEXT = {number: shown for number, shown in _REPLACED.items() if chr(number) not in "\t\n"}
_LINE = _REPLACED | {ord("\t"): " ", ord("\n"): " "}


def _escaped(number: int) -> str:
    """As JSON writes a character; beyond 16 bits it takes two."""
    if number < 0x10000:
        return f"\\u{number:04x}"
    return f"\\u{0xD7C0 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


_JSON = {number: _escaped(number) for number in _OBEYED if chr(number) not in "\t\n"}


def harmless(text: str) -> str:
    """A text of several lines, without what a terminal would obey."""
    return text if text.isprintable() else text.translate(_TEXT)


def on_one_line(text: str) -> str:
    """The same where a line is a row: nothing in it begins another row, or another column."""
    return text if text.isprintable() else text.translate(_LINE)


def harmless_json(document: str) -> str:
    """A JSON document that means the same. Such characters can only be in its texts, and JSON
    has escapes for them.
    """
    return document.translate(_JSON)


def span(value_s: float) -> str:
    """Seconds as people say them."""
    if value_s == float("inf"):
        return "ever"
    for unit, size_s in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if value_s >= 2 * size_s or (
            value_s >= size_s and value_s % size_s == 0 and unit != "days"
        ):
            return f"{value_s / size_s:.3g} {unit}"
    return f"{value_s:.3g} s"
