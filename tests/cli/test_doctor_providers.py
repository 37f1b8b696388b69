"""`effectonce doctor --app` and `effectonce tool` say what a tool's provider means for it."""

import json
from datetime import date

import pytest
from tests.cli.test_cli import effectonce

from effectonce import Guard
from effectonce.cli._providers import provider_findings

APP = """
from effectonce import Downstream, Guard, current_effect

guard = Guard("sqlite:///{}")
guard.counts()

@guard.tool(kind="irreversible", provider="monday")
def post(text: str):
    return current_effect().downstream_key

@guard.tool(kind="irreversible", provider="square")
def pay(order: str):
    return current_effect().downstream_key

@guard.tool(kind="write", downstream=Downstream.key(window=8 * 86400))
def other(order: str):
    return current_effect().downstream_key

with guard.step("chat-42", "post"):
    post("hello")
"""


@pytest.fixture
def said(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(APP.format(tmp_path / "effects.db"))
    monkeypatch.chdir(tmp_path)

    def data(*command, app=("--app", "shop:guard")):
        done = effectonce(*command, *app, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return data


def test_a_window_that_is_shorter_than_the_tools_or_not_published_is_named(said):
    found = [each["found"] for each in said("doctor")["findings"]]

    assert any("post: monday honours a key for 30 min, we for 30 days" in each for each in found)
    unpublished = [each for each in found if "is not published" in each]
    assert len(unpublished) == 1
    assert "how long square honours a key is not published" in unpublished[0]
    assert "no answer after 5 min goes in doubt" in unpublished[0]


def test_facts_that_were_read_long_ago_are_named_with_the_tools_that_rest_on_them():
    guard = Guard("memory://")

    @guard.tool(kind="write", provider="stripe.v1")
    def refund(order: str): ...

    @guard.tool(kind="write", provider="stripe.v1")
    def pay(order: str): ...

    assert not list(provider_findings(guard, date(2026, 12, 1)))
    (old,) = provider_findings(guard, date(2027, 12, 1))
    assert old.subject == "provider stripe.v1"
    assert "key, window, stored" in old.found
    assert "more than 180 days ago, and pay, refund rest on it" in old.found
    assert old.advice.endswith("effectonce provider show stripe.v1")


def test_a_tool_and_its_effects_name_the_provider(said):
    tool = said("tool", "show", "post")
    effects = said("effect", "list")["effects"]

    assert (tool["downstream"], tool["provider"], tool["honours_key_s"]) == ("key", "monday", 1800)
    assert [(each["downstream"], each["provider"]) for each in effects] == [("key", "monday")]
    shown = effectonce("effect", "show", effects[0]["reference"], "--app", "shop:guard").stdout
    assert "downstream key (monday)" in " ".join(shown.split())
    listed = effectonce("tool", "list", "--app", "shop:guard").stdout
    assert "key (square)" in listed
