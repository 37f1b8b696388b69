"""`effectonce tool pause`, `resume` and `paused`, as a person and a script see them."""

import json

import pytest
from tests.cli.desk import Desk

from effectonce import Guard, ToolPaused
from effectonce._core import pauses

WHO = ("--by", "ana", "--yes")


@pytest.fixture
def guard(tmp_path, monkeypatch):
    monkeypatch.setattr(pauses, "FRESH_S", 0.0)  # as if two seconds went by between two calls
    guard = Guard(f"sqlite:///{tmp_path}/effects.db")
    yield guard
    guard.close()


@pytest.fixture
def pay(guard):
    @guard.tool(kind="write", downstream="key", one_request=True)
    def pay(order: str) -> str:
        return f"paid {order}"

    def call(order):
        with guard.step("chat", order):
            return pay(order)

    return call


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path, f"sqlite:///{tmp_path}/effects.db")


def test_a_tool_is_paused_shown_and_resumed(desk, pay):
    pay("o1")

    said = desk.run("tool", "pause", "pay", "--reason", "the bank is down", *WHO)

    assert said.returncode == 0
    assert said.stderr.startswith("pay is paused. It goes on after: effectonce tool resume pay")
    with pytest.raises(ToolPaused, match="by ana: the bank is down"):
        pay("o2")
    (shown,) = json.loads(desk.run("tool", "paused", "--json").stdout)["pauses"]
    assert (shown["tool"], shown["by"], shown["reason"]) == ("pay", "ana", "the bank is down")
    assert "by ana: the bank is down" in desk.run("status").stdout

    said = desk.run("tool", "resume", "pay", "--reason", "it is up", *WHO)
    assert said.stderr.endswith("pay is no longer paused.\n")
    assert pay("o2") == "paid o2"
    assert desk.run("tool", "paused").stderr == "No tool is paused.\n"


def test_a_name_that_no_effect_has_is_not_paused_unless_that_is_meant(desk, guard, pay):
    pay("o1")

    said = desk.run("tool", "pause", "pya", "--reason", "down", *WHO)
    assert said.returncode == 5
    assert "no tool 'pya' is known here" in said.stderr
    assert guard.paused_tools() == {}

    assert desk.run("tool", "pause", "pya", "--reason", "x", "--anyway", *WHO).returncode == 0
    assert list(guard.paused_tools()) == ["pya"]


def test_what_is_not_paused_cannot_be_resumed(desk, guard, pay):
    pay("o1")
    guard.pause_tool("refund", by="bo", reason="a test")

    said = desk.run("tool", "resume", "pay", "--reason", "up", *WHO)

    assert said.returncode == 6
    assert "pay is not paused. These are: refund." in said.stderr


def test_a_pause_wants_a_reason(desk, pay):
    pay("o1")
    said = desk.run("tool", "pause", "pay", *WHO)
    assert said.returncode == 2
    assert "--reason" in said.stderr
