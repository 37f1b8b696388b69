"""The tables, and an index over them. Imported when the first error is classified, not before.

The order of the tables decides where two of them know the same code and it is not known whose it
is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from effectonce._core.classification.tables import (
    anthropic,
    bedrock,
    databases,
    frameworks,
    google,
    http,
    openai,
    rpc,
    stripe,
    transport,
    zai,
)
from effectonce._core.classification.tables._row import Table, TableRow

VERSION = "2026-11"  # of the rows as a whole: it changes when a verdict does

TABLES: tuple[Table, ...] = (
    openai.TABLE,
    anthropic.TABLE,
    google.TABLE,
    bedrock.TABLE,
    stripe.TABLE,
    zai.TABLE,
    *rpc.TABLES,
    *databases.TABLES,
    *transport.TABLES,
    *frameworks.TABLES,
    http.TABLE,
)

Entry = tuple[Table, TableRow]


def _entries(signal: str) -> Iterator[tuple[str, Entry]]:
    for table in TABLES:
        for row in table.rows:
            if row.signal == signal:
                yield from ((name, (table, row)) for name in row.names)


def _index(signal: str) -> dict[str, tuple[Entry, ...]]:
    found: dict[str, tuple[Entry, ...]] = {}
    for name, entry in _entries(signal):
        found[name] = (*found.get(name, ()), entry)
    return found


BY_CODE, BY_STATUS, BY_FINISH = _index("code"), _index("status"), _index("finish")
BY_CLASS: dict[str, Entry] = {
    f"{package}.{name}": entry for name, entry in _entries("class") for package in entry[0].packages
}
BY_ERRNO: dict[int, Entry] = {
    getattr(errno, name): entry for name, entry in _entries("errno") if hasattr(errno, name)
}
TEXTS: tuple[tuple[str, Entry], ...] = tuple(_entries("text"))
OF_PACKAGE: dict[str, Table] = {package: table for table in TABLES for package in table.packages}
