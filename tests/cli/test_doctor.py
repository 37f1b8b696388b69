"""`effectonce doctor` as a person and as a script sees it."""

import json
from math import inf

import pytest
from click.testing import CliRunner
from tests.cli.test_cli import effectonce
from tests.servers import redis
from tests.servers.postgres import Postgres

from effectonce import Guard
from effectonce.cli import main
from effectonce.stores.sqlite import connection


@pytest.fixture
def url(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    guard.counts()
    guard.close()
    return f"sqlite:///{tmp_path / 'effects.db'}"


def test_a_healthy_store_is_said_to_be_and_the_exit_code_is_0(url):
    said = effectonce("doctor", url)

    assert (said.returncode, said.stderr) == (0, "")
    assert "synchronous FULL" in said.stdout
    assert "irreversible" in said.stdout
    assert "✗" not in said.stdout


def test_a_store_that_is_not_there_has_its_own_exit_code(tmp_path):
    said = effectonce("doctor", f"sqlite:///{tmp_path / 'typo.db'}")

    assert said.returncode == 7
    assert "there is no file" in said.stdout


def test_a_store_that_may_not_hold_everything_says_why(url):
    said = effectonce("doctor", "memory://")

    assert said.returncode == 0
    assert "it can forget" in said.stdout


def test_scripts_get_json(url):
    found = json.loads(effectonce("doctor", url, "--json").stdout)

    assert (found["ok"], found["reachable"], found["counts"]) == (True, True, {})
    assert {
        "subject": "durability",
        "found": "journal wal, synchronous FULL",
        "advice": "",
        "bad": False,
    } in found["findings"]
    assert {"kind": "irreversible", "downstream": "none", "may": True, "why": ""} in found[
        "may_hold"
    ]


def test_a_url_that_is_none_is_explained():
    said = effectonce("doctor", "mysql://db")

    assert said.returncode == 2
    assert "is not the URL of a store" in said.stderr


def test_a_guard_of_ones_own_is_looked_at_with_its_contracts(tmp_path, monkeypatch):
    (tmp_path / "agents.py").write_text(APP.format(tmp_path / "effects.db"))
    monkeypatch.chdir(tmp_path)
    said = effectonce("doctor", "--app", "agents:guard", "--json")

    found = json.loads(said.stdout)["findings"]
    assert any(
        "the downstream honours a key for 1 h, we for 7 days" in finding["found"]
        for finding in found
    )


APP = """
from effectonce import Downstream, Guard

guard = Guard("sqlite:///{}")
guard.counts()

@guard.tool(kind="write", downstream=Downstream.key(window=3600))
def pay(n: int): ...
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give the URL of a store"),
        (("memory://", "--app", "agents:guard"), "Give the URL of a store"),
        (("--app", "nowhere:guard"), "No module named 'nowhere'"),
        (("--app", "json:nothing"), "has no attribute 'nothing'"),
        (("--app", "json:dumps"), "is a function, not a Guard"),
    ],
)
def test_what_cannot_be_looked_at_is_wrong_usage(arguments, said):
    told = effectonce("doctor", *arguments)

    assert told.returncode == 2
    assert said in told.stderr


def test_a_redis_that_drops_records_is_named_and_how_to_change_it(tmp_path):
    server = redis.Server(tmp_path / "evicting", maxmemory_policy="allkeys-lru")
    said = effectonce("doctor", server.url)
    server.stop()

    assert said.returncode == 7
    assert "maxmemory-policy allkeys-lru" in " ".join(said.stdout.split())
    assert "CONFIG SET maxmemory-policy noeviction" in " ".join(said.stdout.split())


def test_a_postgres_that_does_not_sync_is_named_and_how_to_change_it():
    with Postgres(fsync="off") as server:
        said = effectonce("doctor", server.database())

    assert said.returncode == 7
    assert "Set fsync = on in postgresql.conf" in " ".join(said.stdout.split())


def test_a_file_on_a_full_disk_is_named_and_how_to_change_it(url, monkeypatch):
    monkeypatch.setattr(connection, "LOW_B", inf)
    said = CliRunner().invoke(main, ["doctor", url])

    assert said.exit_code == 1
    assert "Make room" in said.stdout


def test_a_password_is_never_shown(monkeypatch):
    for broken in (
        "postgresql://app:hunter2@127.0.0.1:1/effects",
        "redis://app:hunter2@127.0.0.1:1",
    ):
        monkeypatch.setenv("EFFECTONCE_STORE", broken)
        said = effectonce("doctor")

        assert said.returncode == 7
        assert "hunter2" not in said.stdout + said.stderr
