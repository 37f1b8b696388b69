"""The store in a SQLite file."""

from effectonce.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
