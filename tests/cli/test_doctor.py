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


def test_a_guard_of_ones_own_is_looked_at_with_its_contracts(tmp_path, monkeypatch):
    (tmp_path / "agents.py").write_text(APP.format(tmp_path / "effects.db"))
    monkeypatch.chdir(tmp_path)
    said = effectonce("doctor", "--app", "agents:guard", "--json")

    found = json.loads(said.stdout)["findings"]
    assert any("the downstream honours a key for 1 h, we for 7 days" in finding["found"] for finding in found)


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
