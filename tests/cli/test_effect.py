"""`effectonce effect`: lists, the story of one, and exports."""

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.cli.desk import ROOT, environment, undated

from effectonce import Guard, State
from effectonce._core.attempt_log import FailedAttempt
from effectonce._core.ops import Attest, Browse, Claim, Search
from effectonce.cli import main
from effectonce.stores import open_store
from effectonce.testing.conformance.bench import request
from effectonce.views.history import describe_attempt
from effectonce.views.text import Screen

NEWEST_FIRST = ["book", "mail", "refund", "refund", "refund", "refund"]
FIELDS = {
    "approval",
    "provider",
    "schema",
    "reference",
    "tool",
    "version",
    "kind",
    "downstream",
    "tenant",
    "scope",
    "step",
    "state",
    "given_up",
    "verdict",
    "claimed_at",
    "first_sent_at",
    "decided_at",
    "lease_until",
    "lease_over",
    "window_until",
    "sends",
    "epoch",
    "settled_by",
    "reason",
    "outcome",
    "attempts",
    "asked",
    "evidence",
    "is_run",
    "run",
}


def reference(desk, scope):
    return desk.json("effect", "list", "--scope", scope)["effects"][0]["reference"]


# ---------------------------------------------------------------- lists


def test_a_pipe_gets_a_line_for_each_effect(desk):
    lines = [line.split("\t") for line in desk.run("effect", "list").stdout.splitlines()]

    assert [line[1] for line in lines] == NEWEST_FIRST
    assert [line[2] for line in lines] == [
        "dispatched",
        "in_doubt",
        "in_doubt",
        "failed",
        "completed",
        "completed",
    ]
    assert {len(line) for line in lines} == {6}
    assert all(line[0].startswith("eff_") and line[5].endswith("Z") for line in lines)


def test_a_person_gets_a_table(desk):
    shown = desk.run("-o", "table", "effect", "list").stdout.splitlines()

    assert shown[0] == "EFFECT            TOOL    STATE       WHERE           SENDS  AGE"
    assert [line[16:] for line in shown[1:]] == [
        "  book    dispatched  trip/seat           1  2 h",
        "  mail    in doubt    newsletter/ada      1  2 h",
        "  refund  in doubt    chat-4/refund       1  2 h",
        "  refund  failed      chat-3/refund       1  2 h",
        "  refund  completed   chat-2/refund       1  2 h",
        "  refund  completed   chat-1/refund       1  2 h",
    ]


def test_a_narrow_table_cuts_what_nobody_copies(desk):
    shown = desk.run("-o", "table", "effect", "list", width=58).stdout.splitlines()

    assert shown[2][16:] == "  mail    in doubt    newslet…      1  2 h"
    assert all(len(line) <= 58 for line in shown)
    assert all(len(line.split()[0]) == 16 for line in shown[1:])


def test_a_terminal_gets_colours_and_a_pipe_does_not(desk):
    _, screen = desk.terminal("effect", "list", NO_COLOR="")

    assert "\x1b[32mcompleted" in screen
    assert "\x1b" not in desk.terminal("effect", "list")[1]
    assert "\x1b" not in desk.run("effect", "list", NO_COLOR="").stdout


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--tool", "mail"], ["mail"]),
        (["--state", "in-doubt"], ["mail", "refund"]),
        (["--state", "in doubt", "--tool", "refund"], ["refund"]),
        (["--scope", "trip"], ["book"]),
        (["--since", "3h"], NEWEST_FIRST),
        (["--since", "2h"], []),
        (["--since", "2020-01-01"], NEWEST_FIRST),
        (["--since", "2999-01-01T00:00+01:00"], []),
        (["--tenant", "main"], NEWEST_FIRST),
        (["--tenant", "other"], []),
        (["--limit", "2"], NEWEST_FIRST[:2]),
    ],
)
def test_a_list_shows_what_was_asked_for(desk, options, found):
    assert [effect["tool"] for effect in desk.json("effect", "list", *options)["effects"]] == found


@pytest.mark.parametrize("since", ["yesterday", "2 hours", "-3h"])
def test_what_is_no_time_is_wrong_usage(desk, since):
    done = desk.run("effect", "list", f"--since={since}")

    assert done.returncode == 2
    assert "neither a span such as 30m" in done.stderr


def test_pages_follow_each_other_and_miss_nothing(desk):
    seen, cursor = [], []
    while True:
        page = desk.json("effect", "list", "--limit", "4", *cursor)
        seen += [effect["reference"] for effect in page["effects"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]

    assert seen == [effect["reference"] for effect in desk.json("effect", "list")["effects"]]
    assert "--cursor" in desk.run("effect", "list", "--limit", "4").stderr


def test_an_empty_list_says_what_to_do_and_prints_no_data(empty):
    done = empty.run("effect", "list")

    assert (done.returncode, done.stdout) == (0, "")
    assert "effectonce demo" in done.stderr
    assert empty.json("effect", "list") == {
        "schema": "effectonce.effects/1",
        "effects": [],
        "cursor": None,
    }


def test_json_has_a_schema_and_every_field(desk):
    document = desk.json("effect", "list")

    assert document["schema"] == "effectonce.effects/1"
    assert all(set(effect) == FIELDS - {"schema"} for effect in document["effects"])
    lines = desk.run("-o", "jsonl", "effect", "list").stdout.splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["effectonce.effect/1"] * 6
    assert all(set(json.loads(line)) == FIELDS for line in lines)


def test_every_field_of_an_effect_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)`(?:, `(\w+)`)?(?:, `(\w+)`)?(?:, `(\w+)`)? \|",
        page.partition("## JSON")[2].partition("##")[0],
        re.MULTILINE,
    )

    assert {name for row in rows for name in row if name} == FIELDS | {
        "key",
        "arguments",
        "result",
        "audit",
        "undo",
        "undoes",
    }


# ---------------------------------------------------------------- one of them


IN_DOUBT = """\
? in doubt  refund  {ref}
It is unknown whether it happened. It is not sent again until that is settled.

where      chat-4/refund
tenant     main
contract   irreversible, downstream none, version 1: at most once + in doubt
sends      1; may not be sent again
arguments  payment_id, amount_minor, reason (hidden: --reveal shows them)

DATE            claimed and sent
DATE  +0.000 s  in doubt: it timed out (TimeoutError: the bank did not answer
                                   within 30 s)
DATE  +0.000 s  attempt 1 failed with TimeoutError: the bank did not answer
                                   within 30 s (no answer, ambiguous); gave up: it may have
                                   happened, and nobody can know
Only an audit keeps the calls that got its result again: guard.observe(Audit(guard)). For whom a
call was made is kept where it needed an approval.

it happened  effectonce indoubt confirm {ref} --result JSON --reason TEXT
it did not   effectonce indoubt refute {ref} --reason TEXT
"""


def test_the_story_of_a_doubt_ends_with_what_can_be_done(desk):
    ref = reference(desk, "chat-4")

    assert undated(desk.run("effect", "show", ref).stdout) == IN_DOUBT.format(ref=ref)


COMPLETED = """\
✓ completed  refund  {ref}
It happened. Every later call gets the stored result.

where      chat-1/refund
tenant     main
contract   irreversible, downstream none, version 1: at most once + in doubt
sends      1
arguments  payment_id, amount_minor, reason (hidden: --reveal shows them)
outcome    a result of 48 bytes (hidden: --reveal shows it)

DATE              claimed and sent
DATE  +0.000 s    completed
DATE  in 29 days  its window ends: the outcome is forgotten, the key is refused
Only an audit keeps the calls that got its result again: guard.observe(Audit(guard)). For whom a
call was made is kept where it needed an approval.

Nothing to do.
"""


def test_the_story_of_a_success_hides_what_was_said(desk):
    ref = reference(desk, "chat-1")

    assert undated(desk.run("effect", "show", ref).stdout) == COMPLETED.format(ref=ref)


def test_what_is_hidden_is_shown_when_asked_for_exactly(desk):
    ref = reference(desk, "chat-1")
    shown = desk.json("effect", "show", ref, "--reveal")

    assert shown["schema"] == "effectonce.effect/1"
    assert shown["arguments"] == {"payment_id": "pay_1", "amount_minor": 1400, "reason": "late"}
    # more than a double holds
    assert shown["result"] == {"receipt": 90071992547409931, "of": "pay_1"}
    assert shown["key"].endswith(ref.removeprefix("eff_"))
    assert '"receipt": 90071992547409931' in desk.run("effect", "show", ref, "--reveal").stdout


def test_a_failure_says_why(desk):
    ref = reference(desk, "chat-3")

    assert (
        "outcome    Rejected: the payment is refunded already"
        in desk.run("effect", "show", ref).stdout
    )
    assert desk.json("effect", "show", ref)["outcome"] == {
        "status": "error",
        "error": "Rejected: the payment is refunded already",
        "bytes": 181,
    }
    assert (
        "failed: attempt 1 failed with Rejected: the payment is refunded already (rejected)"
        in " ".join(desk.run("effect", "show", ref).stdout.split())
    )


def test_an_effect_that_may_be_sent_again_says_who_has_to_do_it(desk):
    said = desk.run("effect", "show", reference(desk, "trip")).stdout

    assert "The next call, or the next sweep, puts it in doubt." in said
    assert "its lease ended 2 h ago" in said
    assert "effectonce store gc" in said


def test_evidence_stands_in_the_order_of_time(desk, guard):
    (record,) = guard.store.apply(Search(scope="chat-4"))
    guard.store.apply(Attest(record.request.key, "the answer came late", b'v1 ok {"receipt": 1}'))
    guard.confirm(record.request.key, result=None, by="ada", reason="ticket 812")
    shown = desk.run("effect", "show", reference(desk, "chat-4")).stdout

    claimed, late, completed = (
        shown.index(text)
        for text in ("claimed and sent", "the answer came late: a result", "completed, by ada")
    )
    assert claimed < late < completed
    assert "It happened: ada says so." in shown
    assert "settled by  ada\nreason      ticket 812" in shown


def test_a_key_is_shown_to_nobody_who_did_not_ask_for_it(desk, guard):
    keys = [record.request.key for state in State for record in guard.store.apply(Browse(state))]
    ref = reference(desk, "chat-4")
    said = [
        desk.run(*command.split()).stdout
        for command in (
            "status --json",
            "effect list --json",
            f"effect show {ref} --json",
            "effect export",
            "tail --once --json",
        )
    ]

    assert len(keys) == 6
    assert not [key for key in keys for text in said if key in text]


@pytest.mark.parametrize(
    "cut", [lambda ref: ref, lambda ref: ref[:8], lambda ref: ref[4:], lambda ref: f"{ref[:9]}…"]
)
def test_an_effect_is_found_by_its_reference_or_how_it_begins(desk, cut):
    ref = reference(desk, "chat-1")

    assert desk.json("effect", "show", cut(ref))["reference"] == ref


def test_an_effect_is_found_by_its_key(desk):
    ref = reference(desk, "chat-1")
    key = desk.json("effect", "show", ref, "--reveal")["key"]

    assert desk.json("effect", "show", key)["reference"] == ref
    assert desk.run("effect", "show", "0" * 40).returncode == 5
    assert desk.run("effect", "show", key, "--tenant", "other").returncode == 5
    assert desk.run("effect", "show", ref, "--tenant", "other").returncode == 5


def test_a_reference_that_is_not_there_has_its_own_exit_code_and_a_guess(desk):
    ref = reference(desk, "chat-1")
    wrong = desk.run("effect", "show", f"{ref[:-1]}{'0' if ref[-1] != '0' else '1'}")
    nothing = desk.run("effect", "show", "eff_000000000000")

    assert (wrong.returncode, nothing.returncode) == (5, 5)
    assert f"Did you mean {ref}?" in wrong.stderr
    assert "effectonce effect list" in nothing.stderr
    assert wrong.stdout == nothing.stdout == ""


@pytest.mark.parametrize("named", ["eff_12", "refund", "eff_123456789abcd", "eff_zzzz"])
def test_what_is_no_reference_is_wrong_usage(desk, named):
    done = desk.run("effect", "show", named)

    assert done.returncode == 2
    assert "is no reference" in done.stderr


def test_a_beginning_that_fits_several_lists_them(empty):
    store = open_store(empty.url)
    for last in ("aa", "bb"):
        store.apply(Claim(request("0" * 28 + "feed000000" + last), "t", 30.0, dispatch=True))
    store.close()
    done = empty.run("effect", "show", "feed")

    assert done.returncode == 2
    assert "eff_feed000000aa" in done.stderr
    assert "eff_feed000000bb" in done.stderr


# ---------------------------------------------------------------- exports


def test_an_export_is_every_effect_on_a_line_of_its_own(desk):
    done = desk.run("effect", "export", "--reveal")
    effects = [json.loads(line) for line in done.stdout.splitlines()]

    assert [effect["tool"] for effect in effects] == NEWEST_FIRST
    assert effects[-1]["result"]["of"] == "pay_1"
    assert done.stderr == "6 effects.\n"


def test_an_export_of_several_pages_misses_nothing(desk, monkeypatch):
    from effectonce.cli import effect

    monkeypatch.setattr(effect, "PAGE", 2)
    done = CliRunner().invoke(main, ["--store", desk.url, "effect", "export"])

    assert len({json.loads(line)["reference"] for line in done.stdout.splitlines()}) == 6


def test_a_reader_who_has_enough_is_no_error(desk):
    command = f"{sys.executable} -m effectonce.cli effect export | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment(EFFECTONCE_STORE=desk.url),
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(done.stdout)["tool"] == "book"
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- stores


def test_a_file_that_is_not_there_is_not_made_by_looking(tmp_path, empty):
    done = empty.run("effect", "list", EFFECTONCE_STORE=f"sqlite:///{tmp_path / 'typo.db'}")

    assert done.returncode == 7
    assert "there is no file" in done.stderr
    assert not (tmp_path / "typo.db").exists()


@pytest.mark.parametrize(
    "url", ["postgresql://app:hunter2@127.0.0.1:1/effects", "redis://app:hunter2@127.0.0.1:1"]
)
def test_a_store_that_does_not_answer_has_its_own_exit_code(empty, url):
    done = empty.run("effect", "list", EFFECTONCE_STORE=url)

    assert done.returncode == 7
    assert "127.0.0.1" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_store_the_command_says_how_to_name_one(empty):
    done = empty.run("effect", "list", EFFECTONCE_STORE="")

    assert done.returncode == 2
    assert "--store URL" in done.stderr
    assert "effectonce.toml" in done.stderr


def test_a_memory_store_has_nothing_to_see(empty):
    assert (
        "lives in its own process"
        in empty.run("effect", "list", EFFECTONCE_STORE="memory://").stderr
    )


def test_servers_are_looked_into_like_files(elsewhere):
    listed = elsewhere.json("effect", "list")["effects"]
    ref = next(effect["reference"] for effect in listed if effect["scope"] == "chat-4")

    assert [effect["tool"] for effect in listed] == NEWEST_FIRST
    assert elsewhere.json("effect", "show", ref[:9])["state"] == "in_doubt"
    assert elsewhere.json("status")["in_doubt"] == 2
    assert len(elsewhere.run("effect", "export").stdout.splitlines()) == 6
    assert elsewhere.run("indoubt", "refute", ref, "--reason", "seen", "--yes").returncode == 0
    assert elsewhere.json("effect", "show", ref)["settled_by"] == "ada"
    assert elsewhere.json("store", "stats")["counts"]["failed"] == 2
    assert "MB" in elsewhere.json("store", "stats")["size"]
    assert elsewhere.run("store", "check").returncode == 0
    assert elsewhere.run("store", "gc").returncode == 0
    assert elsewhere.run("store", "migrate").returncode == 0
    assert len(elsewhere.run("tail", "--once").stdout.splitlines()) == 6


def test_ones_own_guard_names_the_store(desk):
    listed = desk.json("effect", "list", "--app", "tests.cli.shop:guard", EFFECTONCE_STORE="")

    assert len(listed["effects"]) == 6
    assert Guard(desk.url).counts()[State.IN_DOUBT] == 2


@pytest.mark.parametrize(
    ("basis", "shown"),
    [
        ("witnessed", "(schema, rejected, witnessed)"),
        ("error", "(schema, rejected, by its error alone)"),
    ],
)
def test_an_attempt_says_what_its_verdict_rests_on(basis, shown):
    attempt = FailedAttempt(
        1, "HTTPStatusError", "422", "schema", "rejected", "a field is wrong", basis=basis
    )

    assert shown in describe_attempt(attempt, Screen())
