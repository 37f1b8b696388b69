"""Stores by URL. A backend is imported when its scheme is first used, never before."""

from __future__ import annotations

from effectonce.errors import ContractViolation
from effectonce.stores._urls import shown
from effectonce.stores.base import Capabilities, Store

__all__ = ["Capabilities", "Store", "open_store"]


def as_store(store: str | Store) -> Store:
    """The store that a URL names, or a store of your own."""
    if isinstance(store, str):
        return open_store(store)
    if not callable(getattr(store, "apply", None)):
        raise ContractViolation(
            f"{store!r} is no store: give a URL, such as 'sqlite:///effects.db', or a store of your"
            " own."
        )
    return store


def open_store(url: str) -> Store:
    """Open the store that *url* names: `sqlite:///effects.db`,
    `postgresql://user@host/database`, `redis://host:6379/0` or `memory://`.
    """
    scheme, separator, rest = url.partition("://")
    match scheme:
        case "memory" if separator and not rest:
            from effectonce.stores.memory import MemoryStore

            return MemoryStore()
        case "sqlite" if rest == "/:memory:":
            raise ContractViolation(
                "sqlite:///:memory: would be a file of that name. Use memory://, or name a file."
            )
        case "sqlite" if "?" in rest:
            raise ContractViolation(
                f"{shown(url)!r}: the URL of a SQLite store has no parameters, only a file."
            )
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            from effectonce.stores.sqlite import SqliteStore

            return SqliteStore(rest[1:])
        case "postgresql" | "postgres" if separator:
            from effectonce.stores.postgres import PostgresStore

            return PostgresStore(url)
        case (
            "redis"
            | "rediss"
            | "valkey"
            | "valkeys"
            | "redis+unix"
            | "redis+cluster"
            | "rediss+cluster"
        ):
            from effectonce.stores.redis import RedisStore

            return RedisStore(url)
        case _:
            raise ContractViolation(
                f"{shown(url)!r} is not the URL of a store. Use sqlite:///effects.db (relative),"
                " sqlite:////var/lib/effects.db (absolute), postgresql://user@host/database,"
                " redis://host:6379/0 (Redis or Valkey) or memory:// (tests)."
            )
