"""PostgreSQL by SQLSTATE (psycopg, psycopg2, asyncpg), Redis by redis-py's classes."""

from effectonce._core.classification.tables._row import B, M, N, R, Table, cls, code
from effectonce._core.classification.verdicts import Scope

POSTGRES = Table(
    name="postgres",
    checked="psycopg 3.3, psycopg2 2.9, asyncpg 0.32",
    packages=("psycopg", "psycopg_pool", "psycopg2", "asyncpg"),
    rows=(
        code("40001 40P01 40000", B.CONFLICT, R, "repeat the transaction"),
        code("55P03 55006", B.CONFLICT, R, "another client holds the lock: repeat the transaction"),
        code(
            "57014 25P03 25P04",
            B.NO_ANSWER,
            R,
            "it took too long and was undone: repeat the transaction",
        ),
        code("08001 57P03 53300", B.UNREACHABLE, N, "the server takes no connection now"),
        code("25006", B.UNREACHABLE, R, "a read-only server after a failover: connect again"),
        code("53000 53100 53200 53400", B.OVERLOADED, R, "the server has run out of something"),
        code(
            "08000 08003 08006 08007 40003",
            B.NO_ANSWER,
            M,
            "the connection broke: a COMMIT may have been done",
        ),
        code(
            "57P01 57P02 57P05 58030 XX000",
            B.NO_ANSWER,
            M,
            "the server stopped: a COMMIT may have been done",
        ),
        code("28000 28P01 42501 08004", B.AUTH, R),
        code("3D000 57P04 08P01", B.CONFIG, R),
        code("25P02", B.CONFIG, R, "roll back first"),
        code("23505", B.SCHEMA, R, "it is there already: this is how duplicates are found"),
        code("22xxx 23xxx 42xxx", B.SCHEMA, R),
        code(
            "XX001 XX002",
            B.CONFIG,
            M,
            "the database is damaged: stop, and call an operator",
            scope=Scope.HOST,
        ),
        cls("ConnectionTimeout", B.UNREACHABLE, N),
        cls("ConnectionDoesNotExistError InternalClientError", B.NO_ANSWER, M),
        cls(
            "OperationalError InterfaceError",
            B.NO_ANSWER,
            M,
            "the connection broke: a COMMIT may have been done",
            weak=True,
        ),
        cls(
            "PoolTimeout TooManyRequests",
            B.UNREACHABLE,
            N,
            "the pool had no connection to give",
            scope=Scope.PROCESS,
        ),
    ),
)
REDIS = Table(
    name="redis",
    checked="redis-py 8.1",
    packages=("redis",),
    rows=(
        # Before their bases: most of these are ConnectionErrors to redis-py.
        cls(
            "AuthenticationError AuthenticationWrongNumberOfArgsError AuthorizationError", B.AUTH, R
        ),
        cls("ExternalAuthProviderError NoPermissionError", B.AUTH, R),
        cls("BusyLoadingError OutOfMemoryError", B.OVERLOADED, R),
        cls(
            "MaxConnectionsError",
            B.UNREACHABLE,
            N,
            "the pool had no connection to give",
            scope=Scope.PROCESS,
        ),
        cls(
            "ReadOnlyError ClusterDownError MasterDownError",
            B.UNREACHABLE,
            R,
            "another node, or later",
        ),
        cls("TryAgainError MovedError AskError", B.UNREACHABLE, R, "another node, or later"),
        cls("SlotNotCoveredError", B.UNREACHABLE, R, "another node, or later"),
        cls("NoScriptError", B.CONFLICT, R, "load the script, then once more"),
        cls(
            "WatchError ExecAbortError",
            B.CONFLICT,
            R,
            "another client wrote: repeat the transaction",
        ),
        cls("LockNotOwnedError", B.CONFLICT, R, "the lock was lost meanwhile", retry=False),
        cls("LockError", B.CONFLICT, R),
        cls("ConnectionError TimeoutError ClusterError", B.NO_ANSWER, M, weak=True),
        cls("ClusterCrossSlotError CrossSlotTransactionError DataError", B.SCHEMA, R),
        cls(
            "ResponseError InvalidResponse",
            B.SCHEMA,
            M,
            "a script or a transaction may have done a part of it",
        ),
    ),
)
TABLES = (POSTGRES, REDIS)
