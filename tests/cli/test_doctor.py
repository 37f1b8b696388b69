"""`effectonce doctor` as a person and as a script sees it."""

import json

import pytest
from tests.cli.test_cli import effectonce

from effectonce import Guard


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
    assert {"subject": "durability", "found": "journal wal, synchronous FULL", "advice": "", "bad": False} in found["findings"]
    assert {"kind": "irreversible", "downstream": "none", "may": True, "why": ""} in found["may_hold"]


def test_a_url_that_is_none_is_explained():
    said = effectonce("doctor", "mysql://db")

    assert said.returncode == 1
    assert "is not the URL of a store" in said.stderr
