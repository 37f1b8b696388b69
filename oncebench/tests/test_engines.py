"""What the adapters of engines rest on."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from redis import Redis

from oncebench import environments
from oncebench.adapters import restate
from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, nothing_happened, worth_a_retry
from oncebench.environments import (
    NoOlderCopy,
    NoServer,
    _found,
    emptied,
    fall_back,
    kept_copy,
    servers,
)
from oncebench.kit import Setup, ToolFault
from oncebench.scoring_cli import known

HOLD_A_PLACE = """
import sys
from pathlib import Path
from oncebench.adapters._places import Places
print(Places(Path(sys.argv[1])).own, flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_servers_fall_back_to_what_they_knew():
    with servers(("redis", "postgres")) as urls:
        here = emptied(urls)
        with Redis.from_url(here["redis"]) as redis, psycopg.connect(here["postgres"]) as sql:
            redis.set("then", 1)
            sql.execute("CREATE TABLE known AS SELECT 'then' AS what").connection.commit()
            copies = kept_copy(here)
            redis.mset({"then": 2, "later": 2})
        with psycopg.connect(here["postgres"]) as sql:
            sql.execute("INSERT INTO known VALUES ('later')")

        fall_back(copies)

        with Redis.from_url(copies["redis"]) as redis, psycopg.connect(copies["postgres"]) as sql:
            assert (redis.get("then"), redis.get("later")) == (b"1", None)
            assert sql.execute("SELECT what FROM known").fetchall() == [("then",)]


def test_a_server_that_cannot_fall_back_says_so():
    with pytest.raises(NoOlderCopy, match="temporal cannot be put back to what it knew before"):
        kept_copy({"temporal": "127.0.0.1:7233"})


@pytest.mark.parametrize("name", [n for n, a in known().items() if a.KIND in {"library", "engine"}])
def test_a_subject_is_pinned(name):
    first, *_ = known()[name].REQUIRES

    assert "==" in first or first.startswith("effectonce")


def test_a_living_process_keeps_its_place_and_a_dead_one_does_not(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_PLACE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "place-0\n"
        mine = Places(tmp_path)
        assert (mine.own, mine.orphans()) == ("place-1", [])
        other.kill()

    assert mine.orphans() == ["place-0"]
    assert mine.orphans() == [], "it is served already"
    assert Places(tmp_path).own == "place-2"


def test_a_server_may_be_beside_the_subjects_python(tmp_path):
    program = tmp_path / "a-server-of-its-own"
    program.touch(mode=0o755)

    assert _found("a-server-of-its-own", beside=str(tmp_path / "python")) == str(program)
    with pytest.raises(NoServer, match="a-server-of-its-own"):
        _found("a-server-of-its-own")


def a_setup(folder, temperament):
    return Setup(
        folder=folder,
        url="",
        temperament=temperament,
        window_s=None,
        lands_within_s=0.01,
        best=True,
        lease_s=1.0,
    )


def test_who_may_have_sent_believes_nothing_before_it_must_have_landed(tmp_path, monkeypatch):
    later = iter([None, {"receipt": "r1"}])
    monkeypatch.setattr(Setup, "find", lambda *_: next(later))
    pay = looking_first(a_setup(tmp_path, "asks"), pytest.fail, again=True)

    assert pay("o1", 100) == {"receipt": "r1"}


def test_who_sends_for_the_first_time_asks_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Setup, "find", lambda _, order: asked.append(order))

    looking_first(a_setup(tmp_path, "asks"), lambda *_: "sent")("o1", 100)

    assert asked == ["o1"]


def test_a_subject_with_packages_of_npm_gets_them_into_its_environment(tmp_path, monkeypatch):
    commands = []
    (tmp_path / "restate").mkdir()
    monkeypatch.setattr(environments.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(environments, "_run", commands.append)
    monkeypatch.setattr(environments, "_found", lambda name: name)

    with environments.environment("restate", kept_in=tmp_path):
        pass

    folder = str(tmp_path / "restate" / "npm")
    assert commands[-1] == ["npm", "install", "--silent", "--prefix", folder, *restate.NPM]


def test_where_nothing_is_known_only_what_did_not_happen_is_tried_again(tmp_path):
    setup = a_setup(tmp_path, "deaf")

    assert nothing_happened(ToolFault())
    assert worth_a_retry(setup, ToolFault())
    assert not worth_a_retry(setup, OSError())
    assert worth_a_retry(a_setup(tmp_path, "keys"), OSError())
