"""A file that was made by others stops no import, no redrive and no check: what cannot be used
is named, and the rest is done.
"""

import base64
import hashlib
import io
import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from effectonce import GaveUp, Guard, NotSent, Retry
from effectonce.cli import main
from effectonce.dashboard import Access
from effectonce.dead_letters import _file
from effectonce.lint import _check, check, check_source
from effectonce.lint._allow import allowances
from effectonce.mcp._client_configs import starting
from effectonce.stores.sqlite import SqliteStore
from tests.cli.desk import environment
from tests.server.conftest import browser

BY = {"by": "ada", "reason": "the bank is back"}


# ---------------------------------------------------------------- dead letters


class Bank:
    """A guard at a store of its own; its bank is away until it is open."""

    def __init__(self, path):
        self.guard, self.open, self.done = Guard(SqliteStore(path), cache=0), False, []

        @self.guard.tool(kind="write", retry=Retry(attempts=1))
        def pay(invoice: str) -> str:
            if not self.open:
                raise NotSent("away")
            self.done.append(invoice)
            return invoice

        self.pay = pay

    def letters(self, *invoices):
        """Calls that gave up, as a file."""
        for invoice in invoices:
            with self.guard.step("chat", invoice), pytest.raises(GaveUp):
                self.pay(invoice)
        file = io.BytesIO()
        self.guard.dead_letters.export(file)
        return [json.loads(line) for line in file.getvalue().splitlines()]


@pytest.fixture
def banks(tmp_path):
    found = Bank(tmp_path / "one.db"), Bank(tmp_path / "two.db")
    yield found
    for bank in found:
        bank.guard.close()


def written(lines):
    """Lines with a digest that fits: who makes a file makes that, too."""
    made = []
    for line in lines:
        letter = json.dumps(line["letter"])
        digest = hashlib.sha256(letter.encode()).hexdigest()
        made.append(
            f'{{"format": "{_file.FORMAT}", "version": {_file.VERSION}, "digest": "{digest}",'
            f' "letter": {letter}}}\n'
        )
    return io.BytesIO("".join(made).encode())


def with_terms(**changes):
    return lambda letter: letter["terms"].update(changes)


BAD = {
    "a window that is no number": with_terms(window_s="nan"),
    "a window below zero": with_terms(window_s="-1"),
    "a resend window that is no number": with_terms(resend_s="NaN"),
    "a tombstone that is no number": with_terms(tombstone_s="nan"),
    "a delay that is no number": with_terms(delay_s="nan"),
    "no time": lambda letter: letter.update(created_at=1e999),
    "sends below zero": lambda letter: letter.update(sends=-1),
    "evidence of no time": (
        lambda letter: letter["evidence"].append(
            {"at": -1e999, "note": "x", "outcome": "", "is_result": False}
        )
    ),
    "evidence of a time that no calendar has": (
        lambda letter: letter["evidence"][0].update(at=1e300)
    ),
    "evidence from before all calendars": lambda letter: letter["evidence"][0].update(at=-1e300),
    "half a character": lambda letter: letter.update(scope="\ud800"),
    "a kind of its own": with_terms(kind="sometimes"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_letter_with_an_impossible_number_stops_no_other(banks, what):
    here, there = banks
    first, bad, last = here.letters("a", "b", "c")
    BAD[what](bad["letter"])

    came_to = there.guard.dead_letters.load(written([first, bad, last]))

    assert (came_to.imported, [problem.line for problem in came_to.problems]) == (2, [2])
    assert len(there.guard.dead_letters.list()) == 2


@pytest.mark.parametrize("at", [1e300, -1e300, 1e18])
def test_a_record_of_a_time_that_no_calendar_has_hides_no_other(tmp_path, at):
    bank = Bank(tmp_path / "effects.db")
    bank.letters("a", "b")
    bank.guard.close()
    with sqlite3.connect(tmp_path / "effects.db") as db:
        ((key, evidence),) = db.execute(
            "SELECT key, evidence FROM effects WHERE step = 'a'"
        ).fetchall()
        spoilt = json.dumps([[at, *entry[1:]] for entry in json.loads(evidence)])
        db.execute(
            "UPDATE effects SET created_at = ?, evidence = ? WHERE key = ?", (at, spoilt, key)
        )
    db.close()

    for command in (
        ("dlq", "list"),
        ("dlq", "list", "--json"),
        ("dlq", "groups"),
        ("effect", "list"),
        ("effect", "list", "--json"),
    ):
        done = CliRunner().invoke(
            main, command, env={"EFFECTONCE_STORE": f"sqlite:///{tmp_path / 'effects.db'}"}
        )
        assert done.exit_code == 0, (command, done.exception)
        assert "pay" in done.stdout


NO_ARGUMENTS = (
    *(b"v1 ok [1, 2]", b'v1 ok "text"', b"v1 ok 7", b"v1 ok null"),
    *(b"v1 redacted v1 ok [1]", b'v1 error ["x"]', b"v1 unavailable 7"),
)


def test_infinite_windows_are_numbers(banks):
    here, there = banks
    (letter,) = here.letters("a")
    letter["letter"]["terms"] |= {"window_s": "inf", "tombstone_s": "inf"}

    assert there.guard.dead_letters.load(written([letter])).imported == 1


@pytest.mark.parametrize("arguments", NO_ARGUMENTS)
def test_arguments_that_are_none_stop_no_other_letter(banks, arguments):
    here, there = banks
    first, bad, last = here.letters("a", "b", "c")
    bad["letter"]["arguments"] = base64.b64encode(arguments).decode()
    assert there.guard.dead_letters.load(written([first, bad, last])).imported == 3
    there.open = True
    operator = browser(there.guard, Access("ada", acts=True, reveals=True))

    (shown,) = [letter for letter in there.guard.dead_letters.list() if letter.arguments is None]
    assert shown.unreadable
    effect = f"/effects/{shown.reference}"
    for page in (
        "/",
        "/letters",
        "/letters?tool=pay",
        "/letters/redrive",
        effect,
        f"{effect}?reveal=on",
    ):
        assert operator.get(page).status_code == 200, page
    dry = there.guard.dead_letters.redrive_all()
    done = there.guard.dead_letters.redrive_all(dry_run=False, per_s=None, **BY)

    assert sorted(each.what for each in dry) == ["skipped", "would_run", "would_run"]
    assert sorted(each.what for each in done) == ["done", "done", "skipped"]
    assert [each.effect.reference for each in done if each.what == "skipped"] == [shown.reference]
    assert next(each.why for each in done if each.what == "skipped").startswith(
        "it cannot be sent again from here: "
    )
    assert sorted(there.done) == ["a", "c"]


def test_a_group_is_redriven_from_the_dashboard_beside_a_bad_letter(banks):
    here, there = banks
    first, bad, last = here.letters("a", "b", "c")
    bad["letter"]["arguments"] = "djEgb2sgWzFd"
    there.guard.dead_letters.load(written([first, bad, last]))
    there.open = True

    shown = browser(there.guard, Access("ada", acts=True)).post(
        "/letters/redrive?tool=pay", data={"reason": "the bank is back"}
    )

    assert shown.status_code == 200
    assert sorted(there.done) == ["a", "c"]


def test_a_line_without_an_end_is_not_held_in_memory(banks, monkeypatch):
    here, there = banks
    (letter,) = here.letters("a")
    good = written([letter]).getvalue()
    monkeypatch.setattr(_file, "LINE_MAX", len(good) + 10)

    came_to = there.guard.dead_letters.load(io.BytesIO(b"{" * (10 * len(good)) + b"\n" + good))

    assert (came_to.imported, [problem.line for problem in came_to.problems]) == (1, [1])


# ---------------------------------------------------------------- lint


def test_a_pipe_and_a_device_are_no_source(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "good.py").write_text("# effectonce: allow EO101\n")

    done = subprocess.run(
        [sys.executable, "-m", "effectonce.cli", "lint", ".", "zero.py", "--json"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 3, done.stderr
    found = {
        finding["path"]: finding
        for finding in json.loads(done.stdout)["findings"]
        if finding["code"] == "EO001"
    }
    assert set(found) == {"pipe.py", "zero.py", "loop.py"}
    for path in ("pipe.py", "zero.py"):
        assert (
            found[path]["message"]
            == "this file is no ordinary file, or larger than 10 MB. Nothing in it was checked."
        )


def test_a_file_that_nobody_wrote_is_not_read(tmp_path):
    with (tmp_path / "huge.py").open("wb") as file:
        file.truncate(_check.SOURCE_MAX + 1)

    (finding,) = check([tmp_path])

    assert (finding.code, "larger than 10 MB" in finding.message) == ("EO001", True)


def test_comments_without_code_below_them_are_read_once():
    """One pass over the tokens: a look at the rest for each comment would be 8,000 times 16,000."""
    lines = 8_000
    source = b"# effectonce: allow EO101 because it is so\n" * lines + b"x = 1\n"
    steps = _steps(lambda: list(allowances(source)))
    few = _steps(lambda: list(allowances(source[: len(source) // 10])))

    assert steps <= 12 * few


def _steps(work):
    """How many lines of our own code ran."""
    count = SimpleNamespace(n=0)

    def trace(frame, event, _):
        if "effectonce/lint" not in frame.f_code.co_filename:
            return None
        count.n += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count.n


def test_many_findings_and_many_allowances_are_matched_by_line():
    def source(count):
        call = "    requests.post(url, headers={'Idempotency-Key': str(uuid.uuid4())})"
        lines = [f"{call}  # effectonce: allow EO101 because of {n}" for n in range(count)]
        return "import requests, uuid, effectonce\ndef f(url):\n" + "\n".join(lines) + "\n"

    small, large = source(20), source(200)
    assert {finding.code for finding in check_source(small)} == {
        finding.code for finding in check_source(large)
    }
    steps = [_matching(each) for each in (small, large)]

    assert steps[1] <= 12 * steps[0]


def _matching(source):
    reports = [("x.py", _check._report(source.encode(), "x.py", frozenset(_check.CODES)))]
    assert len(reports[0][1].allowances) >= 20
    return _steps(lambda: _check.judged(reports, frozenset(_check.CODES)))


def test_an_allowance_covers_what_it_covered_before():
    source = (
        "import requests, uuid, effectonce\n"
        "def f(url):\n"
        "    # effectonce: allow EO101 because the first is tested\n"
        "    requests.post(\n"
        "        url,\n"
        "        headers={'Idempotency-Key': str(uuid.uuid4())})\n"
        "    # effectonce: allow EO101 because nothing is here\n"
        "    pass\n"
    )

    unused = [finding.line for finding in check_source(source) if finding.code == "EO003"]
    assert 7 in unused


@pytest.mark.parametrize("name", ["pay \N{MONEY BAG}", "a\x7fb", 'a"]\nkind = "read"', "\u2028"])
def test_the_name_of_a_tool_is_a_name_in_the_contract_file(name):
    read = tomllib.loads(starting(name, [{"name": name, "inputSchema": {"properties": {}}}]))

    assert read == {"name": name, "tools": {name: {"kind": "write"}}}
