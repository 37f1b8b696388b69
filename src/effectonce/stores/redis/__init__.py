"""The store in Redis or Valkey."""

from effectonce.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
