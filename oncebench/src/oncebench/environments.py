"""An environment for each subject: made before it plays, deleted afterwards."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

INSTALL_WITHIN_S = 900
COPY_ALL = (
    "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 1) end"
)
LEAVE = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{}'"
CLIENT = "httpx>=0.27"  # the plain client of the tools
SHOW_VERSIONS = """
import hashlib, sys
from importlib.metadata import distribution
for name in sys.argv[1:]:
    found = distribution(name)
    code = [f"{f} {f.hash.value}" for f in found.files or () if f.suffix == ".py" and f.hash]
    digest = hashlib.sha256("\\n".join(sorted(code)).encode()).hexdigest()[:8]
    local = found.read_text("direct_url.json") is not None
    print(name, found.version + (f"+{digest if code else 'editable'}" if local else ""))
"""


class CannotInstall(Exception):
    """The subject does not install here."""


@contextmanager
def environment(adapter: str, *, kept_in: Path | None = None) -> Iterator[str]:
    """The Python of a fresh environment with the subject in it. *kept_in* keeps it for the next
    run.
    """
    module = importlib.import_module(f"oncebench.adapters.{adapter}")
    with ExitStack() as stack:
        if kept_in is None:
            parent = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncebench-")))
        else:
            parent = kept_in
        folder = parent / adapter
        python = folder / "bin" / "python"
        npm = getattr(module, "NPM", ())
        complete, wanted = folder / "complete", "\n".join([CLIENT, *module.REQUIRES, *npm])
        kept = complete.exists() and complete.read_text() == wanted
        if not (kept and python.exists()):
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(python), "-m", "pip", "install", "-q", CLIENT, *module.REQUIRES])
            if npm:
                _run([_found("npm"), "install", "--silent", "--prefix", str(folder / "npm"), *npm])
            complete.write_text(wanted)
        yield str(python)


def run_program(name: str, *arguments: str, beside: str | None) -> str:
    """What a program of a server's prints."""
    return _run([_found(name, beside=beside), *arguments])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, timeout=INSTALL_WITHIN_S, check=False
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise CannotInstall(f"{' '.join(command[-3:])}: {last}")
    return done.stdout


def versions(python: str, requires: Sequence[str]) -> str:
    """What is installed of what the subject asked for: `ctrlrun 0.12.2`. What came from a folder
    is shown with a digest of its code, `ctrlrun 0.12.2+1f2e3d4c`: its number stays the same.
    """
    names = [re.split(r"[^\w.-]", name, maxsplit=1)[0] for name in requires]
    done = subprocess.run(  # noqa: S603
        [python, "-c", SHOW_VERSIONS, *names], capture_output=True, text=True, check=False
    )
    return ", ".join(done.stdout.strip().splitlines())


# ---------------------------------------------------------------- stores that a subject needs


class NoServer(Exception):
    """A server that the subject needs is not on this machine."""


@contextmanager
def servers(names: Sequence[str], *, beside: str | None = None) -> Iterator[dict[str, str]]:
    """Private servers, each with its URL, for as long as the block runs. Their programs may be
    beside the subject's Python.
    """
    with ExitStack() as stack:
        yield {name: stack.enter_context(STARTED[name](beside)) for name in names}


def emptied(urls: dict[str, str], *, beside: str | None = None) -> dict[str, str]:
    """The same servers, with nothing in them of the play before."""
    fresh = dict(urls)
    if "redis" in urls:
        _ask_redis(urls["redis"], "FLUSHALL")
    if "postgres" in urls:
        at, name = urlsplit(urls["postgres"]), f"play_{uuid.uuid4().hex[:12]}"
        at_port = ("-h", "127.0.0.1", "-p", str(at.port), "-U", "oncebench")
        run_program("createdb", *at_port, name, beside=beside)
        fresh["postgres"] = at._replace(path=f"/{name}").geturl()
    return fresh


class NoOlderCopy(Exception):
    """This server cannot be put back to what it knew before."""


def kept_copy(urls: dict[str, str], *, beside: str | None = None) -> dict[str, str]:
    """Copies of what the servers know now. Their URLs count after `fall_back`."""
    copies = dict(urls)
    for name, url in urls.items():
        match name:
            case "redis":
                _ask_redis(url, f'EVAL "{COPY_ALL}" 0')
            case "postgres":
                at = urlsplit(url)
                database = at.path.lstrip("/")
                at_port = ("-h", "127.0.0.1", "-p", str(at.port), "-U", "oncebench")
                leave = LEAVE.format(database)
                run_program("psql", "-q", *at_port, "-c", leave, "postgres", beside=beside)
                copy = f"{database}_older"
                run_program("createdb", *at_port, "-T", database, copy, beside=beside)
                copies[name] = at._replace(path=f"/{copy}").geturl()
            case _:
                raise NoOlderCopy(f"{name} cannot be put back to what it knew before")
    return copies


def fall_back(copies: dict[str, str]) -> None:
    """From now on, these are what the servers know."""
    if "redis" in copies:
        _ask_redis(copies["redis"], "SWAPDB 0 1")


def _ask_redis(url: str, command: str) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=10) as wire:
        wire.sendall(f"{command}\r\n".encode())
        answer = wire.recv(512)
    if answer.startswith(b"-"):
        raise NoServer(f"Redis refuses {command!r}: {answer.decode().strip()}")


@contextmanager
def _redis(beside: str | None) -> Iterator[str]:
    port = _free_port()
    program = _found("redis-server", "valkey-server", beside=beside)
    with tempfile.TemporaryDirectory(prefix="oncebench-redis-") as folder:
        options = ["--port", str(port), "--dir", folder, "--appendonly", "yes"]
        command = [program, *options, "--appendfsync", "always", "--save", ""]
        with _running(command, port):
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def _postgres(beside: str | None) -> Iterator[str]:
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="oncebench-postgres-") as folder:
        data = f"{folder}/data"
        as_user = _unprivileged(Path(folder))
        initdb, postgres = _found("initdb", beside=beside), _found("postgres", beside=beside)
        _run([*as_user, initdb, "-D", data, "-U", "oncebench", "-A", "trust", "--no-sync"])
        options = ["-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"]
        with _running([*as_user, postgres, *options], port):
            yield f"postgresql://oncebench@127.0.0.1:{port}/postgres"


@contextmanager
def _temporal(beside: str | None) -> Iterator[str]:
    port = _free_port()
    program = _found("temporal", beside=beside)
    command = [program, "server", "start-dev", "--headless", "--port", str(port)]
    with _running([*command, "--log-level", "error"], port):
        yield f"127.0.0.1:{port}"


@contextmanager
def _restate(beside: str | None) -> Iterator[str]:
    ingress, admin, node = _free_port(), _free_port(), _free_port()
    settings = {
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_DEFAULT_NUM_PARTITIONS": "1",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    program = _found("restate-server", beside=beside)
    with tempfile.TemporaryDirectory(prefix="oncebench-restate-") as folder:
        command = [program, "--no-logo", "--base-dir", folder, "--node-name", "only"]
        with _running(command, ingress, settings):
            yield f"http://127.0.0.1:{ingress} http://127.0.0.1:{admin}"


def _unprivileged(folder: Path) -> list[str]:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return []
    shutil.chown(folder, "nobody")
    return [_found("setpriv"), "--reuid=nobody", "--clear-groups", "--"]


STARTED = {"redis": _redis, "postgres": _postgres, "temporal": _temporal, "restate": _restate}


@contextmanager
def _running(
    command: Sequence[str], port: int, settings: Mapping[str, str] | None = None
) -> Iterator[None]:
    process = subprocess.Popen(  # noqa: S603
        command,
        env={**os.environ, **(settings or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > end:
                    raise NoServer(f"{command[0]} does not start") from error
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _found(*names: str, beside: str | None = None) -> str:
    """Where a program is: beside the subject's Python or ours, in a package of npm there, on the
    PATH, where Debian puts it, or in a package beside us.
    """
    pythons = [Path(python).parent for python in (beside, sys.executable) if python is not None]
    for name in names:
        for python in pythons:
            here = shutil.which(name, path=str(python))
            if here is not None:
                return here
            # the program itself: what npm puts on the path is a script that starts it
            for place in python.parent.glob(f"npm/node_modules/@*/*/bin/{name}"):
                return str(place)
        on_path = shutil.which(name)
        if on_path is not None:
            return on_path
        for place in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True):
            return str(place)
        for folder in map(Path, sys.path):
            for place in folder.glob(f"*/bin/{name}"):
                return str(place)
    raise NoServer(f"{names[0]} is not on this machine")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
