"""`effectonce report`: what was prevented, for a terminal, a script, a ticket."""

import pytest
from rich.cells import cell_len
from tests.cli.desk import Desk

from effectonce import Guard, InDoubt, Retry
from effectonce._core import counters as fields
from effectonce._runtime.counters import Counters

AT_60 = """\
37 duplicates prevented in 7 days: 30 repeated calls got the
first result, 5 joined a call that ran, 2 were refused
because it was in doubt.
FIRST to LAST, UTC.

Duplicates prevented      37
got the first result      30
joined a call that ran    5
refused: it was in doubt  2
Effects landed            49
Conflicts                 3
Went in doubt             2
Doubts settled            1
How they were settled     1 confirmed by a person; half of
                          them within 5 min, 95 % within 5
                          min

Prevented, by day
DAY   0
DAY   0
DAY   0
DAY   0
DAY   0
DAY   0
DAY  █████████████████████████████████████████████ 37

TOOL    LANDED  PREVENTED  CONFLICTS  IN DOUBT
refund      40         35          3         1
mail         9          2          0         1

TENANT  LANDED  PREVENTED  CONFLICTS  IN DOUBT
acme        40         35          3         1
beta         9          2          0         1

At least so many: a process that is killed loses what it
counted in its last seconds. Days are those of UTC.
"""


@pytest.fixture
def empty(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = Guard(desk.url)
    guard.counts()
    guard.close()
    return desk


@pytest.fixture
def desk(empty):
    guard = Guard(empty.url)
    kept = Counters(guard.store, 90)
    rows = {
        ("refund", "acme"): {
            "landed": 39,
            "replayed": 30,
            "joined": 5,
            "doubts": 1,
            "conflicts": 3,
        },
        ("mail", "beta"): {"landed": 9, "refused_in_doubt": 2, "doubts": 1},
    }
    for (tool, tenant), numbers in rows.items():
        for name, number in numbers.items():
            kept.of(tool).row(tenant)[fields.FIELDS.index(name)] += number
    kept.of("refund").settled("acme", fields.PERSON_HAPPENED, 100.0)
    kept.flush()
    guard.close()
    return empty


def test_the_screen_at_60_columns(desk):
    _, screen = desk.terminal("report", width=60)
    days = [day["day"] for day in desk.json("report")["days"]]
    shown = "".join(f"{line.rstrip()}\n" for line in screen.replace("\r", "").splitlines())
    for day in days:
        shown = shown.replace(f"{day}  ", "DAY  ")

    assert max(cell_len(line) for line in screen.splitlines()) <= 60
    assert shown == AT_60.replace("FIRST", days[0]).replace("LAST", days[-1])


def test_a_script_gets_every_figure(desk):
    found = desk.json("report", "--since", "30d")

    assert found["schema"] == "effectonce.report/1"
    total = found["total"]
    assert (total["prevented"], total["landed"], total["settled"]) == (37, 49, 1)
    assert (total["settle_median_s"], total["settle_p95_s"]) == (300, 300)
    assert len(found["days"]) == 30
    assert [tool["tool"] for tool in found["tools"]] == ["refund", "mail"]


def test_one_tool_and_one_tenant(desk):
    assert desk.json("report", "--tool", "mail")["total"]["prevented"] == 2
    assert desk.json("report", "--tenant", "acme")["total"]["prevented"] == 35


def test_as_markdown_to_paste(desk):
    said = desk.run("report", "--markdown").stdout

    assert said.startswith("**37 duplicates prevented in 7 days: 30 repeated calls got")
    assert "| refund | 40 | 35 | 1 |" in said


def test_in_a_pipe_each_day_is_a_line(desk):
    lines = desk.run("report").stdout.splitlines()

    assert len(lines) == 7
    assert lines[-1].split("\t")[1:] == ["49", "37", "3", "2"]


def test_nothing_was_counted_yet(empty):
    done = empty.run("report")

    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing was counted from" in done.stderr


def test_a_wrong_since_says_what_is_right(desk):
    assert "neither a span such as" in desk.run("report", "--since", "soon").stderr
    assert "1 to 400 days" in desk.run("report", "--since", "900d").stderr


def test_what_a_command_settles_counts_as_well(empty):
    guard = Guard(empty.url)

    @guard.tool(kind="write", retry=Retry(attempts=1))
    def pay() -> None:
        raise TimeoutError

    with guard.step("chat", 1), pytest.raises(InDoubt) as doubt:
        pay()
    guard.close()
    reference = doubt.value.effect.reference
    given = ("--result", "null", "--reason", "in the ledger", "--yes")
    assert empty.run("indoubt", "confirm", reference, *given).returncode == 0

    total = empty.json("report")["total"]
    assert (total["doubts"], total["person_happened"], total["landed"]) == (1, 1, 1)


def test_counters_are_a_setting(empty):
    found = empty.run("config", "show", EFFECTONCE_COUNTERS="0").stdout
    assert "counters\t0" in found
    assert "from 0" in empty.run("status", EFFECTONCE_COUNTERS="many").stderr
