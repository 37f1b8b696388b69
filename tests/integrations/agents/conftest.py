import pytest

from effectonce import Guard
from effectonce.testing.bank import Bank


@pytest.fixture
def bank(tmp_path):
    """It counts, and honours no keys: what is sent twice is paid twice."""
    with Bank(tmp_path / "ledger") as bank:
        yield bank


@pytest.fixture
def guard(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", spool=tmp_path / "spool")
    yield guard
    guard.close()
