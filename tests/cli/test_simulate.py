"""`effectonce simulate` as a person and as a script sees it."""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from tests.cli.test_cli import effectonce, run

SMALL = {
    "jitter": ("--clients", "10", "--runs", "2"),
    "storm": ("--rate", "5"),
    "budget": ("--calls", "500"),
    "turns": ("--turns", "1000"),
}
POLICIES = {
    "jitter": ["none", "exponential", "equal", "full", "decorrelated"],
    "storm": [
        "no retries",
        "naive",
        "naive + keys",
        "jitter",
        "one layer",
        "budget",
        "breaker",
        "whole",
    ],
    "budget": ["none", "effectonce", "gRPC A6"],
    "turns": ["naive", "fixed", "jitter", "whole"],
}
SVG = "{http://www.w3.org/2000/svg}"


def at_width(columns, *arguments, **environ):
    command = [sys.executable, "-m", "effectonce.cli", "simulate", *arguments]
    environment = os.environ | {"COLUMNS": str(columns), "NO_COLOR": "1"} | environ
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", SMALL)
def test_a_chart_fits_the_terminal_and_shows_every_policy(name, columns):
    said = at_width(columns, name, *SMALL[name])

    assert (said.returncode, said.stderr) == (0, "")
    assert max(len(line) for line in said.stdout.splitlines()) <= columns
    assert all(
        any(line.startswith(f"{policy} ") for line in said.stdout.splitlines())
        for policy in POLICIES[name]
    )
    assert "\x1b" not in said.stdout
    assert "…" not in said.stdout, "something was cut off"


@pytest.mark.parametrize("name", SMALL)
def test_scripts_get_json_and_nothing_else(name):
    said = effectonce("simulate", name, *SMALL[name], "--json")

    assert (said.returncode, said.stderr) == (0, "")
    assert [one["policy"] for one in json.loads(said.stdout)["policies"]] == POLICIES[name]


@pytest.mark.parametrize("name", SMALL)
def test_a_seed_gives_the_same_json_in_another_process(name):
    ones = [
        effectonce("simulate", name, *SMALL[name], "--seed", seed, "--json").stdout
        for seed in ("3", "3", "4")
    ]

    assert ones[0] == ones[1] != ones[2]


@pytest.mark.parametrize("name", SMALL)
def test_a_figure_is_svg_with_every_policy(name, tmp_path):
    said = effectonce("simulate", name, *SMALL[name], "--svg", str(tmp_path / "it.svg"))
    drawn = ET.parse(tmp_path / "it.svg").getroot()
    words = [text.text for text in drawn.iter(f"{SVG}text")]

    assert drawn.tag == f"{SVG}svg"
    assert set(POLICIES[name]) <= set(words)
    assert len([*drawn.iter(f"{SVG}rect"), *drawn.iter(f"{SVG}polygon")]) > len(POLICIES[name])
    assert f"Drawn into {tmp_path}" in said.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("jitter", {"calls": "{:,.0f}", "completion_ms": "{:,.0f} ms"}),
        ("storm", {"goodput": "{:.1%}", "amplification": "{:.2f}x", "duplicates": "{:,}"}),
        ("turns", {"unretryable": "{:.2%}", "lost_to_429": "{:.2%}", "latency_factor": "{:.3f}x"}),
    ],
)
def test_the_figures_drawn_are_the_figures_printed(name, shown, tmp_path):
    said = effectonce("simulate", name, *SMALL[name], "--json", "--svg", str(tmp_path / "it.svg"))
    words = {text.text for text in ET.parse(tmp_path / "it.svg").getroot().iter(f"{SVG}text")}

    for one in json.loads(said.stdout)["policies"]:
        assert {form.format(one[field]) for field, form in shown.items()} <= words


def test_a_moved_assumption_is_told_and_moves_the_result():
    said, calm, crowded = (
        effectonce("simulate", "turns", "--turns", "2000", *options)
        for options in (
            ("--set", "headroom=1"),
            ("--set", "headroom=50", "--json"),
            ("--set", "headroom=1", "--json"),
        )
    )

    assert "headroom=1" in said.stdout
    assert json.loads(crowded.stdout)["changes"] == {"headroom": 1.0}
    naive = [json.loads(one.stdout)["policies"][0]["unretryable"] for one in (calm, crowded)]
    assert naive[1] > 2 * naive[0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("headrom=2", "there is no assumption 'headrom'"),
        ("headroom=much", "write NAME=NUMBER"),
        ("headroom=-1", "choose a number from 1 to 100"),
        ("attempts=2.5", "choose a whole number from 1 to 20"),
    ],
)
def test_a_wrong_assumption_is_explained(given, told):
    said = effectonce("simulate", "turns", "--set", given)

    assert said.returncode == 2
    assert told in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "storm", "--rate"),
        ("dlq", "redrive", "--rps"),
        ("audit", "scan", "--within"),
        ("tail", "--interval"),
    ],
)
def test_what_is_not_a_number_is_no_number(command):
    said = effectonce(*command, "nan")

    assert said.returncode == 2
    assert "nan is not a number" in " ".join(said.stderr.split())


def test_the_assumptions_are_printed_as_markdown():
    assert "| `headroom` | 1.25 |" in effectonce("simulate", "turns", "--assumptions").stdout


def test_a_file_that_cannot_be_written_is_explained(tmp_path):
    said = effectonce("simulate", "storm", "--rate", "5", "--svg", str(tmp_path / "no" / "it.svg"))

    assert said.returncode == 2
    assert "Traceback" not in said.stderr
    assert "it.svg" in " ".join(said.stderr.split())


@pytest.mark.parametrize("name", ["", *SMALL])
def test_every_simulation_has_help_with_an_example(name):
    said = effectonce("simulate", *([name] if name else []), "-h")

    assert said.returncode == 0
    assert "Examples:" in said.stdout


def test_importing_effectonce_imports_no_simulation():
    code = "import effectonce, sys; print([name for name in sys.modules if 'simulate' in name])"

    assert run("-c", code).stdout.strip() == "[]"


def test_colour_is_there_when_it_is_asked_for():
    assert "\x1b[32m" in effectonce("simulate", "storm", "--rate", "5", "--color", "always").stdout
