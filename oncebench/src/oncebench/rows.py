"""An effect that is a row in a database, which a subject may share with its own records.

The kit makes the table and counts its rows. The tool inserts: into the transaction that the subject
gave it, or by a connection of its own that commits.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from contextlib import closing
from typing import Any

SQLITE = "sqlite:///"
TABLE = """
CREATE TABLE landed (
    path TEXT, order_id TEXT, body TEXT, receipt TEXT, asked_at DOUBLE PRECISION
)
"""
INSERT = "INSERT INTO landed (path, order_id, body, receipt, asked_at) VALUES (?, ?, ?, ?, ?)"
LANDED = """
SELECT json_build_object('path', path, 'body', body, 'receipt', receipt, 'asked_at', asked_at)
FROM landed ORDER BY asked_at
"""


def insert(database: str, connection: Any, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the tool does. *connection* is the subject's, or None."""
    receipt = f"receipt-{uuid.uuid4().hex[:12]}"
    row = (path, body["order"], json.dumps(body), receipt, time.time())
    if connection is not None:
        connection.execute(_spelled(database), row)
    else:
        with closing(_opened(database)) as own:
            own.execute(_spelled(database), row)
            own.commit()
    return {"receipt": receipt, "asked": body}


def _spelled(database: str) -> str:
    return INSERT if database.startswith(SQLITE) else INSERT.replace("?", "%s")


def _opened(database: str) -> Any:
    if database.startswith(SQLITE):
        return sqlite3.connect(database.removeprefix(SQLITE), timeout=30)
    import psycopg  # noqa: PLC0415  # a subject that asked for PostgreSQL has it

    return psycopg.connect(database)


def make(database: str, *, beside: str | None = None) -> None:
    """The empty table."""
    if database.startswith(SQLITE):
        with closing(_opened(database)) as own:
            own.execute(TABLE)
    else:
        psql(database, TABLE, beside=beside)


def landed(database: str, *, beside: str | None = None) -> list[dict[str, Any]]:
    """Each row, in the order of the requests."""
    if database.startswith(SQLITE):
        statement = LANDED.replace("json_build_object", "json_object")
        with closing(_opened(database)) as own:
            found = [line for (line,) in own.execute(statement)]
    else:
        found = psql(database, LANDED, beside=beside).splitlines()
    rows = [json.loads(line) for line in found]
    return [{**row, "body": json.loads(row["body"])} for row in rows]


def psql(database: str, statement: str, *, beside: str | None) -> str:
    """The kit has no driver of its own."""
    from oncebench.environments import run_program  # noqa: PLC0415  # the tool has no use for it

    return run_program(
        "psql", "-At", "-v", "ON_ERROR_STOP=1", "-c", statement, database, beside=beside
    )
