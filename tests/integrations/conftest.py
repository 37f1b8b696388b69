import pytest

from tests.vendors.conftest import Wire


@pytest.fixture(scope="session")
def server():
    wire = Wire()
    yield wire
    wire.server.shutdown()
    wire.server.server_close()


@pytest.fixture
def wire(server):
    server.says(200, {})
    server.requests, server.keys = 0, set()
    return server
