import gc
import socket

import pytest

from tests.http.server import Shop


@pytest.fixture
def shop():
    """One for each test: what a client has sent before it gave up may arrive when the next test
    has begun.
    """
    with Shop() as shop:
        yield shop


@pytest.fixture(scope="session")
def nobody():
    """A port where nobody listens, and nobody can: it is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="module")
def modules_frozen():
    """Leave the objects of all modules out of collections, which take 0.2 s with them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def collected(modules_frozen):
    """What the clients leave open is closed where their warnings are ignored, and not in the
    next test.
    """
    yield
    gc.collect()
