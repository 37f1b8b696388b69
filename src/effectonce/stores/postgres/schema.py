"""Is this a server that keeps what it acknowledges, with our table in the form that this release
knows? Asked once per connection.

Migrations are numbered files; each is applied once, all that are missing in one transaction,
under a lock that other processes queue on. They only add, and at most take an index away, so
that an older release goes on working beside a newer one until it connects anew and is asked to
upgrade.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from effectonce.stores.base import Finding, size_finding
from effectonce.stores.postgres.binary import unpack_text
from effectonce.stores.postgres.connection import PostgresConnection, ServerError
from effectonce.stores.postgres.statements import BoundStatement, statement

MIGRATIONS = tuple(
    path.read_text()
    for path in sorted(Path(__file__).with_name("migrations").glob("postgres_*.sql"))
)
SCHEMA_VERSION = len(MIGRATIONS)
MIGRATION_S = 600.0  # a big table takes its time, and giving up half way would only begin again
LOCK = 0x0EFFEC7_0ACE  # the same in every release

LOOK = statement("""
SELECT pg_is_in_recovery()::text, current_setting('transaction_read_only'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('server_encoding'),
       (to_regclass('effectonce.migrations') IS NOT NULL)::text
""")
FACTS = statement("""
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication)::text, current_user::text,
       (pg_total_relation_size('effectonce.effects') + pg_total_relation_size('effectonce.cells'))::text
""")
VERSION = statement("SELECT coalesce(max(version), 0)::text FROM effectonce.migrations")
BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT pg_advisory_xact_lock({LOCK});
CREATE SCHEMA IF NOT EXISTS effectonce;
CREATE TABLE IF NOT EXISTS effectonce.migrations (version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
"""
# At once: to take it bit by bit, from a writer that has read and is about to write, would be a
# deadlock.
ALONE = "LOCK TABLE effectonce.effects IN ACCESS EXCLUSIVE MODE"


class Unfit(Exception):
    """A server, or a schema, that no record may be trusted to."""

    def __init__(self, reason: str, remedy: str, *, lasts: bool = True) -> None:
        super().__init__(reason)
        self.remedy, self.lasts = remedy, lasts


# Not allowed, or not there. While it connects, a server says that in words alone.
_LASTING = frozenset({"28000", "28P01", "3D000", "42501"})
_REFUSALS = re.compile(
    r'FATAL: .*(authentication failed|"? does not exist|permission denied|no pg_hba\.conf entry)'
)


def lasts(error: Exception) -> bool:
    """Does it need a person? Then the next call fails too."""
    match error:
        case Unfit():
            return error.lasts
        case ServerError():
            return error.sqlstate in _LASTING
        case _:
            return _REFUSALS.search(str(error)) is not None


def prepare(wire: PostgresConnection, give_up_at: float, *, accept_fsync_off: bool) -> None:
    """Refuse a server that could lose a record; bring an older schema up to date."""
    look = wire.ask([BoundStatement(LOOK, ())], give_up_at)[0]
    standby, read_only, fsync, full_pages, encoding, migrated = (
        unpack_text(look.get_value(0, n) or b"") for n in range(6)
    )
    if standby == "true":
        raise Unfit(
            "this server is a standby and takes no writes",
            "Give the URL of the primary.",
            lasts=False,
        )
    if read_only == "on":
        raise Unfit(
            "this database is read-only (default_transaction_read_only)",
            "Let this role write.",
            lasts=False,
        )
    for name, setting in (("fsync", fsync), ("full_page_writes", full_pages)):
        if setting != "on" and not accept_fsync_off:
            raise Unfit(
                f"this server runs with {name} = {setting}: a crash of its machine could lose what"
                " it has acknowledged, and an effect would run twice",
                f"Set {name} = on in postgresql.conf and reload it.",
            )
    if encoding != "UTF8":
        raise Unfit(f"this database is encoded in {encoding}", "Use a database in UTF8.")
    version = _version(wire, give_up_at) if migrated == "true" else 0
    if version < SCHEMA_VERSION:
        migrate(wire, give_up_at)
    elif version > SCHEMA_VERSION:
        raise Unfit(
            f"its schema was written by a newer release (schema {version}, this one knows"
            f" {SCHEMA_VERSION})",
            "Upgrade effectonce here.",
        )


def facts(wire: PostgresConnection, give_up_at: float) -> tuple[Finding, ...]:
    """What an operator of this server wants to see."""
    row = wire.ask([BoundStatement(FACTS, ())], give_up_at)[0]
    version, fsync, pages, commit, standbys, role, size = (
        unpack_text(row.get_value(0, n) or b"") for n in range(7)
    )
    safe = fsync == pages == "on"
    lags = (
        ""
        if standbys in ("", "0") or commit in ("remote_write", "remote_apply")
        else ("Before a standby takes over, it must have everything: synchronous_standby_names.")
    )
    return (
        Finding("server", f"PostgreSQL {version}, as {role}"),
        Finding(
            "durability",
            f"fsync {fsync}, full_page_writes {pages}; our commits wait for the disk",
            "" if safe else "Accepted with accept_fsync_off=True: irreversible tools are refused.",
        ),
        Finding("standbys", f"{standbys} connected", lags),
        size_finding(int(size), "in its tables"),
        Finding("schema", f"version {SCHEMA_VERSION}"),
    )


def _version(wire: PostgresConnection, give_up_at: float) -> int:
    return int(wire.ask([BoundStatement(VERSION, ())], give_up_at)[0].get_value(0, 0) or b"")


def migrate(wire: PostgresConnection, give_up_at: float) -> None:
    """Apply what is missing. A second process finds nothing and waits no longer than its caller."""
    try:
        wire.ask_simple(BEGIN, give_up_at)
        give_up_at = time.monotonic() + MIGRATION_S
        known = _version(wire, give_up_at)
        if 0 < known < SCHEMA_VERSION:
            wire.ask_simple(ALONE, give_up_at)
        for number in range(known + 1, SCHEMA_VERSION + 1):
            applied = f"INSERT INTO effectonce.migrations (version) VALUES ({number})"
            wire.ask_simple(f"{MIGRATIONS[number - 1]}; {applied}", give_up_at)
        wire.ask_simple("COMMIT", give_up_at)
    except ServerError as error:
        raise Unfit(
            f"its schema could not be brought up to date ({error})",
            "Open the store once as a role that may create schema effectonce; afterwards any role"
            " that may write there will do.",
            lasts=lasts(error),
        ) from error
