import atexit
import contextlib
import os
import shutil
import signal
import tempfile

import pytest

from tests import forkserver
from tests.tiers import mark_long_combinations

pytest.register_assert_rewrite("effectonce.testing.conformance")
forkserver.install()

# What a store could not be told is kept among the user's state; not among this user's.
os.environ["EFFECTONCE_SPOOL"] = tempfile.mkdtemp(prefix="effectonce-test-spool-")
atexit.register(shutil.rmtree, os.environ["EFFECTONCE_SPOOL"], ignore_errors=True)

# A test asks a probe when it means to; those that are about the background switch it on.
os.environ["EFFECTONCE_RECONCILE"] = "off"

# A shell starts what runs in its background deaf to Ctrl-C, and so would be every process that a
# test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's business, and no property of ours. The environments
# of single frameworks are without Hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items):
    mark_long_combinations(items)


@pytest.fixture(scope="session", autouse=True)
def patience():
    """A starved machine may take seconds for one statement. What is to happen in time says which
    time it means.
    """
    from effectonce.stores.postgres import PostgresStore
    from effectonce.stores.redis import RedisStore
    from effectonce.stores.sqlite import SqliteStore

    for store, name in (
        (PostgresStore, "timeout_s"),
        (RedisStore, "timeout_s"),
        (SqliteStore, "busy_s"),
    ):
        store.__init__.__kwdefaults__[name] = 60.0


@pytest.fixture(scope="session", autouse=True)
def no_counting_meanwhile():
    """Counters are added when a guard is closed or asked for a report, and not by a thread in the
    middle of a test that counts requests, or whose store fails on purpose.
    """
    from effectonce._runtime import counters

    counters.EVERY_S = 86_400.0


@pytest.fixture
def in_the_background(monkeypatch):
    """As users have it: what is in doubt is asked about in the background."""
    monkeypatch.delenv("EFFECTONCE_RECONCILE")


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


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    """The URL of an empty store of each kind."""
    from tests.servers import redis

    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/effects.db"
        case "postgres":
            return request.getfixturevalue("database")
        case "redis":
            return redis.emptied(redis.server()).url
