"""PostgreSQL by SQLSTATE through three drivers, Redis by its classes."""

import pytest

from effectonce import classify
from tests.vendors.helpers import says

pytestmark = pytest.mark.filterwarnings("ignore")

STATES = {
    "40000 40001 40P01 55P03 55006": "conflict R",
    "57014 25P03 25P04": "no_answer R",
    "08001 57P03 53300": "unreachable N",
    "25006": "unreachable R",
    "53000 53100 53200 53400": "overloaded R",
    "08000 08003 08006 08007 40003 57P01 57P02 57P05 58030 XX000": "no_answer M",
    "28000 28P01 42501 08004": "auth R",
    "3D000 57P04 08P01 25P02": "config R",
    "22001 23505 23503 42601 42P01": "schema R",
    "XX001 XX002": "config M",
}
EACH = [(state, expected) for states, expected in STATES.items() for state in states.split()]


@pytest.mark.parametrize(("state", "expected"), EACH)
def test_psycopg(state, expected):
    import psycopg

    assert says(psycopg.errors.lookup(state)("no")) == expected


@pytest.mark.parametrize(("state", "expected"), EACH)
def test_psycopg2(state, expected):
    import psycopg2.errors

    try:
        cls = psycopg2.errors.lookup(state)
    except KeyError:  # it has no class for this one, and raises the general one
        cls = psycopg2.OperationalError
    error = cls("no")
    error.__setstate__({"pgcode": state})  # set by the driver, from C
    assert error.pgcode == state
    assert says(error) == expected


@pytest.mark.parametrize(("state", "expected"), EACH)
def test_asyncpg(state, expected):
    import asyncpg

    found = [
        cls
        for cls in vars(asyncpg.exceptions).values()
        if isinstance(cls, type)
        and issubclass(cls, asyncpg.PostgresError)
        and getattr(cls, "sqlstate", None) == state
    ]
    error = (
        found[0]("no") if found else asyncpg.PostgresError.new({"C": state, "M": "no"})
    )  # as it makes those it has no class for
    assert says(error) == expected


def test_a_driver_that_lost_its_connection_and_says_no_state():
    import asyncpg
    import psycopg
    import psycopg2
    import psycopg_pool

    assert (
        says(psycopg.OperationalError("server closed the connection unexpectedly")) == "no_answer M"
    )
    assert says(psycopg.InterfaceError("the connection is lost")) == "no_answer M"
    assert (
        says(psycopg2.OperationalError("server closed the connection unexpectedly"))
        == "no_answer M"
    )
    assert says(psycopg.errors.ConnectionTimeout("no")) == "unreachable N"
    assert says(asyncpg.ConnectionDoesNotExistError("no")) == "no_answer M"
    assert says(asyncpg.InternalClientError("no")) == "no_answer M"
    assert says(psycopg_pool.PoolTimeout("no")) == "unreachable N"


REDIS = {
    "AuthenticationError AuthorizationError ExternalAuthProviderError NoPermissionError": "auth R",
    "BusyLoadingError OutOfMemoryError": "overloaded R",
    "MaxConnectionsError": "unreachable N",
    "ReadOnlyError ClusterDownError MasterDownError TryAgainError SlotNotCoveredError": (
        "unreachable R"
    ),
    "NoScriptError WatchError ExecAbortError LockError LockNotOwnedError": "conflict R",
    "ConnectionError TimeoutError": "no_answer M",
    "DataError ClusterCrossSlotError CrossSlotTransactionError": "schema R",
    "ResponseError InvalidResponse": "schema M",  # a script may have done a part of it
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [(n, expected) for names, expected in REDIS.items() for n in names.split()],
)
def test_redis(name, expected):
    import redis.exceptions

    assert says(getattr(redis.exceptions, name)("no")) == expected


def test_redis_cluster_redirections():
    import redis.exceptions

    for name in ("MovedError", "AskError"):
        assert says(getattr(redis.exceptions, name)("12182 127.0.0.1:7002")) == "unreachable R"


def test_redis_that_is_not_there(nobody):
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from tests.vendors.helpers import raised

    port = int(nobody.rpartition(":")[2])
    found = raised(lambda: redis.Redis(port=port, retry=Retry(NoBackoff(), 0)).set("k", "v"))
    assert type(found) is redis.exceptions.ConnectionError
    # redis-py does not say what it wraps, and may have retried: that it was not sent is not
    # certain.
    assert says(found) == "unreachable M"


def test_a_lost_fence_is_not_tried_again():
    import redis.exceptions

    assert not classify(redis.exceptions.LockNotOwnedError("no")).retryable
    assert classify(redis.exceptions.LockError("no")).retryable
