import gc
import socket

import pytest

from tests.http.server import Shop


@pytest.fixture(scope="session")
def server():
    shop = Shop()
    yield shop
    shop.close()


@pytest.fixture
def shop(server):
    server.forget()
    return server


@pytest.fixture(scope="session")
def nobody():
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def collected():
    """What the clients leave open is closed where their warnings are ignored, and not in the next test."""
    yield
    gc.collect()
