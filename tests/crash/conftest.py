"""The URL of an empty store of each kind."""

import pytest

from tests.servers import redis


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/effects.db"
        case "postgres":
            return request.getfixturevalue("database")
        case "redis":
            return redis.emptied(redis.server()).url
