import pytest
from starlette.testclient import TestClient

from effectonce import Guard
from effectonce.dashboard import Access, app
from tests.server.shop import Shop
from tests.servers import redis

OURS = {"sec-fetch-site": "same-origin"}  # what a browser says of a form of the same site


@pytest.fixture
def guard(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    yield guard
    guard.close()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def anywhere(request, tmp_path):
    """A guard on each store."""
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'effects.db'}",
        "postgres": lambda: request.getfixturevalue("database"),
        "redis": lambda: redis.emptied(redis.server()).url,
    }[request.param]()
    guard = Guard(url)
    yield guard
    guard.close()


@pytest.fixture
def shop(guard):
    return Shop(guard)


def browser(guard, access, **options):
    """One that follows nothing by itself, and says where its requests come from."""
    return TestClient(
        app(guard, access=lambda _: access), headers=OURS, follow_redirects=False, **options
    )


@pytest.fixture
def viewer(guard):
    return browser(guard, Access("vera"))


@pytest.fixture
def operator(guard):
    return browser(guard, Access("ada", acts=True))


@pytest.fixture
def admin(guard):
    return browser(guard, Access("root of all", acts=True, reveals=True))
