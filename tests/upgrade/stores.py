"""Stores that a release wrote, kept for all releases after it: fixtures/VERSION.

    python -m tests.upgrade.stores

writes those of this version, if there are none: a SQLite file, a dump of PostgreSQL, and the keys
of a Redis. They are not written anew: what a release wrote stays as it was written.
"""

import base64
import json
import shutil
import socket
import sqlite3
import subprocess
from pathlib import Path

import hiredis

import effectonce
from tests.servers.postgres import Postgres, binaries
from tests.servers.redis import Server
from tests.upgrade import shop

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.glob("*"))


def fill(url):
    guard = shop.made(url)
    shop.fill(guard)
    guard.close()


# ---------------------------------------------------------------- SQLite


def write_sqlite(folder, work):
    fill(f"sqlite:///{work}/effects.db")
    with sqlite3.connect(work / "effects.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    shutil.copy(work / "effects.db", folder / "effects.sqlite")


def load_sqlite(folder, work):
    shutil.copy(folder / "effects.sqlite", work / "effects.db")
    return f"sqlite:///{work}/effects.db"


# ---------------------------------------------------------------- PostgreSQL


def write_postgres(folder, server):
    url = server.database()
    fill(url)
    dump = [binaries() / "pg_dump", "--schema=effectonce", "--no-owner", "--inserts", url]
    written = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    (folder / "effects.sql").write_text(written)


def load_postgres(folder, server):
    url = server.database()
    load = [binaries() / "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--file", "-", url]
    subprocess.run(
        load, check=True, capture_output=True, input=(folder / "effects.sql").read_bytes()
    )
    return url


# ---------------------------------------------------------------- Redis


class Line:
    """A plain connection to a Redis."""

    def __init__(self, server):
        self._socket, self._reader = socket.socket(socket.AF_UNIX), hiredis.Reader()
        self._socket.connect(server.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def ask(self, *command):
        self._socket.sendall(hiredis.pack_command(command))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        assert not isinstance(reply, hiredis.ReplyError), reply
        return reply


def write_redis(folder, server):
    fill(server.url)
    lines = []
    with Line(server) as line:
        for key in sorted(line.ask("KEYS", "*")):
            kind = line.ask("TYPE", key)
            read = {
                b"string": ("GET", key),
                b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES"),
                b"hash": ("HGETALL", key),
                b"set": ("SMEMBERS", key),
                b"list": ("LRANGE", key, 0, -1),
            }[kind]
            found = line.ask(*read)
            values = found if isinstance(found, list) else [found]
            written = [str(kind, "ascii"), *map(_text, (key, *values))]
            lines.append(json.dumps(written))
    (folder / "effects.redis.jsonl").write_text("\n".join(lines) + "\n")


def load_redis(folder, server):
    with Line(server) as line:
        line.ask("FLUSHALL")
        for text in (folder / "effects.redis.jsonl").read_text().splitlines():
            kind, *written = json.loads(text)
            key, *values = map(base64.b64decode, written)
            if kind == "zset":
                values = [
                    part for pair in zip(values[1::2], values[::2], strict=True) for part in pair
                ]
            add = {"string": "SET", "zset": "ZADD", "hash": "HSET", "set": "SADD", "list": "RPUSH"}
            line.ask(add[kind], key, *values)
    return server.url


def _text(value):
    return base64.b64encode(value).decode()


def main():
    import tempfile

    folder = FIXTURES / effectonce.__version__
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        write_sqlite(folder, Path(work))
        with Postgres() as server:
            write_postgres(folder, server)
        server = Server(Path(work) / "redis", fsync="always")
        write_redis(folder, server)
        server.stop()
    for path in sorted(folder.iterdir()):
        print(path.relative_to(FIXTURES), f"{path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
