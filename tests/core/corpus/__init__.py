"""A corpus of names and ids: what must be let pass as part of a key, and what must be found.

`python -m tests.core.corpus` prints the figures. The lists that are held out were made after the
detector, which was not changed for them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from effectonce._core.stability import (
    ATTEMPT,
    CALL,
    CLOCK,
    PERSON,
    RANDOM,
    TIMESTAMP,
    UUID_,
    unstable_text,
)

HERE = Path(__file__).parent
SORTS = frozenset({"", ATTEMPT, CALL, CLOCK, PERSON, RANDOM, TIMESTAMP, UUID_})
NAMES = ("names.txt", "names_held_out.txt", "things.txt")
IDS = ("ids.txt", "ids_held_out.txt")


class Entry(NamedTuple):
    """One line of a list, the class that its heading names, and what is found in it."""

    text: str
    of: str
    found: str


def entries(file: str) -> list[Entry]:
    return list(_read(file))


def _read(file: str) -> Iterator[Entry]:
    of = ""
    for line in (HERE / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            of = line.removeprefix("# ").partition(":")[0]
        else:
            yield Entry(line, of, unstable_text(line))


def found_percent(known: list[Entry]) -> float:
    return 100 * sum(entry.found != "" for entry in known) / len(known)
