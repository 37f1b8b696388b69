"""`effectonce dlq`: what gave up is seen, tried again once, given up for good, and carried
elsewhere.
"""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.cli.desk import undated

APP = ("--app", "tests.cli.depot:guard")
SAID = ("--reason", "the carrier is back", "--yes")
OPEN = {"DEPOT_OPEN": "1"}


def letters(desk, *options):
    return desk.json("dlq", "list", *options)["letters"]


def reference(desk, scope):
    return next(letter["reference"] for letter in letters(desk) if letter["scope"] == scope)


# ---------------------------------------------------------------- looking


def test_a_pipe_gets_a_line_for_each_letter_the_oldest_first(depot):
    lines = [line.split("\t") for line in depot.run("dlq", "list").stdout.splitlines()]

    assert [(line[1], line[2], line[4], line[5]) for line in lines][:5] == [
        ("ship", "never_started", "2", "NotSent"),
        ("ship", "never_started", "2", "NotSent"),
        ("call_back", "never_started", "2", "NotSent"),
        ("tell", "in_doubt", "1", "TimeoutError"),
        ("deliver", "never_started", "1", "GaveUp"),
    ]
    assert len(lines) == 10
    assert {len(line) for line in lines} == {7}


TABLE = """\
EFFECT            TOOL       EFFECT IS      WHERE          TRIED  ERROR
eff_fd97d761e3ae  ship       never started  p-1/ship           2  NotSent
eff_cfb76987d9e0  ship       never started  p-2/ship           2  NotSent
eff_a5d1bd0e0f7e  call_back  never started  c-1/call back      2  NotSent
eff_259f9cdbace6  tell       in doubt       c-2/tell           1  TimeoutError
eff_46db1af78e5e  deliver    a waiting run                     1  GaveUp
"""


def test_a_person_gets_a_table(depot):
    shown = depot.run("-o", "table", "dlq", "list", "--limit", "5")

    # how long ago differs
    assert [line[:78].rstrip() for line in shown.stdout.splitlines()] == TABLE.splitlines()
    assert shown.stdout.splitlines()[0].endswith("FOR")
    assert shown.stderr == "There may be more: --cursor eff_46db1af78e5e\n"


GROUPS = """\
LETTERS  TOOL       ERROR         TAKEN FOR  OLDEST  GROUP
      3  ship       NotSent       unknown
      2  call_back  NotSent       unknown
      2  tell       TimeoutError  no answer
      1  deliver    GaveUp        unknown
      1  deliver    InDoubt       unknown
      1  apologise  GaveUp        unknown
"""


@pytest.mark.parametrize("command", [("dlq", "groups"), ("dlq", "list", "--group")])
def test_letters_with_the_same_trouble_are_counted_together(depot, command):
    shown = depot.run("-o", "table", *command).stdout.splitlines()

    assert shown[0] == GROUPS.splitlines()[0]
    assert [line[:43].rstrip() for line in shown[1:]] == GROUPS.splitlines()[1:]
    assert all(line.split()[-1].startswith("g_") for line in shown[1:])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--tool", "call_back"], ["call_back", "call_back"]),
        (["--error", "TimeoutError"], ["tell", "tell"]),
        (["--bucket", "no_answer"], ["tell", "tell"]),
        (["--state", "in-doubt"], ["tell", "tell"]),
        (["--state", "failed"], ["deliver", "tell"]),
        (["--older-than", "1h"], []),
        (["--tenant", "other"], []),
        (["--limit", "1"], ["ship"]),
    ],
)
def test_a_list_shows_what_was_asked_for(depot, options, found):
    assert [letter["tool"] for letter in letters(depot, *options)] == found


def test_pages_follow_each_other_and_miss_nothing(depot):
    seen, cursor = [], []
    while True:
        page = depot.json("dlq", "list", "--limit", "4", *cursor)
        seen += [letter["reference"] for letter in page["letters"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]

    assert seen == [letter["reference"] for letter in letters(depot)]


@pytest.mark.parametrize(
    "options", [["--bucket", "nonsense"], ["--older-than", "yesterday"], ["--state", "done"]]
)
def test_a_filter_that_no_letter_can_fit_is_wrong_usage(depot, options):
    assert depot.run("dlq", "list", *options).returncode == 2


def test_no_letter_is_good_news(empty):
    done = empty.run("dlq", "list")

    assert (done.returncode, done.stdout) == (0, "")
    assert (
        done.stderr
        == "No dead letter fits. One appears when a call gives up, or when an effect is in doubt.\n"
    )


STORY = """\
! given up  ship  {ref}
Nothing was sent, and its owner gave up. The next call does it.

where      p-1/ship
tenant     main
contract   write, downstream key, version 1: exactly once within W, then in doubt
sends      none
owner      OWNER
arguments  parcel (hidden: --reveal shows them)

DATE            claimed
DATE  +0.000 s  attempt 1 failed with NotSent: the carrier cannot be reached (not
                                   sent)
DATE  +0.000 s  attempt 2 failed with NotSent: the carrier cannot be reached (not
                                   sent); gave up: it was tried 2 times
Only an audit keeps the calls that got its result again: guard.observe(Audit(guard)). For whom a
call was made is kept where it needed an approval.

try it again  effectonce dlq redrive {ref} --app MODULE:GUARD --reason TEXT
give it up    effectonce dlq discard {ref} --reason TEXT
"""


def test_a_letter_is_told_with_every_attempt_and_what_can_be_done(depot):
    ref = reference(depot, "p-1")
    shown = [
        "owner      OWNER" if line.startswith("owner") else line
        for line in undated(depot.run("dlq", "show", ref).stdout).splitlines()
    ]

    assert "\n".join(shown) + "\n" == STORY.format(ref=ref)


def test_a_letter_as_json_hides_what_was_said(depot):
    ref = reference(depot, "p-1")
    shown, revealed = depot.json("dlq", "show", ref), depot.json("dlq", "show", ref, "--reveal")

    assert shown["schema"] == "effectonce.letter/1"
    assert [(a["number"], a["error"], a["certainty"], a["gave_up"]) for a in shown["attempts"]] == [
        (1, "NotSent", "not_sent", None),
        (2, "NotSent", "not_sent", "it was tried 2 times"),
    ]
    assert "arguments" not in shown
    assert "key" not in shown
    assert revealed["arguments"] == {"parcel": "p-1"}
    assert revealed["key"].endswith(ref.removeprefix("eff_"))


def test_what_has_an_outcome_is_no_letter(depot):
    done = depot.json("effect", "list", "--state", "completed")["effects"][0]["reference"]

    for command in (("show",), ("discard", *SAID)):
        said = depot.run("dlq", command[0], done, *command[1:])
        assert said.returncode == 6
        assert "is no dead letter: it is completed." in said.stderr


# ---------------------------------------------------------------- redriving


def test_a_dry_run_says_what_would_be_done_and_does_nothing(depot):
    shown = depot.run(
        "-o", "table", "dlq", "redrive", "--all", "--tool", "ship", "--dry-run", *APP, **OPEN
    )

    assert shown.returncode == 0, shown.stderr
    assert [line[16:] for line in shown.stdout.splitlines()[1:]] == [
        "  ship  would be redriven"
    ] * 3
    assert shown.stderr == "3 would be redriven. Nothing was changed.\n"
    assert len(letters(depot)) == 10
    assert "ship p-1" not in depot.done()


def test_letters_of_both_colours_are_redriven_once_however_often(depot):
    redriven = depot.json(
        "dlq", "redrive", "--all", "--error", "NotSent", *SAID, "--rps", "1000", *APP, **OPEN
    )
    again = depot.run("dlq", "redrive", "--all", "--error", "NotSent", *SAID, *APP, **OPEN)

    assert redriven["schema"] == "effectonce.redriven/1"
    assert redriven["counts"] == {"done": 5}
    assert again.returncode == 0
    assert "No dead letter fits." in again.stderr
    assert sorted(depot.done()[-5:]) == [
        "call back ada",
        "call back ada",
        "ship p-1",
        "ship p-2",
        "ship parcel of o-1",
    ]


def test_who_redrove_it_stays_in_its_story(depot):
    ref = reference(depot, "p-1")
    assert depot.run("dlq", "redrive", ref, *SAID, *APP, **OPEN).returncode == 0
    shown, told = depot.json("effect", "show", ref), depot.run("effect", "show", ref).stdout

    assert [(asked["by"], asked["reason"]) for asked in shown["asked"]] == [
        ("ada", "the carrier is back")
    ]
    assert [(entry["event"], entry.get("by")) for entry in shown["audit"]][-1] == (
        "redriven",
        "ada",
    )
    moments = [
        "  claimed\n",
        "attempt 1 failed",
        "attempt 2 failed",
        "ada asked for it again: the carrier is back",
        "  completed\n",
    ]
    places = [told.index(text) for text in moments]
    assert places == sorted(places)


def test_what_gives_up_once_more_stays_a_letter_and_is_an_exit_code(depot):
    ref = reference(depot, "p-1")
    done = depot.run("dlq", "redrive", ref, *SAID, *APP)

    assert done.returncode == 1
    assert done.stdout.split("\t")[2] == "gave_up"
    assert ref in {letter["reference"] for letter in letters(depot)}


def test_what_is_in_doubt_is_not_sent_again(depot):
    ref = reference(depot, "c-2")
    named = depot.run("dlq", "redrive", ref, *SAID, *APP)
    among_all = depot.run("dlq", "redrive", "--all", "--state", "in_doubt", *SAID, *APP)

    assert (named.returncode, among_all.returncode) == (1, 0)
    assert "there is no probe to ask" in named.stdout


def test_only_as_many_are_redriven_as_were_asked_for(depot):
    redriven = depot.json(
        "dlq", "redrive", "--all", "--tool", "ship", "--limit", "1", *SAID, *APP, **OPEN
    )

    assert redriven["counts"] == {"done": 1}
    assert depot.done().count("ship p-2") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--all", *SAID], "--app MODULE:GUARD"),
        ([*SAID, *APP], "Say which: EFFECT, or --all"),
        (["eff_fd97", "--all", *SAID, *APP], "Say which: EFFECT, or --all"),
        (["--all", "--reason", "seen", *APP], "give --yes"),
        (["--all", "--yes", *APP], "Say why with --reason"),
        (["--all", "--rps", "0", *SAID, *APP], "--rps"),
    ],
)
def test_everything_has_to_be_said(depot, options, said):
    done = depot.run("dlq", "redrive", *options, **OPEN)

    assert done.returncode == 2
    assert said in done.stderr
    assert len(letters(depot)) == 10


def test_a_person_is_shown_what_would_be_done_and_asked(depot):
    command = ("dlq", "redrive", "--all", "--tool", "ship", *APP)
    declined, screen = depot.terminal(
        *command, dialogue=(("Reason:", "it is back"), ("[y/N]:", "n")), **OPEN
    )
    accepted, _ = depot.terminal(
        *command, dialogue=(("Reason:", "it is back"), ("[y/N]:", "y")), **OPEN
    )

    assert (declined, accepted) == (1, 0)
    assert f"  {letters(depot, '--failed')[0]['reference'][:4]}" in screen
    assert "3 would be redriven." in screen
    assert "Redrive 3 under the same keys? [y/N]:" in screen
    assert depot.done().count("ship p-1") == 1


def interrupt_redrive(depot, awaited, *options, **environ):
    """Redrive all parcels, and press Ctrl-C once the depot's ledger has a line."""
    command = ("dlq", "redrive", "--all", "--tool", "ship", *SAID, *APP, *options)
    with depot.start(*command, **OPEN, **environ) as redriving:
        while awaited not in depot.done():
            assert redriving.poll() is None
        os.kill(redriving.pid, signal.SIGINT)
        if "DEPOT_SLOW" in environ:
            Path(environ["DEPOT_SLOW"]).touch()
        output, messages = redriving.communicate()
    assert redriving.returncode == 130
    return [item["what"] for item in json.loads(output)["redriven"]], messages


def test_an_interrupted_redrive_ends_with_the_letter_at_hand(depot):
    """One Ctrl-C while the first letter is being done: it is done, and no other is begun."""
    ends, messages = interrupt_redrive(
        depot, "begin p-1", "--json", DEPOT_SLOW=str(depot.folder / "go")
    )

    assert ends == ["done", "not_tried", "not_tried"]
    assert "What was not tried is a letter as before." in messages
    assert [line for line in depot.done() if line.startswith("ship p-")] == ["ship p-1"]


def test_an_interrupted_pause_is_over(depot):
    ends, _ = interrupt_redrive(depot, "ship p-1", "--rps", "0.001", "--json")

    assert ends == ["done", "not_tried", "not_tried"]


# ---------------------------------------------------------------- discarding


def test_what_is_discarded_is_a_failure_from_then_on_with_a_name_and_a_reason(depot):
    ref = reference(depot, "p-1")
    done = depot.run("dlq", "discard", ref, "--reason", "the customer has withdrawn", "--yes")
    shown = depot.json("effect", "show", ref)

    assert done.returncode == 0
    assert "1 letter discarded, says ada." in done.stderr
    assert (shown["state"], shown["settled_by"], shown["reason"]) == (
        "failed",
        "ada",
        "the customer has withdrawn",
    )
    assert ref not in {letter["reference"] for letter in letters(depot)}
    assert depot.run("dlq", "discard", ref, *SAID).returncode == 6


def test_a_run_is_not_discarded_but_cancelled(depot):
    run = next(letter["reference"] for letter in letters(depot) if letter["is_run"])
    done = depot.run("dlq", "discard", run, *SAID)

    assert done.returncode == 4
    assert "cancel it" in done.stdout
    assert run in {letter["reference"] for letter in letters(depot)}


def test_who_discards_says_why_and_that_it_is_meant(depot):
    ref = reference(depot, "c-2")

    assert "Say why with --reason" in depot.run("dlq", "discard", ref, "--yes").stderr
    assert "give --yes" in depot.run("dlq", "discard", ref, "--reason", "seen").stderr
    code, screen = depot.terminal(
        "dlq", "discard", ref, "--reason", "seen", dialogue=(("[y/N]:", "n"),)
    )
    assert code == 1
    assert "It may have happened: discarding says that it did not." in " ".join(screen.split())


# ---------------------------------------------------------------- carrying


def test_letters_are_carried_to_another_store_and_bad_lines_are_told(depot, tmp_path):
    other = f"sqlite:///{tmp_path / 'other.db'}"
    exported = depot.run("dlq", "export", "letters.jsonl", "--tool", "ship")
    good = (tmp_path / "letters.jsonl").read_text()
    lines = good.splitlines()
    text = "\n".join([lines[0], "torn", lines[1], lines[2].replace("ship", "slip"), ""])
    imported = depot.run("dlq", "import", text=text, EFFECTONCE_STORE=other)
    again = depot.run("dlq", "import", "letters.jsonl", "--json", EFFECTONCE_STORE=other)

    assert exported.stderr == "3 letters. Arguments are in the clear.\n"
    assert (tmp_path / "letters.jsonl").stat().st_mode & 0o777 == 0o600
    assert imported.returncode == 1
    assert [line.split("\t")[0] for line in imported.stdout.splitlines()] == ["2", "4"]
    assert "its digest does not fit" in imported.stdout
    assert imported.stderr == "2 imported, 0 known already, 2 bad lines.\n"
    assert json.loads(again.stdout) == {
        "schema": "effectonce.problems/1",
        "problems": [],
        "imported": 1,
        "known": 2,
    }
    assert len(depot.json("dlq", "list", EFFECTONCE_STORE=other)["letters"]) == 3


def test_an_export_may_go_into_a_pipe(depot):
    done = depot.run("dlq", "export", "--tool", "call_back")

    assert [json.loads(line)["letter"]["tool"] for line in done.stdout.splitlines()] == [
        "call_back",
        "call_back",
    ]
    assert depot.run("dlq", "import", "nowhere.jsonl").returncode == 2


# ---------------------------------------------------------------- servers


def test_letters_in_servers_are_worked_off_like_those_in_files(depot_elsewhere):
    ref = reference(depot_elsewhere, "p-1")

    assert len(letters(depot_elsewhere)) == 10
    assert depot_elsewhere.json("dlq", "groups")["groups"][0]["count"] == 3
    redriven = depot_elsewhere.json(
        "dlq", "redrive", "--all", "--error", "NotSent", *SAID, "--rps", "1000", *APP, **OPEN
    )
    assert redriven["counts"] == {"done": 5}
    assert depot_elsewhere.json("effect", "show", ref)["audit"][-1]["event"] == "redriven"
    assert len(depot_elsewhere.run("dlq", "export").stdout.splitlines()) == 2  # the 3 runs stay
    assert len(depot_elsewhere.json("workflow", "list")["runs"]) == 3
    run = depot_elsewhere.json("workflow", "list", "--state", "failed")["runs"][0]["reference"]
    assert [step["state"] for step in depot_elsewhere.json("workflow", "show", run)["steps"]] == [
        "completed",
        "completed",
        "failed",
    ]
    assert depot_elsewhere.json("audit", "verify", *APP)["ok"]
    assert (
        'effectonce_effect_count{effectonce_state="in_doubt"} 2.0'
        in depot_elsewhere.run("metrics").stdout
    )


def test_a_dry_run_counts_only_what_would_be_discarded(depot):
    run = next(letter["reference"] for letter in letters(depot) if letter["is_run"])
    done = depot.run(
        "dlq", "discard", run, reference(depot, "p-1"), "--reason", "seen", "--dry-run"
    )

    assert done.returncode == 0
    assert "1 letter would be discarded. Nothing was changed." in done.stderr
    assert "it is a run of a workflow" in done.stdout
    assert len(letters(depot)) == 10


@pytest.mark.parametrize(("options", "entries"), [((), 0), (APP, 1)], ids=["store", "app"])
def test_a_decision_that_the_audit_does_not_have_is_told(depot, options, entries):
    ref = reference(depot, "p-1")
    done = depot.run("dlq", "discard", ref, *SAID, *options)
    listed = depot.json("audit", "list", "--effect", ref, "--event", "discarded", *APP)

    told = "The audit has no entry of this: it is on the record alone." in done.stderr
    assert (len(listed["entries"]), told) == (entries, entries == 0)
