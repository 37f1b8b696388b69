"""The controls, effectonce, and two peers, on the scenarios that say most.

Every subject runs in processes of its own; what it did is counted by another one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from oncebench import clocks, controls
from oncebench import score as scores
from oncebench.adapters import control_never_again
from oncebench.controls import Void, check_controls
from oncebench.environments import environment
from oncebench.kit import Wish
from oncebench.scenarios import ELSEWHERE, scenarios
from oncebench.score import Cell, plan, play, score
from oncebench.stage import Stage, Subject
from oncebench.syscalls import Point
from oncebench.world import world

QUICK = (
    *("T04/keys", "T05/deaf", "T09/deaf", "T28/deaf", "T43/deaf", "T26/keys"),
    *("T33/deaf", "T34/deaf", "T35/asks", "T39/keys"),
)
SAFE = {"ok", "W", "N"}


@pytest.mark.long
def test_the_controls_come_out_as_they_must():
    cells = check_controls(sys.executable)

    assert {cell.subject for cell in cells} == {*controls.EXPECTED, "control_broken_store"}


@pytest.mark.long
def test_the_control_with_a_broken_store_is_right_without_its_bug():
    store = Subject(adapter="control_broken_store")

    cells = score([store], only={name for name, _ in controls.BUGS.values()}, confirm=1)

    assert {cell.name: cell.verdict for cell in cells if cell.verdict != "ok"} == {}


def test_a_control_that_comes_out_wrong_voids_the_run(monkeypatch):
    monkeypatch.setattr(controls, "EXPECTED", {"control_oracle": {"T04/deaf": "D"}})
    monkeypatch.setattr(controls, "BUGS", {})

    with pytest.raises(Void, match="control_oracle must be D in T04/deaf, and is ok"):
        check_controls(sys.executable)


def test_a_bug_that_is_not_found_voids_the_run(monkeypatch):
    monkeypatch.setattr(controls, "EXPECTED", {})
    monkeypatch.setattr(controls, "BUGS", {"the lease is ignored": ("T05/deaf", "D")})

    with pytest.raises(Void, match=r"control_broken_store \(the lease is ignored\) must be D"):
        check_controls(sys.executable)


@pytest.mark.parametrize("best", [pytest.param(False, marks=pytest.mark.long), True])
def test_effectonce_makes_no_duplicate_loses_nothing_and_says_nothing_false(best):
    subject = Subject(adapter="effectonce", python=sys.executable, best=best)

    cells = {c.name: c for c in score([subject], only=QUICK, confirm=1)}

    assert {c.verdict for c in cells.values()} <= SAFE, cells
    if best:
        assert {c.verdict for c in cells.values()} == {"ok"}, cells


@pytest.mark.long
@pytest.mark.parametrize(("adapter", "verdict"), [("agent_once", "ok"), ("latch", "D")])
def test_a_peer_is_played_in_an_environment_of_its_own(adapter, verdict, tmp_path):
    with environment(adapter, kept_in=tmp_path) as python:
        from oncebench.environments import servers, versions
        from oncebench.scoring_cli import known

        peer = known()[adapter]
        with servers(getattr(peer, "SERVERS", ())) as urls:
            subject = Subject(adapter=adapter, python=python, servers=urls)
            cell = play(subject, scenarios()["T04"], "deaf", confirm=1)

        assert versions(python, peer.REQUIRES).startswith(peer.NAME)
    assert cell.verdict == verdict
    assert cell.history


def test_an_unknown_scenario_is_an_error():
    with pytest.raises(ValueError, match="there is no scenario"):
        plan(only=["T99"])


def test_every_scenario_says_what_it_is_why_it_matters_and_what_is_right():
    for scenario in scenarios().values():
        for part in ("What: ", "Why: ", "Right: "):
            assert part in scenario.text, scenario.name


def test_every_number_of_the_list_is_a_scenario_or_says_why_it_is_none():
    numbers = {f"T{n:02}" for n in range(1, 45)}

    assert {name[:3] for name in scenarios()} | set(ELSEWHERE) == numbers
    assert not set(scenarios()) & set(ELSEWHERE)
    for why in ELSEWHERE.values():
        assert set(re.findall(r"T\d\d", why)) <= set(scenarios()), why


@pytest.mark.parametrize(
    "name",
    [
        *("T27/deaf", "T33/deaf", "T39/keys", "T41b/asks"),
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("T27b/keys", "T36/deaf", "T32/deaf", "T34/deaf", "T35/keys")
        ),
    ],
)
def test_the_oracle_is_right_and_a_naive_retry_is_not(name):
    number, temperament = name.split("/")

    verdicts = [
        play(Subject(adapter=adapter), scenarios()[number], temperament, confirm=1).verdict
        for adapter in ("control_oracle", "control_naive")
    ]

    assert verdicts == ["ok", "D"]


ROWS = ("T05", "T18", "T25", "T26", "T43")


@pytest.mark.parametrize(
    "adapter",
    [pytest.param("control_oracle", marks=pytest.mark.long), "effectonce", "control_naive"],
)
def test_where_the_effect_is_a_row_a_shared_transaction_is_right(adapter):
    subject = Subject(adapter=adapter, best=adapter == "effectonce")

    cells = score([subject], only=[f"{name}/transaction" for name in ROWS], confirm=1)

    verdicts = {cell.scenario: cell.verdict for cell in cells}
    assert set(verdicts) == set(ROWS)
    if adapter == "control_naive":
        assert verdicts == {"T05": "ok", "T18": "D", "T25": "D", "T26": "D", "T43": "D"}
    else:
        assert set(verdicts.values()) == {"ok"}, verdicts


@pytest.fixture
def stage(tmp_path):
    folder = tmp_path / "subject"
    folder.mkdir()
    with world(tmp_path / "ledger") as here:
        made = Stage(
            Subject(adapter="control_oracle"), here, folder, temperament="deaf", window_s=None
        )
        yield made
        made.close()


def test_a_process_that_was_killed_at_its_last_send_may_have_sent(stage):
    clean = stage.kill_points(Wish(name="clean", order="clean"))
    last = max(p.nth for p in clean if p.call == "sendto")

    assert stage.killed_at(Point("kill", "sendto", last), Wish(name="hit", order="hit")) is True


def test_a_process_that_was_not_killed_is_no_fault_and_says_where_to_try_next(stage):
    missed = stage.killed_at(Point("kill", "sendto", 900), Wish(name="not", order="not"))

    assert isinstance(missed, Point)
    assert stage.killed_at(missed, Wish(name="next", order="next")) is True


def test_a_cell_that_is_not_the_same_each_time_is_neither_a_pass_nor_a_fault(monkeypatch):
    plays = iter(["W", "ok", "W"])
    made = partial(Cell, subject="x", configuration="best", scenario="T04", temperament="deaf")
    monkeypatch.setattr(
        scores,
        "_play_once",
        lambda *_, **__: made(verdict=next(plays), why="", persons=1, faults=1, effects=1),
    )

    cell = play(Subject(adapter="control_oracle"), scenarios()["T04"], "deaf")

    assert (cell.verdict, cell.seen) == ("U", "not the same each time: W, ok, W")
    assert (cell.persons, cell.faults, cell.effects) == (0, 0, 0)


def test_a_cell_that_is_not_scored_is_in_no_figure(monkeypatch):
    monkeypatch.setattr(control_never_again, "LACKS", {"keys": "it has no keys (README, 1)"})

    cell = play(Subject(adapter="control_never_again"), scenarios()["T04"], "keys")

    assert (cell.verdict, cell.why) == ("N", "it has no keys (README, 1)")
    assert (cell.persons, cell.faults, cell.effects, cell.wishes) == (0, 0, 0, 0)


def test_a_process_with_another_clock_sleeps_as_others_do():
    code = "from oncebench.clocks import mend_sleep; mend_sleep(); import time; a = time.monotonic(); time.sleep(0.1); print(time.time(), time.monotonic() - a)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **clocks.shifted(-3600)},
        capture_output=True,
        text=True,
        check=True,
    )

    now, slept_s = map(float, run.stdout.split())
    assert 3500 < time.time() - now < 3700
    assert 0.1 <= slept_s < 10


def test_a_scenario_that_this_machine_cannot_play_is_no_pass_and_says_why(monkeypatch):
    monkeypatch.setattr(clocks, "PLACES", ())

    [cell] = score([Subject(adapter="control_oracle")], only=["T27"])

    assert cell.verdict == "N"
    assert "apt-get install faketime" in cell.why


def test_the_commands_list_what_there_is():
    def listed(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "oncebench", *arguments],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "effectonce" in listed("subjects")
    assert "T04    The answer is lost (deaf, asks, keys)" in listed("scenarios")
    assert "What: " in listed("scenarios", "T04")


def test_the_kit_imports_nothing_of_effectonce():
    source = Path(__file__).parent.parent / "src" / "oncebench"
    allowed = source / "adapters"

    for file in source.rglob("*.py"):
        if not file.is_relative_to(allowed):
            assert "effectonce" not in file.read_text(), file
