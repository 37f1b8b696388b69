"""Every adapter has what the kit asks for, and the script of the agents' models does what it says."""

import base64
import hashlib
import json
import sys
from typing import get_args

import pytest

from oncebench.adapters import _agents, _effectonce
from oncebench.environments import versions
from oncebench.kit import Setup, Temperament, Told, Wish
from oncebench.scenarios import scenarios
from oncebench.scoring_cli import known

ARGUMENTS = {"order": "o1", "amount": 100, "note": ""}


def _setup(folder, **options):
    return Setup(
        folder=folder,
        url="",
        temperament="deaf",
        window_s=None,
        lands_within_s=1,
        best=True,
        lease_s=1,
        **options,
    )


@pytest.fixture
def run(tmp_path):
    setup = _setup(tmp_path)
    return lambda **other: _agents.Run(setup, lambda: "", "chat-1", {**ARGUMENTS, **other})


@pytest.mark.parametrize("name", known())
def test_an_adapter_says_what_it_is(name):
    adapter = known()[name]
    needs = {need for scenario in scenarios().values() for need in scenario.needs}

    assert adapter.NAME
    assert adapter.README
    assert adapter.KIND in {"library", "engine", "framework", "control"}
    assert all(adapter.LACKS.values()), "where does it say so?"
    assert set(adapter.LACKS) <= needs | set(get_args(Temperament))
    assert callable(adapter.open)
    assert callable(adapter.said)


def test_effectonce_is_installed_from_the_checkout_or_from_where_you_say(monkeypatch, tmp_path):
    assert _effectonce.requirement().startswith("effectonce @ file:///")
    monkeypatch.setenv("ONCEBENCH_EFFECTONCE", str(tmp_path))
    assert _effectonce.requirement("strands") == f"effectonce[strands] @ {tmp_path.as_uri()}"
    monkeypatch.setattr(_effectonce, "CHECKOUT", tmp_path)
    monkeypatch.delenv("ONCEBENCH_EFFECTONCE")
    assert _effectonce.requirement() == "effectonce"


def test_the_version_of_what_comes_from_an_address_is_shown():
    assert versions(sys.executable, ["pytest[dev] @ file:///there"]).startswith("pytest ")


def test_a_version_from_a_folder_changes_with_its_code(tmp_path):
    def version_of(code):
        (tmp_path / "once.py").write_text(code)
        found = tmp_path / "once-1.0.dist-info"
        found.mkdir(exist_ok=True)
        (found / "METADATA").write_text("Metadata-Version: 2.1\nName: once\nVersion: 1.0\n")
        (found / "direct_url.json").write_text("{}")
        digest = base64.urlsafe_b64encode(hashlib.sha256(code.encode()).digest()).decode()
        (found / "RECORD").write_text(f"once.py,sha256={digest},{len(code)}\n")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return versions(str(python), ["once @ file:///there"])

    first, second = version_of("x = 1"), version_of("x = 2")

    assert first.startswith("once 1.0+")
    assert first != second
    assert version_of("x = 1") == first


def test_a_model_calls_once_and_then_answers(run):
    first = run()
    call = first.asks([])
    shown = [(call, _agents.text_of({"receipt": "r1"}))]

    assert first.asks([]) is None
    assert first.answer(shown) == {"receipt": "r1"}


def test_a_model_that_was_shown_the_answer_does_not_call_again(run):
    call = run().asks([])

    assert run().asks([(call, _agents.text_of(0))]) is None
    assert run(amount=100.0).asks([(call, _agents.text_of(None))]) is None
    assert run().asks([(call, "Error: it failed")]) is not None
    assert run(amount=250).asks([(call, _agents.text_of(0))]) is not None


def test_a_run_that_waits_is_kept_and_goes_on_when_a_person_said_yes(tmp_path):
    def run(amount=100):
        return _agents.Run(setup, lambda: "", "chat-1", {**ARGUMENTS, "amount": amount})

    setup = _setup(tmp_path, approval=True)
    _agents.opened(setup, list)
    with pytest.raises(LookupError, match="nothing waits for o1"):
        setup.approve(Wish(name="pay", order="o1"))
    first = run()
    assert isinstance(first.pause("the state"), _agents.Waits)
    with pytest.raises(_agents.Waits):
        run().go_on("call_1")

    setup.approve(Wish(name="pay", order="o1"))

    assert run().paused.read_text() == "the state"
    run().go_on("call_1")
    assert not run(amount=900).paused.exists(), "another wish has a conversation of its own"
    run().end()
    assert not run().paused.exists()


def test_what_the_model_is_shown_is_what_the_caller_is_told(run):
    agent = run()
    call = agent.asks([])
    unknown = json.dumps({"code": "OUTCOME_UNKNOWN", "retriable": False})

    assert agent.answer([(call, unknown)]) == Told("unknown")
    assert agent.answer([(call, f"Error: {unknown} Fix it.")]) == Told("unknown")
    with pytest.raises(_agents.ToolError, match="it broke"):
        agent.answer([(call, "it broke")])
