import pytest

pytest.register_assert_rewrite("effectonce.testing.conformance")


@pytest.fixture(scope="session")
def postgres():
    """One private PostgreSQL for this pytest process."""
    from tests.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres):
    """The URL of a new, empty database."""
    return postgres.database()
