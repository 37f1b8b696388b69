"""`effectonce audit` and `effectonce metrics`: what was written down, whether it still fits, and
what a monitor sees.
"""

import contextlib
import json
import sqlite3

import pytest
from tests.cli.desk import Desk

from effectonce import Guard, Keyring
from effectonce.observe import Audit, alerts, grafana

APP = ("--app", "tests.cli.depot:guard")


def reference(desk, scope):
    return desk.json("effect", "list", "--scope", scope)["effects"][0]["reference"]


# ---------------------------------------------------------------- entries


def test_a_pipe_gets_a_line_for_each_entry_oldest_first(depot):
    ref = reference(depot, "c-2")
    lines = [
        line.split("\t") for line in depot.run("audit", "list", "--effect", ref).stdout.splitlines()
    ]

    assert [line[1] for line in lines] == [
        "reserved",
        "dispatched",
        "attempt",
        "in_doubt",
        "dead_letter",
    ]
    assert {line[3] for line in lines} == {ref}
    assert lines[3][4] == "attempt 1; TimeoutError (no answer, ambiguous); it timed out"


@pytest.mark.parametrize(
    ("options", "events"),
    [
        (["--event", "in_doubt"], ["in_doubt", "in_doubt"]),
        (["--event", "failed", "--tool", "tell"], ["failed"]),
        (["--since", "1h", "--event", "failed"], ["failed", "failed"]),
        (["--since", "2999-01-01"], []),
        (["--actor", "ada"], []),
        (["--tenant", "other"], []),
        (["--limit", "1"], ["closed"]),
        (["--tenant", "main", "--event", "failed", "--limit", "1"], ["failed"]),
    ],
)
def test_a_list_shows_what_was_asked_for(depot, options, events):
    document = depot.json("audit", "list", *options)

    assert document["schema"] == "effectonce.entries/1"
    assert [entry["event"] for entry in document["entries"]] == events


def test_what_a_person_decided_is_found_by_his_name(depot):
    ref = reference(depot, "c-2")
    depot.run(
        "indoubt", "refute", ref, "--reason", "ticket 812", "--yes", *APP, EFFECTONCE_STORE=""
    )

    (entry,) = depot.json("audit", "list", "--actor", "ada")["entries"]
    assert (entry["event"], entry["outcome"], entry["reason"], entry["effect"]) == (
        "settled",
        "not_happened",
        "ticket 812",
        ref,
    )


def test_a_table_of_entries_fits_a_terminal(depot):
    code, screen = depot.terminal("audit", "list")

    assert code == 0
    assert screen.splitlines()[0].split() == ["WHEN", "EVENT", "TOOL", "EFFECT", "WHAT"]
    assert all(len(line) <= 100 for line in screen.splitlines())


def test_an_event_that_is_misspelt_has_a_guess(depot):
    done = depot.run("audit", "list", "--event", "setled")

    assert done.returncode == 2
    assert "Did you mean 'settled'?" in done.stderr


def test_no_audit_says_how_to_have_one(empty):
    done = empty.run("audit", "list")

    assert (done.returncode, done.stdout) == (0, "")
    assert "guard.observe(Audit(guard))" in done.stderr
    assert "guard.observe(Audit(guard))" in empty.run("audit", "verify").stdout
    assert empty.json("effect", "list")["effects"] == []


def test_the_story_of_an_effect_has_its_entries_unless_they_are_not_wanted(depot):
    ref = reference(depot, "c-2")
    told, without = (
        depot.run("effect", "show", ref).stdout,
        depot.run("effect", "show", ref, "--no-audit").stdout,
    )

    assert "\nin the audit\n" in told
    assert "dead letter  attempt 1; TimeoutError (no answer, ambiguous); in_doubt\n" in told
    assert "in the audit" not in without
    assert [entry["event"] for entry in depot.json("effect", "show", ref)["audit"]][
        -1
    ] == "dead_letter"


def test_a_long_audit_of_one_effect_stays_one_screen(depot):
    ref = depot.json("dlq", "list")["letters"][0]["reference"]
    depot.run("dlq", "redrive", ref, "--reason", "again", "--yes", *APP)
    told = depot.run("effect", "show", ref).stdout

    assert f"are not shown: effectonce audit list --effect {ref}" in " ".join(told.split())
    assert len(told.partition("in the audit")[2].partition("\n\n")[0].splitlines()) <= 14


# ---------------------------------------------------------------- verifying


def test_an_audit_that_fits_says_so(depot):
    done = depot.run("audit", "verify", *APP)

    assert done.returncode == 0
    assert done.stdout.startswith("✓ all fits  ")
    assert "in 1 stream; nothing was changed or removed." in done.stdout


def test_an_entry_that_was_changed_is_found(depot):
    with contextlib.closing(sqlite3.connect(depot.folder / "effects.db")) as db, db:
        (name,) = db.execute(
            "SELECT name FROM cells WHERE name LIKE 'audit/%' ORDER BY name LIMIT 1"
        ).fetchone()
        (value,) = db.execute("SELECT value FROM cells WHERE name = ?", (name,)).fetchone()
        db.execute(
            "UPDATE cells SET value = ? WHERE name = ?",
            (bytes(value).replace(b"TimeoutErr", b"TimeoutOrr"), name),
        )
    told, data = depot.run("audit", "verify", *APP), depot.run("audit", "verify", "--json", *APP)

    assert (told.returncode, data.returncode) == (1, 1)
    assert "was changed" in told.stdout
    assert not json.loads(data.stdout)["ok"]
    assert {flaw["what"] for flaw in json.loads(data.stdout)["flaws"]} == {"changed"}


def test_a_batch_that_was_removed_is_found(depot):
    with contextlib.closing(sqlite3.connect(depot.folder / "effects.db")) as db, db:
        assert db.execute("DELETE FROM cells WHERE name LIKE 'audit/%00000000'").rowcount == 1
    done = depot.run("audit", "verify", *APP)

    assert done.returncode == 1
    assert "batch 0 is missing" in done.stdout


def test_without_the_secret_marks_are_not_checked_and_that_is_said(depot):
    done = depot.run("audit", "verify")

    assert done.returncode == 1
    assert done.stdout.startswith("! not checked  ")
    assert "can only be checked with the secret: give --app" in " ".join(done.stdout.split())


def test_what_is_expected_has_to_be_there(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = Guard(desk.url)
    audit = Audit(guard)
    line = audit.head()
    audit.close()
    guard.close()

    assert desk.run("audit", "verify", "--expect", line).returncode == 0
    sealing = {"EFFECTONCE_KEYS": Keyring.generate("2026-11")}
    refused = desk.run("audit", "verify", **sealing)
    assert refused.returncode == 1
    assert "it is not sealed" in " ".join(refused.stdout.split())
    assert (
        desk.run("audit", "verify", EFFECTONCE_PLAINTEXT_UNTIL="2999-12-31", **sealing).returncode
        == 0
    )
    stream, number, mark = line.split(":")
    assert (
        desk.run("audit", "verify", "--expect", f"{stream}:{int(number) + 9}:{mark}").returncode
        == 1
    )
    assert desk.run("audit", "verify", "--expect", "nonsense").returncode == 2


def test_a_sealed_audit_is_not_an_empty_one(tmp_path, monkeypatch):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    keys = Keyring.generate("2026-11")
    monkeypatch.setenv("TEST_KEYS", keys)
    guard = Guard(desk.url, keyring=Keyring.from_env("TEST_KEYS"), secret=b"shop")
    audit = Audit(guard)
    audit.head()
    audit.close()
    guard.close()

    for command in (("list",), ("scan",)):
        done = desk.run("audit", *command)
        assert done.returncode == 4
        assert "This audit is sealed" in done.stderr
    assert desk.json("audit", "list", EFFECTONCE_KEYS=keys)["entries"]


# ---------------------------------------------------------------- symptoms


def test_calls_that_should_have_been_one_are_found_and_steps_of_runs_are_not(depot):
    done = depot.run("audit", "scan", "--check")
    document = depot.json("audit", "scan")

    assert done.returncode == 3
    assert [(s["tool"], s["differs"]) for s in document["symptoms"]] == [
        ("tell", "scope"),
        ("call_back", "scope"),
    ]
    assert "it must have one name" in done.stdout
    assert (
        " apart\n  The scope differs. If it is one conversation or workflow, it must have one"
        " name.\n" in depot.run("-o", "table", "audit", "scan").stdout
    )
    assert depot.run("audit", "scan", "--check", "--within", "0", "--deploy", "0").returncode == 0


# ---------------------------------------------------------------- metrics


def test_what_the_store_holds_is_printed_for_prometheus(depot):
    shown = depot.run("metrics").stdout

    assert 'effectonce_effect_count{effectonce_state="in_doubt"} 2.0\n' in shown
    assert 'effectonce_dlq_size{gen_ai_tool_name="ship"} 3.0\n' in shown
    assert "# TYPE effectonce_in_doubt_oldest_age_seconds gauge\n" in shown
    # those of other processes are not here
    assert "breaker" not in depot.run("metrics", *APP).stdout


def test_a_store_that_does_not_answer_has_no_metrics_and_an_exit_code(empty):
    done = empty.run("metrics", EFFECTONCE_STORE="redis://127.0.0.1:1")

    assert (done.returncode, done.stdout) == (7, "")


def test_the_shipped_dashboard_and_alerts_are_printed_as_they_are(empty):
    assert empty.run("metrics", "grafana").stdout == grafana()
    assert empty.run("metrics", "alerts").stdout == alerts()


def test_without_its_library_metrics_say_what_to_install(depot):
    (depot.folder / "hidden").mkdir()
    (depot.folder / "hidden" / "prometheus_client.py").write_text("raise ImportError('not here')\n")
    from tests.cli.desk import environment

    done = depot.run(
        "metrics", PYTHONPATH=f"{depot.folder / 'hidden'}:{environment()['PYTHONPATH']}"
    )

    assert done.returncode == 1
    assert "pip install 'effectonce[prometheus]'" in done.stderr
