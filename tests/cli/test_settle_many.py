"""Groups, filters and files: many effects in doubt settled by one decision, each by its own op."""

import json
import os
import signal
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli import heap
from tests.cli.desk import Desk
from tests.servers import redis

from effectonce import GaveUp, ReplayedFailure, State
from effectonce._core.ops import Doubt, Search

SAID = ("--reason", "ticket 812", "--by", "ada", "--yes")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def desk(request, tmp_path, monkeypatch):
    """A desk at a heap of doubts, on each store."""
    monkeypatch.setenv("HEAP_LEDGER", str(tmp_path / "ledger"))
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'effects.db'}",
        "postgres": lambda: request.getfixturevalue("database"),
        "redis": lambda: redis.emptied(redis.server()).url,
    }[request.param]()
    return at(tmp_path, url)


@pytest.fixture
def local(tmp_path, monkeypatch):
    """The same on SQLite alone."""
    monkeypatch.setenv("HEAP_LEDGER", str(tmp_path / "ledger"))
    return at(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")


def at(folder, url):
    guard = heap.open_guard(url)
    heap.fill(guard)
    guard.close()
    return Desk(folder, url)


def paid(desk):
    return (desk.folder / "ledger").read_text().splitlines()


def records(desk):
    guard = heap.open_guard(desk.url)
    found = guard.store.apply(Search(limit=10_000))
    guard.close()
    return found


def states(desk, **wanted):
    found = records(desk)
    return sorted(
        str(r.state)
        for r in found
        if r.request.tenant in wanted.get("tenants", (r.request.tenant,))
    )


def group(desk, tenant):
    groups = desk.json("indoubt", "groups")["groups"]
    return next(each["group"] for each in groups if each["tenant"] == tenant)


def listed(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# ---------------------------------------------------------------- groups


def test_a_group_has_one_tool_one_cause_and_one_tenant_in_every_list(desk):
    doubts = desk.json("indoubt", "groups")["groups"]
    letters = desk.json("dlq", "groups")["groups"]

    assert {(g["group"], g["tool"], g["tenant"], g["count"]) for g in doubts} == {
        (g["group"], g["tool"], g["tenant"], g["count"]) for g in letters
    }
    assert {(g["tenant"], g["count"], g["error"]) for g in doubts} == {
        ("main", 5, "TimeoutError"),
        ("acme", 5, "TimeoutError"),
    }
    one = group(desk, "acme")
    assert len(desk.json("indoubt", "list", "--each", "--group", one)["effects"]) == 5
    assert len(desk.json("dlq", "list", "--group", one)["letters"]) == 5


def test_a_group_is_settled_by_one_decision_and_the_rest_is_left(desk):
    before = paid(desk)
    done = desk.run(
        "indoubt", "refute", "--group", group(desk, "acme"), "--undo-list", "u.jsonl", *SAID
    )

    assert done.returncode == 0, done.stderr
    assert states(desk, tenants=["acme"]) == ["failed"] * 5
    assert states(desk, tenants=["main"]) == ["in_doubt"] * 5
    settled = [r for r in records(desk) if r.state is State.FAILED]
    assert {(r.settled_by, r.reason) for r in settled} == {("ada", "ticket 812")}
    guard = heap.open_guard(desk.url)
    with guard.step("chat-1", "refund", tenant="acme"):
        assert isinstance(
            guard.call("refund", {"payment_id": "pay_1", "amount_minor": 1}).error, ReplayedFailure
        )
    guard.close()
    assert paid(desk) == before  # nothing was sent by any of this
    lines = listed(desk.folder / "u.jsonl")
    assert [line["what"] for line in lines] == ["trying", "refuted"] * 5
    assert {line["mend"] for line in lines if line["what"] == "refuted"} == {None}
    assert (desk.folder / "u.jsonl").stat().st_mode & 0o077 == 0


def test_filters_choose_instead_of_a_group_and_the_result_is_what_later_calls_get(desk):
    done = desk.run(
        "indoubt", "confirm", "--tool", "refund", "--tenant", "acme", "--result", '{"r": 1}', *SAID
    )

    assert done.returncode == 0, done.stderr
    assert states(desk) == ["completed"] * 5 + ["in_doubt"] * 5
    guard = heap.open_guard(desk.url)
    with guard.step("chat-3", "refund", tenant="acme"):
        assert guard.call("refund", {"payment_id": "pay_3", "amount_minor": 3}).value == {"r": 1}
    guard.close()


def test_without_yes_and_without_a_terminal_it_stops_after_the_preview(local):
    done = local.run("indoubt", "refute", "--tool", "refund", "--reason", "x", "--by", "ada")

    assert done.returncode == 2
    assert done.stderr.startswith("10 in doubt: 10 of refund; for ")
    assert "and 5 more" in done.stderr
    assert "give --yes" in done.stderr
    assert states(local) == ["in_doubt"] * 10
    assert list(local.folder.glob("*.jsonl")) == []


def test_a_dry_run_changes_nothing(local):
    done = local.run("indoubt", "retry", "--tool", "refund", "--dry-run", *SAID)

    assert done.returncode == 0
    assert "10 of them would be refused: its downstream does not honour" in done.stderr
    assert done.stderr.endswith("Nothing was changed.\n")
    assert states(local) == ["in_doubt"] * 10


@pytest.mark.parametrize(
    "command",
    [
        ("indoubt", "refute"),
        ("indoubt", "confirm", "--result", "1"),
        ("indoubt", "refute", "eff_000000000000", "--tool", "refund"),
        ("indoubt", "refute", "--group", "all"),
        ("indoubt", "refute", "--tool", "refund", "--older-than", "long"),
        ("indoubt", "confirm", "--tool", "refund"),
        ("indoubt", "refute", "--tool", "refund", "--pace", "0/s"),
        ("indoubt", "list", "--state", "completed"),
        ("effect", "list", "--state", "lost"),
        ("effect", "list", "--newer-than", "soon"),
        ("dlq", "discard"),
        ("dlq", "list", "--group", "nonsense"),
        ("workflow", "list", "--state", "lost"),
        ("approve", "list", "--state", "lost"),
        ("allowance", "list", "--error", "x"),
    ],
    ids=" ".join,
)
def test_what_is_not_understood_is_refused_and_never_everything(local, command):
    given = SAID if command[1] in ("refute", "confirm", "discard") else ()
    done = local.run(*command, *given)

    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert states(local) == ["in_doubt"] * 10


def test_an_empty_reason_is_refused(local):
    done = local.run("indoubt", "refute", "--tool", "refund", "--reason", " ", "--yes")

    assert done.returncode == 2
    assert "Say why" in done.stderr


def test_an_undo_list_that_is_there_is_not_overwritten(local):
    (local.folder / "u.jsonl").write_text("mine")
    done = local.run("indoubt", "refute", "--tool", "refund", "--undo-list", "u.jsonl", *SAID)

    assert done.returncode == 4
    assert (local.folder / "u.jsonl").read_text() == "mine"
    assert states(local) == ["in_doubt"] * 10


def test_what_may_not_be_sent_again_is_refused_one_by_one(desk):
    done = desk.run("indoubt", "retry", "--tool", "refund", "--json", *SAID)

    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["counts"] == {"refused": 10}
    assert states(desk) == ["in_doubt"] * 10


# ---------------------------------------------------------------- others at the same time


def test_two_operators_settle_the_same_group_and_each_effect_once(desk):
    one = group(desk, "main")
    commands = [
        ("indoubt", act, "--group", one, *more, "--reason", by, "--by", by, "--yes", "--json")
        for act, by, more in (
            ("refute", "ada", ()),
            ("confirm", "bob", ("--result", "1")),
        )
    ]
    both = [desk.start(*command) for command in commands]
    said = [
        json.loads(process.communicate(timeout=120)[0] or '{"settled": []}') for process in both
    ]

    by_ada = [s for s in said[0]["settled"] if s["what"] == "refuted"]
    by_bob = [s for s in said[1]["settled"] if s["what"] == "confirmed"]
    assert len(by_ada) + len(by_bob) == 5
    assert {s["reference"] for s in by_ada} & {s["reference"] for s in by_bob} == set()
    for each, what in (
        (s, w) for i, w in ((0, "refuted"), (1, "confirmed")) for s in said[i]["settled"]
    ):
        assert each["what"] in (what, "already_settled")
    found = {str(r.state): 0 for r in records(desk)}
    for record in records(desk):
        found[str(record.state)] += record.request.tenant == "main"
    assert found.get("failed", 0) == len(by_ada)
    assert found.get("completed", 0) == len(by_bob)
    owners = {r.settled_by for r in records(desk) if r.state is State.FAILED}
    assert owners <= {"ada"}


def lines_of(path, count):
    """Wait for the file itself: each line is written at once."""
    while not path.exists() or len(path.read_text().splitlines()) < count:
        os.sched_yield()
    return path.read_text().splitlines()


def test_a_kill_in_the_middle_leaves_the_rest_open_and_a_list_that_tells_the_truth(desk):
    path = desk.folder / "u.jsonl"
    process = desk.start(
        "indoubt", "refute", "--tool", "refund", "--pace", "2/s", "--undo-list", "u.jsonl",
        *SAID,
    )  # fmt: skip
    lines_of(path, 3)
    process.kill()
    process.communicate(timeout=60)

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    done = {line["reference"] for line in lines if line["what"] == "refuted"}
    tried = {line["reference"] for line in lines}
    failed = {f"eff_{r.request.key[-12:]}" for r in records(desk) if r.state is State.FAILED}
    assert done <= failed <= tried
    assert 1 <= len(done) < 10
    assert states(desk).count("in_doubt") == 10 - len(failed)
    again = desk.run("indoubt", "refute", "--tool", "refund", *SAID)
    assert again.returncode == 0
    assert states(desk) == ["failed"] * 10


def test_ctrl_c_lets_the_effect_at_hand_end_and_says_what_was_not_tried(local):
    path = local.folder / "u.jsonl"
    process = local.start(
        "indoubt", "refute", "--tool", "refund", "--pace", "2/s", "--undo-list", "u.jsonl",
        *SAID, "--json",
    )  # fmt: skip
    lines_of(path, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    counts = json.loads(out)["counts"]
    assert counts["refuted"] + counts["not_tried"] == 10
    assert "in doubt as before" in err
    assert states(local).count("failed") == counts["refuted"]


# ---------------------------------------------------------------- dead letters


def test_letters_of_a_group_are_discarded_with_a_list(desk):
    done = desk.run(
        "dlq", "discard", "--group", group(desk, "main"), "--undo-list", "d.jsonl", *SAID
    )

    assert done.returncode == 0, done.stderr
    assert states(desk) == ["failed"] * 5 + ["in_doubt"] * 5
    assert [line["what"] for line in listed(desk.folder / "d.jsonl")] == ["trying", "discarded"] * 5


# ---------------------------------------------------------------- what can mend it


def test_what_was_let_go_again_can_still_be_confirmed_before_a_call_sends_it(local):
    guard = heap.open_guard(local.url)
    with guard.step("trip", "reserve"), pytest.raises(GaveUp):
        guard.call("reserve", {"seat": "12A"})
    record = next(
        r for r in guard.store.apply(Search(limit=50)) if r.request.terms.tool == "reserve"
    )
    guard.store.apply(Doubt(record.request.key, record.token, record.epoch, "no answer"))
    guard.close()
    done = local.run("indoubt", "retry", "--tool", "reserve", "--undo-list", "u.jsonl", *SAID)
    assert done.returncode == 0, done.stderr
    [_, line] = listed(local.folder / "u.jsonl")
    command = line["mend"].replace("--result JSON", "--result 1").replace(" --reason TEXT", "")

    mended = local.run(*command.split()[1:], *SAID)

    assert mended.returncode == 0, mended.stderr
    assert [r.state for r in records(local) if r.request.terms.tool == "reserve"] == [
        State.COMPLETED
    ]


# ---------------------------------------------------------------- rows of a file


def csv_of(desk, text, encoding="utf-8"):
    (desk.folder / "results.csv").write_bytes(text.encode(encoding))
    return ("indoubt", "confirm", "--from", "results.csv")


def test_each_row_settles_the_effect_that_it_names(desk):
    text = (
        "\ufeffpayment_id,result,verdict\r\n"
        'pay_1,"{""receipt"": ""17, of 3""}",\r\n'
        "PAY_2,null,confirm\r\n"
        "pay_3,,refute\r\n"
        "\r\n"
    )
    done = desk.run(*csv_of(desk, text), *SAID, "--json")

    assert done.returncode == 0, done.stderr
    assert states(desk) == ["completed"] * 2 + ["failed"] + ["in_doubt"] * 7
    guard = heap.open_guard(desk.url)
    with guard.step("chat-1", "refund", tenant="acme"):
        got = guard.call("refund", {"payment_id": "pay_1", "amount_minor": 1})
    assert got.value == {"receipt": "17, of 3"}
    guard.close()


def test_rows_that_cannot_be_used_are_reported_by_line_and_change_nothing(desk):
    settled = desk.json("effect", "list", "--scope", "chat-9")["effects"][0]["reference"]
    assert desk.run("indoubt", "refute", settled, *SAID).returncode == 0
    text = (
        "payment_id,result,note\n"
        "pay_0,1,good\n"
        "pay_77,1,unknown\n"
        "pay_,1,a beginning is not it\n"
        "pay_4,1,twice\n"
        "pay_5,not json,\n"
        "pay_4,2,twice\n"
        "pay_9,1,settled\n"
        ",1,no name\n"
        "pay_6,,no result\n"
    )
    done = desk.run(*csv_of(desk, text), "--match", "Payment ID", *SAID, "--json")

    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert said["counts"] == {"confirmed": 1}
    assert [problem["line"] for problem in said["problems"]] == [3, 4, 5, 6, 7, 8, 9, 10]
    why = {problem["line"]: problem["why"] for problem in said["problems"]}
    assert why[5] == "lines 5, 7 name the same effect"
    assert why[8] == "it is not in doubt: it is failed"
    assert states(desk) == ["completed"] + ["failed"] + ["in_doubt"] * 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line that names its columns"),
        ("payment_id,result\npay_0,1,2\n", "line 2 has 3 cells"),
        ('payment_id,result\npay_0,1\n"pay_1,1\n', "is no row of a table"),
        ("a,b,result\n1,2,3\n", "which column names the effects"),
        ("key,key\n1,2\n", "two columns are called 'key'"),
    ],
)
def test_a_file_that_is_not_whole_settles_nothing(local, text, said):
    done = local.run(*csv_of(local, text), *SAID)

    assert done.returncode == 1
    assert said in done.stderr
    assert states(local) == ["in_doubt"] * 10


def test_a_file_in_another_encoding_settles_nothing(local):
    command = csv_of(local, "payment_id,result\npay_0,1\nzürich,1\n", "latin-1")
    done = local.run(*command, *SAID)

    assert done.returncode == 1
    assert "line 3 is not UTF-8" in done.stderr
    assert states(local) == ["in_doubt"] * 10


def test_rows_may_name_keys_and_references_and_are_of_one_tenant(local):
    found = records(local)
    one, other = (next(r for r in found if r.request.tenant == t) for t in ("main", "acme"))
    text = f"key;result\n{one.request.key};1\n{other.request.key};2\n"
    done = local.run(*csv_of(local, text), "--tenant", "main", *SAID)

    assert done.returncode == 1
    assert "line 3: no effect is known by it" in done.stderr
    assert states(local, tenants=["main"]).count("completed") == 1
    text = f"reference,verdict\neff_{other.request.key[-12:]},refute\n"
    assert local.run(*csv_of(local, text), *SAID).returncode == 0
    assert states(local, tenants=["acme"]).count("failed") == 1


# ---------------------------------------------------------------- screens


@pytest.mark.parametrize(
    "command",
    [
        ("indoubt", "groups"),
        ("indoubt", "list", "--error", "TimeoutError"),
        ("dlq", "groups", "--older-than", "0s"),
        ("effect", "list", "--error", "TimeoutError", "--newer-than", "1h"),
        ("indoubt", "refute", "--tool", "refund", "--dry-run", "--reason", "x", "--by", "ada"),
    ],
    ids=" ".join,
)
def test_no_row_breaks_at_60_columns(local, command):
    code, screen = local.terminal(*command, width=60)

    wide = [line for line in screen.splitlines() if cell_len(line) > 60]
    assert code == 0
    assert [line for line in wide if not line.strip().startswith("effectonce ")] == []
