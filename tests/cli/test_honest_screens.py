"""What a screen says is so: states as they are, rows whole on a narrow terminal, one answer."""

import pytest
from rich.cells import cell_len

APP = ("--app", "tests.cli.depot:guard")
SCREENS = [
    ("status",),
    ("effect", "list"),
    ("indoubt", "list"),
    ("dlq", "list"),
    ("dlq", "groups"),
    ("workflow", "list"),
    ("workflow", "list", "--state", "all"),
    ("approve", "list"),
    ("allowance", "list"),
    ("audit", "list"),
    ("tool", "list", *APP),
    ("breaker", "list", *APP),
    ("provider", "list"),
    ("config", "show"),
    ("store", "stats"),
    ("doctor",),
]


def rows(depot, *command):
    """The first words of each line that names an effect."""
    lines = depot.run("-o", "table", *command, width=160).stdout.splitlines()
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines if "eff_" in line}


def test_what_was_given_up_is_not_called_claimed(depot):
    given_up = [n for n in depot.json("status")["needs_you"] if n["why"] == "given up"]
    listed = rows(depot, "effect", "list", "--limit", "500")

    assert given_up
    for need in given_up:
        assert " given up " in listed[need["reference"]]
        shown = depot.run("effect", "show", need["reference"]).stdout
        assert shown.startswith("! given up")
        found = depot.json("effect", "show", need["reference"])
        assert (found["given_up"], found["state"]) == (True, "claimed")


def test_a_run_stands_in_every_list_as_it_does_in_that_of_runs(depot):
    listed = rows(depot, "effect", "list", "--limit", "500")
    runs = depot.json("workflow", "list", "--state", "all")["runs"]

    assert {run["state"] for run in runs} >= {"waiting"}
    assert all(f" {run['state']} " in listed[run["reference"]] for run in runs)


def test_counts_in_json_are_those_of_the_lists(depot):
    status = depot.json("status")
    effects = depot.json("effect", "list", "--limit", "500")["effects"]

    assert status["given_up"] == sum(effect["given_up"] for effect in effects)
    assert status["in_doubt"] == depot.json("indoubt", "list")["in_doubt"]
    for state, count in status["counts"].items():
        assert count == sum(effect["state"] == state for effect in effects), state
    letters = depot.json("dlq", "list", "--limit", "500")["letters"]
    assert {need["reference"] for need in status["needs_you"]} >= {
        letter["reference"] for letter in letters if letter["effect_state"] == "never_started"
    }


@pytest.mark.parametrize("command", SCREENS, ids=" ".join)
def test_no_row_breaks_at_60_columns(depot, command):
    code, screen = depot.terminal(*command, width=60)

    wide = [line for line in screen.splitlines() if cell_len(line) > 60]
    assert code == 0
    assert [line for line in wide if not line.strip().startswith("effectonce ")] == []
