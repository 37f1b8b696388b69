"""The store in PostgreSQL."""

from effectonce.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
