"""`effectonce workflow`: runs on one screen, going on where they stopped, and ending them."""

import re

import pytest
from tests.cli.desk import Desk, undated

from effectonce import ApprovalNeeded, Guard, Keyring
from effectonce.workflows import Run

APP = ("--app", "tests.cli.depot:guard")
SAID = ("--reason", "the customer has withdrawn", "--yes")
OPEN = {"DEPOT_OPEN": "1"}


def runs(desk, *options):
    return desk.json("workflow", "list", *options)["runs"]


@pytest.fixture
def waiting(depot):
    """The run whose parcel was not shipped."""
    return runs(depot)[0]["reference"]


@pytest.fixture
def doubtful(depot):
    """The run whose customer may have been told."""
    return runs(depot)[1]["reference"]


@pytest.fixture
def failed(depot):
    return runs(depot, "--state", "failed")[0]["reference"]


# ---------------------------------------------------------------- looking


def test_open_runs_are_listed_with_their_state_and_how_often_they_were_begun(depot):
    assert [(run["workflow"], run["state"], run["runs"]) for run in runs(depot)] == [
        ("deliver", "waiting", 1),
        ("deliver", "waiting", 1),
        ("apologise", "waiting", 1),
    ]
    lines = [
        line.split("\t")
        for line in depot.run("workflow", "list", "--workflow", "apologise").stdout.splitlines()
    ]
    assert [(line[1], line[2], line[3]) for line in lines] == [("apologise", "waiting", "1")]
    assert lines[0][5].startswith("GaveUp: call_back eff_")


@pytest.mark.parametrize(
    ("state", "count"), [("open", 3), ("completed", 0), ("failed", 1), ("all", 4)]
)
def test_runs_are_listed_by_their_state(depot, state, count):
    assert len(runs(depot, "--state", state)) == count
    assert len(runs(depot, "--state", state, "--limit", "1")) == min(1, count)


def test_a_table_of_runs_fits_a_terminal(depot):
    code, screen = depot.terminal("workflow", "list", "--state", "all")

    assert code == 0
    assert re.match(r"RUN +WORKFLOW +STATE +BEGUN +AGE +WHY$", screen.splitlines()[0])
    assert len(screen.splitlines()) == 5
    assert all(len(line) <= 100 for line in screen.splitlines())


def test_no_open_run_is_good_news(empty):
    assert empty.run("workflow", "list").stderr == "No run is open.\n"
    assert (
        empty.run("workflow", "list", "--workflow", "deliver").stderr
        == "No run of deliver is open.\n"
    )
    assert "@guard.workflow" in empty.run("workflow", "list", "--state", "all").stderr


WAITING = """\
? waiting  deliver  {run}
This run of a workflow waits. The next call, or resuming it, goes on where it stopped.

begun       1 time, first DATE
stopped by  InDoubt: tell {step} (deliver {run}/3 tell the customer) is in
            doubt: it timed out (TimeoutError: the mail server hung up). It was not retried.
arguments   order, customer (hidden: --reveal shows them)

steps
  1  pack               completed  {pack}
  2  ship               completed  {ship}
  3  tell the customer  in doubt   {step}  TimeoutError: the mail server hung up

settle step 3  effectonce effect show {step}
go on          effectonce workflow resume {run} --app MODULE:GUARD
end it         effectonce workflow cancel {run} --reason TEXT
"""


def test_a_run_is_shown_with_its_steps_and_what_to_do_next(depot, doubtful):
    steps = [step["reference"] for step in depot.json("workflow", "show", doubtful)["steps"]]
    expected = WAITING.format(run=doubtful, pack=steps[0], ship=steps[1], step=steps[2])

    assert undated(depot.run("workflow", "show", doubtful).stdout) == expected


FAILED = """\
steps
  1  pack               completed  REF
  2  ship               completed  REF
  3  tell the customer  failed     REF  Rejected: the mailbox does not exist

compensations
  1  take it back  completed  REF

Nothing to do.
"""


def test_compensations_are_shown_below_the_steps(depot, failed):
    shown = re.sub("eff_[0-9a-f]{12}", "REF", depot.run("workflow", "show", failed).stdout)

    assert shown.startswith(
        "✗ failed  deliver  REF\nThis run of a workflow failed for good, and was compensated."
    )
    assert shown.endswith(FAILED)


def test_a_run_as_json_hides_its_arguments(depot, failed):
    shown, revealed = (
        depot.json("workflow", "show", failed),
        depot.json("workflow", "show", failed, "--reveal"),
    )

    assert shown["schema"] == "effectonce.run/1"
    assert [(s["position"], s["name"], s["state"], s["sends"]) for s in shown["compensations"]] == [
        (1, "take it back", "completed", 1)
    ]
    assert shown["error"].startswith("StepFailed: step 3 tell the customer")
    assert not {"arguments", "key"} & set(shown)
    assert revealed["arguments"] == {"order": "o-3", "customer": "eve"}


def test_what_is_no_run_is_not_found(depot, doubtful):
    step = depot.json("workflow", "show", doubtful)["steps"][0]["reference"]
    letter = depot.json("dlq", "list")["letters"][0]["reference"]

    of_a_run, other = depot.run("workflow", "show", step), depot.run("workflow", "show", letter)
    assert (of_a_run.returncode, other.returncode) == (5, 5)
    assert f"It is a step of {doubtful}." in of_a_run.stderr
    assert f"effectonce effect show {letter}" in other.stderr


def test_a_step_that_waits_for_an_approval_is_shown_as_that_and_how_it_is_decided(empty):
    guard = Guard(empty.url)
    refund = guard.tool(kind="write", approval=True, name="refund")(lambda amount: amount)

    @guard.workflow(identity=["order"])
    def give_back(run: Run, order: str) -> int:
        run.step("count", lambda: 1)
        return run.step("refund", refund, 700)

    with pytest.raises(ApprovalNeeded):
        give_back("o1")
    (wish,) = guard.approvals.waiting()
    (run,) = runs(empty)
    ref = wish.effect.reference

    shown = empty.run("workflow", "show", run["reference"]).stdout
    guard.approvals.approve(wish.key, by="ada", reason="yes")
    after = empty.run("workflow", "show", run["reference"]).stdout
    steps = empty.json("workflow", "show", run["reference"])["steps"]
    guard.close()

    assert f"2  refund  needs approval  {ref}" in shown
    assert f"decide step 2  effectonce approve show {ref}" in shown
    assert f"2  refund  approved   {ref}" in after
    assert "approve show" not in after
    assert [(step["state"], (step["approval"] or {}).get("state")) for step in steps] == [
        ("completed", None),
        ("claimed", "approved"),
    ]


# ---------------------------------------------------------------- as an effect


def test_a_run_says_that_it_is_one_and_a_step_names_its_run(depot, doubtful):
    run = depot.run("effect", "show", doubtful).stdout
    step_reference = depot.json("workflow", "show", doubtful)["steps"][2]["reference"]
    step = depot.run("effect", "show", step_reference).stdout

    assert "This run of a workflow waits." in run
    assert "contract   workflow, version 1: each step by its own\nbegun      1 time\n" in run
    assert f"its steps  effectonce workflow show {doubtful}" in run
    assert f"step of    the run {doubtful}\n" in step
    assert f"its run      effectonce workflow show {doubtful}" in step
    assert depot.json("effect", "show", doubtful)["is_run"]
    assert depot.json("effect", "show", step_reference)["run"] == doubtful


# ---------------------------------------------------------------- going on


def test_a_run_goes_on_where_it_stopped(depot, waiting):
    done = depot.run("workflow", "resume", waiting, "--yes", *APP, **OPEN)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\t")[1:4] == ["deliver", "completed", "2"]
    assert depot.done()[-2:] == ["ship parcel of o-1", "tell ada"]
    again = depot.run("workflow", "resume", waiting, "--yes", *APP, **OPEN)
    assert again.returncode == 6
    assert "has ended: it is completed" in again.stderr


def test_async_runs_go_on_too(depot):
    (run,) = runs(depot, "--workflow", "apologise")

    (resumed,) = depot.json("workflow", "resume", run["reference"], "--yes", *APP, **OPEN)[
        "resumed"
    ]
    assert (resumed["state"], resumed["runs"]) == ("completed", 2)
    assert depot.done()[-1] == "call back ada"


def test_a_run_that_stops_again_says_why(depot, doubtful):
    done = depot.run("workflow", "resume", doubtful, "--yes", *APP, **OPEN)

    assert done.returncode == 1
    assert done.stdout.split("\t")[2] == "waiting"
    assert "InDoubt" in done.stdout


def test_all_of_them_go_on_at_once(depot):
    plan = depot.run("workflow", "resume", "--all", "--dry-run", *APP, **OPEN)
    done = depot.run("-o", "table", "workflow", "resume", "--all", "--yes", *APP, **OPEN)

    assert plan.stderr == "2 of deliver, 1 of apologise.\nNothing was changed.\n"
    assert done.returncode == 1  # one is still in doubt
    assert done.stdout.splitlines() == [
        "WORKFLOW   COMPLETED  FAILED  WAITING  RUNNING",
        "apologise          1       0        0        0",
        "deliver            1       0        1        0",
    ]
    assert sorted(depot.done()[-3:]) == ["call back ada", "ship parcel of o-1", "tell ada"]


def test_runs_of_workflows_that_an_app_does_not_have_are_told(depot, tmp_path):
    (tmp_path / "other.py").write_text(
        "import os\nfrom effectonce import Guard\nguard = Guard(os.environ['DEPOT_STORE'])\n"
    )
    done = depot.run("workflow", "resume", "--all", "--yes", "--app", "other")

    assert done.returncode == 0
    assert "3 runs of workflows that this app does not have" in done.stderr
    assert len(runs(depot)) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--all", "--yes"], "--app MODULE:GUARD"),
        (["--yes", *APP], "Say which: RUN, or --all"),
        (["--all", *APP], "give --yes"),
        (["--all", "--yes", "--tenant", "main", *APP], "of all tenants"),
    ],
)
def test_everything_has_to_be_said(depot, options, said):
    done = depot.run("workflow", "resume", *options, **OPEN)

    assert done.returncode == 2
    assert said in done.stderr
    assert len(runs(depot)) == 3


# ---------------------------------------------------------------- ending


def test_a_cancelled_run_does_nothing_new_and_compensates_what_was_done(depot, waiting):
    cancelled = depot.run("workflow", "cancel", waiting, *SAID)
    told = depot.run("workflow", "show", waiting).stdout
    resumed = depot.run("workflow", "resume", waiting, "--yes", *APP, **OPEN)

    assert cancelled.returncode == 0
    assert f"It is to end, says ada. Then: effectonce workflow resume {waiting}" in cancelled.stderr
    assert "waits to be ended: ada wants it to end: the customer has withdrawn." in " ".join(
        told.split()
    )
    assert f"end it  effectonce workflow resume {waiting}" in told
    assert resumed.returncode == 1
    assert resumed.stdout.split("\t")[2] == "failed"
    assert depot.done()[-1] == "unship parcel of o-1"
    assert "ship parcel of o-1" not in depot.done()
    assert depot.json("workflow", "show", waiting)["cancelled"] == {
        "by": "ada",
        "reason": "the customer has withdrawn",
    }


def test_who_ends_a_run_says_why_and_that_it_is_meant(depot, waiting, failed):
    dry = depot.run("workflow", "cancel", waiting, "--reason", "seen", "--dry-run")

    assert "It would be ended, by ada: seen. Nothing was changed." in dry.stderr
    assert "Say why with --reason" in depot.run("workflow", "cancel", waiting, "--yes").stderr
    assert "give --yes" in depot.run("workflow", "cancel", waiting, "--reason", "seen").stderr
    code, _ = depot.terminal(
        "workflow", "cancel", waiting, "--reason", "seen", dialogue=(("[y/N]:", "n"),)
    )
    assert code == 1
    assert depot.json("workflow", "show", waiting)["cancelled"] is None
    ended = depot.run("workflow", "cancel", failed, *SAID)
    assert ended.returncode == 6
    assert "has ended already" in ended.stderr


def test_a_run_in_a_sealed_store_is_seen_without_the_keys_and_ended_with_them(
    tmp_path, monkeypatch
):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    keys = Keyring.generate("2026-11")
    monkeypatch.setenv("TEST_KEYS", keys)
    guard = Guard(desk.url, keyring=Keyring.from_env("TEST_KEYS"), secret=b"shop")

    @guard.workflow
    def stop(run, number: int):
        run.step("first", lambda: 1)
        raise KeyError("deployed")

    with pytest.raises(KeyError):
        stop(1)
    guard.close()
    (run,) = runs(desk)

    assert desk.run("workflow", "cancel", run["reference"], *SAID).returncode == 4
    assert (
        desk.run("workflow", "cancel", run["reference"], *SAID, EFFECTONCE_KEYS=keys).returncode
        == 0
    )
    shown = desk.json("workflow", "show", run["reference"])
    assert [step["name"] for step in shown["steps"]] == ["first"]
    assert shown["cancelled"] == {"by": "", "reason": "what it said cannot be read"}
    assert "withdrawn" not in desk.run("effect", "show", run["reference"]).stdout
    opened = desk.json("workflow", "show", run["reference"], EFFECTONCE_KEYS=keys)
    assert (opened["cancelled"]["by"], opened["error"]) == ("ada", "KeyError: 'deployed'")
