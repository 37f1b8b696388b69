import pytest

from tests.vendors.conftest import server  # noqa: F401  # a fixture


@pytest.fixture
def wire(server):  # noqa: F811
    server.says(200, {})
    server.requests, server.keys = 0, set()
    return server
