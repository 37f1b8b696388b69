"""What others wrote, of any length, in any script and of any type, leaves every screen readable
and no command with a traceback.
"""

import dataclasses
import enum
import json
import sqlite3

import pytest
from rich.cells import cell_len
from tests.cli.desk import Desk

from effectonce import EffectOnceError, Guard, PartialSuccess, Retry, TimeWindow, current_effect
from effectonce._core.effect_ref import EffectRef
from effectonce.workflows import Run

ONCE = Retry(attempts=1)
TURNED = "\N{RIGHT-TO-LEFT OVERRIDE}dekcohs"
RESULTS = {
    "inf": float("inf"),
    "nan": float("nan"),
    "keys": {(1, 2): "a", 3: "b"},
    "set": {1},
    "bytes": b"\x00",
}


def tools(guard):
    @guard.tool(kind="write", retry=ONCE)
    def notify(what: str) -> None:
        raise TimeoutError(
            {
                "long": "x" * 5000,
                "colour": f"\x1b[31mred\x07 {TURNED}",
                "wide": "銀行が応答しませんでした" * 20,
            }[what]
        )

    @guard.tool(kind="write", retry=ONCE)
    def rent(rooms: int) -> None:
        raise PartialSuccess(
            "one of two rooms",
            corrective_action="rent the other room by telephone",
            done=["room 7"],
        )

    @guard.tool(kind="write", retry=ONCE)
    def fetch(what: str) -> object:
        return RESULTS[what]

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=2, base_s=0, cap_s=0))
    def book(seat: str) -> None:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        raise TimeoutError("no answer")

    @guard.tool(kind="write", dedup=TimeWindow(seconds=300))
    def ping(host: str) -> str:
        return "pong"

    @guard.workflow(identity=["order"])
    def deliver(run: Run, order: str) -> str:
        run.step("a first step that has a name which is rather long and says all", ping, "wide")
        run.step("客に知らせる", notify, "colour")
        return order

    return guard


@pytest.fixture
def odd(tmp_path):
    """A desk at a store with odd things in it; `refs` has them by what they are."""
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    (tmp_path / "odd_app.py").write_text(
        "from tests.cli.test_odd_data import tools\nfrom effectonce import Guard\nguard ="
        f" tools(Guard({desk.url!r}))\n"
    )
    guard, desk.refs = tools(Guard(desk.url)), {}
    calls = [
        *(("notify", "what", what) for what in ("long", "colour", "wide")),
        *(("fetch", "what", what) for what in RESULTS),
        ("rent", "rooms", 2),
        ("book", "seat", "12A"),
        ("ping", "host", "a"),
        ("deliver", "order", "o-1"),
    ]
    for tool, name, value in calls:
        with guard.step("chat\x1b[2J" if value == "colour" else "chat", f"{tool} {value}"):
            try:
                effect = guard.call(tool, {name: value}).effect
            except EffectOnceError as error:
                effect = error.effect
        desk.refs[f"{tool} {value}"] = effect.reference
    desk.refs["run"] = EffectRef("", next(guard.workflows.runs()).request.key).reference
    guard.close()
    return desk


def one_line(text):
    return " ".join(text.split())


def test_what_happened_in_part_is_not_told_as_done(odd):
    shown = one_line(odd.run("effect", "show", odd.refs["rent 2"]).stdout)

    assert shown.startswith("! completed in part rent")
    assert "Some of it happened, and the rest did not." in shown
    assert (
        "outcome some of it happened: one of two rooms done a part (hidden: --reveal shows it)"
        in shown
    )
    assert shown.endswith("put it right rent the other room by telephone")
    assert 'done ["room 7"]' in one_line(
        odd.run("effect", "show", odd.refs["rent 2"], "--reveal").stdout
    )


def test_who_gave_up_is_not_told_as_gone(odd):
    shown = one_line(odd.run("effect", "show", odd.refs["book 12A"]).stdout)

    assert (
        "It may have happened, and its owner gave up. The next call sends the same request again"
        in shown
    )
    assert "and was not renewed" not in shown


def test_a_long_error_leaves_the_story_on_one_screen(odd):
    shown = odd.run("effect", "show", odd.refs["notify long"], width=80).stdout

    assert len(shown.splitlines()) <= 35
    assert "more characters: --json)" in one_line(shown)
    assert (
        one_line(shown).count(
            "(no answer, ambiguous); gave up: it may have happened, and nobody can know"
        )
        == 1
    )
    assert "x" * 5000 in odd.json("effect", "show", odd.refs["notify long"])["reason"]


def test_an_effect_that_is_known_by_its_content_says_so(odd):
    assert "where anywhere: the same tool and arguments" in one_line(
        odd.run("effect", "show", odd.refs["ping a"]).stdout
    )


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "command",
    [
        ("effect", "list"),
        ("indoubt", "list", "--each"),
        ("dlq", "list"),
        ("status",),
        ("workflow", "show"),
    ],
)
def test_columns_stay_straight_whatever_is_in_them(odd, command, width):
    named = (odd.refs["run"],) if command == ("workflow", "show") else ()
    code, screen = odd.terminal(*command, *named, width=width)

    assert code == 0
    assert not any(control in screen for control in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"))
    assert max(cell_len(line) for line in screen.splitlines()) <= width
    if "list" in command:
        title, *rows = screen.splitlines()
        ends = title.index("SENDS") + 5 if "SENDS" in title else title.index("TRIED") + 5
        for row in rows:
            assert as_shown(row)[ends - 1].isdigit()
            assert as_shown(row)[ends] == " "


def as_shown(row):
    """A character to a cell: a wide one has an empty cell behind it."""
    return "".join(c + "\0" * (cell_len(c) - 1) for c in row)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_groups_of_doubts_stay_straight_and_their_commands_whole(odd, width):
    guard = Guard(odd.url)
    for name in ("銀行に知らせる" * 6, f"\x1b[31m{TURNED}", "book a room " * 8):

        @guard.tool(kind="write", name=name, retry=ONCE)
        def lose(what: str) -> None:
            raise TimeoutError(what)

        with guard.step("chat", name), pytest.raises(EffectOnceError):
            lose("銀行")
    guard.close()

    code, screen = odd.terminal("indoubt", "list", width=width)

    assert code == 0
    assert not any(control in screen for control in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"))
    title, *lines = screen.splitlines()
    assert max(cell_len(line) for line in lines) <= width, screen
    rows, actions = lines[:4], lines[4:]
    for row in rows:
        cells = as_shown(row)
        assert cells[: title.index("EFFECTS") + 7].strip().isdigit()
        assert cells[title.index("EFFECTS") + 7 : title.index("TOOL")] == "  "
        assert cells[title.index("SINCE") : title.index("SINCE") + 5].strip().endswith("s")
        assert cells[title.index("SUCH AS") :].startswith("eff_")
    commands = [line for line in actions if line.startswith("  effectonce ")]
    references = [row.split()[-1] for row in rows]
    assert commands == [f"  effectonce effect show {reference}" for reference in references]


def test_a_long_name_does_not_hide_what_became_of_a_step(odd):
    _, screen = odd.terminal("workflow", "show", odd.refs["run"], width=80)

    first, second = [line for line in screen.splitlines() if line.startswith(("  1  ", "  2  "))]
    assert "…  completed  eff_" in first
    assert "in doubt" in second
    assert "eff_" in second


@pytest.mark.parametrize("what", RESULTS)
def test_every_result_can_be_revealed(odd, what):
    shown = odd.json("effect", "show", odd.refs[f"fetch {what}"], "--reveal")["result"]

    assert (
        shown
        == {
            "inf": "inf",
            "nan": "nan",
            "keys": {"[1, 2]": "a", "3": "b"},
            "set": [1],
            "bytes": "AA==",
        }[what]
    )
    assert f"outcome {json.dumps(shown)}" in one_line(
        odd.run("effect", "show", odd.refs[f"fetch {what}"], "--reveal").stdout
    )


def test_an_export_with_odd_results_comes_to_its_end(odd):
    done = odd.run("effect", "export", "--reveal")

    assert done.returncode == 0
    assert (
        len([json.loads(line) for line in done.stdout.splitlines()]) == len(odd.refs) + 1
    )  # the run, named twice, and its two steps


def test_a_workflow_among_the_tools_is_told_as_one(odd):
    app = ("--app", "odd_app:guard")

    listed = {tool["name"]: tool for tool in odd.json("tool", "list", *app)["tools"]}
    assert listed["deliver"]["is_workflow"]
    assert listed["deliver"]["deadline_s"] is None
    assert not listed["rent"]["is_workflow"]
    assert (
        "deliver\tworkflow\t-\torder\teach step by its own" in odd.run("tool", "list", *app).stdout
    )
    shown = odd.run("tool", "show", "deliver", *app).stdout
    assert "contract      workflow: each step by its own" in shown
    assert "retries       1 attempt\n" in shown


def test_a_path_with_brackets_is_told_as_it_is(tmp_path):
    (tmp_path / "[red]").mkdir()
    (tmp_path / "[red]" / "[dim]x.db").write_text(
        "no database, and longer than the header of one " * 10
    )

    done = Desk(tmp_path, f"sqlite:///{tmp_path}/[red]/[dim]x.db").run("doctor")

    assert done.returncode == 7
    assert "/[red]/[dim]x.db is not a SQLite database" in one_line(done.stdout)


def test_states_are_in_one_order_everywhere(odd):
    counted = [
        one_line(odd.run(command).stdout).partition("effects ")[2].split()
        for command in ("status", "doctor")
    ]

    assert counted[0][:9] == counted[1][:9]


def test_a_sweep_tells_what_it_cannot_read(odd):
    with sqlite3.connect(odd.folder / "effects.db") as somebody:
        somebody.execute(
            """UPDATE effects SET due_at = 0, terms = replace(terms, '"write"', '"wrote"') WHERE tool = 'rent'"""
        )
    somebody.close()

    told = odd.run("store", "gc")

    assert (
        f"1 due records cannot be read by this release, such as {odd.refs['rent 2']}. They were"
        " left" in told.stdout
    )
    assert odd.json("store", "gc")["unreadable"] == [odd.refs["rent 2"]]


class Currency(enum.Enum):
    EUR = "EUR"


@dataclasses.dataclass
class Amount:
    minor: int
    currency: Currency


class Session:
    """No data: a connection, a client, whatever a tool is given to work with."""


@pytest.fixture
def office(tmp_path):
    """A desk at a store whose tool takes models, Enums and objects. The desk knows nothing of
    their classes.
    """
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = Guard(desk.url)

    @guard.tool(kind="write", retry=ONCE, volatile=["session"])
    def refund(session: Session | None, payment: str, amount: Amount) -> Amount:
        if payment == "lost":
            raise TimeoutError
        return amount

    desk.refs = {}
    for payment, session in (("lost", None), ("paid", None), ("lost", Session())):
        step = f"{payment} {type(session).__name__}"
        with guard.step("chat", step):
            arguments = {
                "session": session,
                "payment": payment,
                "amount": Amount(1400, Currency.EUR),
            }
            desk.refs[step] = guard.call(refund, arguments).effect.reference
    guard.close()
    return desk


@pytest.mark.parametrize("command", ["effect", "dlq"])
def test_models_and_enums_are_shown_to_who_has_not_their_classes(office, command):
    shown = office.json(command, "show", office.refs["lost NoneType"], "--reveal")

    assert shown["arguments"] == {
        "session": None,
        "payment": "lost",
        "amount": {"minor": 1400, "currency": "EUR"},
    }


def test_a_model_that_was_returned_is_shown_as_its_fields(office):
    shown = office.json("effect", "show", office.refs["paid NoneType"], "--reveal")

    assert shown["result"] == {"minor": 1400, "currency": "EUR"}
    assert shown["outcome"]["status"] == "ok"


def test_what_cannot_be_stored_hides_no_other_argument(office):
    ref = office.refs["lost Session"]

    shown = office.json("effect", "show", ref, "--reveal")
    assert shown["arguments"] == {
        "session": "[not stored: a Session]",
        "payment": "lost",
        "amount": {"minor": 1400, "currency": "EUR"},
    }
