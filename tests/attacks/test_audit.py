"""Whoever can write to the store rewrites no audit unnoticed by who has the secret, or an
anchor.
"""

import contextlib
import json
import os
import sqlite3
import time

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from effectonce import ContractViolation
from effectonce._core.ops import ListCells
from effectonce.cli import main
from effectonce.observe import Audit, Event
from effectonce.observe._hash_chain import Marks, read_batch
from effectonce.observe.audit import BATCHES, HEADS
from effectonce.stores.sqlite import SqliteStore

SECRET = b"s" * 32


class Office:
    """A store with an audit, its file, and the command line that looks at it."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "effects.db"

    def write(self, secret=SECRET, tools=("pay", "pay", "pay"), name="", batch=3):
        """One stream. *name*: what an attacker calls his."""
        store = SqliteStore(self.path)
        audit = Audit(store, secret=secret, flush_s=1000)
        audit.stream = name or audit.stream
        for number, tool in enumerate(tools, start=1):
            audit(Event(name="completed", at=1000.0 + number, tool=tool))
            if number % batch == 0:
                assert audit.flush()
        audit.close()
        stream = next(iter(dict(store.apply(ListCells(HEADS, limit=1))))).removeprefix(HEADS)
        store.close()
        return stream

    def execute(self, statement, *values):
        """Change the store as an attacker would. Return the rows."""
        with contextlib.closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(statement, values).fetchall()

    def remove_all(self):
        self.execute(
            "DELETE FROM cells WHERE name LIKE ? OR name LIKE ?", f"{BATCHES}%", f"{HEADS}%"
        )

    def run(self, *arguments):
        return CliRunner().invoke(
            main,
            ["audit", *map(str, arguments)],
            env={"EFFECTONCE_STORE": f"sqlite:///{self.path}", "NO_COLOR": "1", "COLUMNS": "100"},
        )

    def verified(self, **known):
        store = SqliteStore(self.path)
        try:
            return Audit(store, secret=SECRET).verify(**known)
        finally:
            store.close()


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path)


def one_line(text):
    return " ".join(text.split())


def test_without_the_secret_a_keyed_audit_is_not_called_unchanged(office):
    stream = office.write()

    done = office.run("verify")
    data = json.loads(office.run("verify", "--json").stdout)

    assert done.exit_code == 1
    assert one_line(done.stdout).startswith(
        "! not checked 5 entries in 1 stream: 1 stream marked with a secret."
    )
    assert "nothing was changed" not in done.stdout
    assert (data["ok"], data["unchecked"], data["flaws"]) == (False, [stream], [])
    assert office.verified().ok


def test_an_entry_that_was_changed_in_a_keyed_audit_is_not_approved_without_the_secret(office):
    office.write()
    for name, value in office.execute("SELECT name, value FROM cells WHERE name LIKE 'audit/%'"):
        forged = bytes(value).replace(b"pay", b"sue")
        office.execute("UPDATE cells SET value = ? WHERE name = ?", forged, name)

    assert office.run("verify").exit_code == 1
    assert not office.verified().ok


def test_an_audit_that_was_forged_without_the_secret_is_not_called_unchanged(office):
    office.write()
    office.remove_all()
    office.write(secret=b"", tools=("nothing", "ever", "happened"))

    done = office.run("verify")

    # it looks like the audit of a guard without a secret, and that is said
    assert done.exit_code == 0
    assert "nothing was changed" not in done.stdout
    assert "any process that can write to this store can write another audit that fits" in one_line(
        done.stdout
    )
    assert {flaw.what for flaw in office.verified().flaws} == {"changed"}


def test_an_audit_that_was_forged_under_the_name_of_a_keyed_one_is_not_approved(office):
    stream = office.write()
    office.remove_all()
    office.write(secret=b"", tools=("nothing", "ever", "happened"), name=stream)

    assert office.run("verify").exit_code == 1
    assert not office.verified().ok


def test_an_anchor_finds_an_audit_that_was_made_anew(office):
    stream, file = office.write(secret=b""), office.folder / "anchors"
    assert office.run("anchor", file).exit_code == 0
    assert office.run("verify", "--anchor", file).exit_code == 0

    office.remove_all()
    office.write(secret=b"", tools=("nothing", "ever", "happened"))
    gone = office.run("verify", "--anchor", file)
    office.remove_all()
    office.write(secret=b"", tools=("nothing", "ever", "happened"), name=stream)
    rewritten = office.run("verify", "--anchor", file)

    assert (gone.exit_code, rewritten.exit_code) == (1, 1)
    assert "the whole stream is gone: it was anchored on" in one_line(gone.stdout)
    assert "is not the one that was written: it was anchored on" in one_line(rewritten.stdout)


def test_an_anchor_finds_an_end_that_was_cut(office):
    stream, file = office.write(secret=b"", tools=("pay",) * 9), office.folder / "anchors"
    office.run("anchor", file)

    office.remove_all()
    office.write(secret=b"", tools=("pay",) * 3, name=stream)

    done = office.run("verify", "--anchor", file)
    assert done.exit_code == 1
    assert "its end is missing: it was anchored on" in one_line(done.stdout)


def cut_before(office, store, number):
    """As one who can write to a store without a secret would: batch *number* says that what was
    before it is past its time.
    """
    batches = store.apply(ListCells(BATCHES))
    name, value = batches[number]
    aged = replace(read_batch(value), before_at=1.0, seal=b"")
    for earlier, _ in batches[:number]:
        office.execute("DELETE FROM cells WHERE name = ?", earlier)
    office.execute("UPDATE cells SET value = ? WHERE name = ?", Marks().batch(aged), name)


@pytest.mark.parametrize("age_s", [0, 90_000])
def test_an_anchor_finds_a_beginning_that_was_cut(office, age_s):
    store, now = SqliteStore(office.path), [time.time() - age_s]
    audit = Audit(store, flush_s=1000, keep=50_000, clock=lambda: now[0])
    anchors = []
    for _ in range(4):
        audit(Event(name="completed", at=now[0], tool="pay"))
        assert audit.flush()
        anchors.append(audit.anchor())
        now[0] += age_s / 4
    assert Audit(store, clock=lambda: now[0]).verify(anchors=anchors).ok

    cut_before(office, store, 3)
    forged, found = (
        Audit(store, clock=lambda: now[0]).verify(anchors=known) for known in ([], anchors)
    )

    store.close()
    assert forged.ok
    assert {flaw.what for flaw in found.flaws} == {"missing"}


def test_a_beginning_that_is_past_its_time_is_not_missed(office):
    store, now = SqliteStore(office.path), [1_800_000_000.0]
    audit = Audit(store, flush_s=1000, keep=100_000, clock=lambda: now[0])
    for _ in range(3):
        audit(Event(name="completed", at=now[0], tool="pay"))
        assert audit.flush()
        now[0] += 60_000
    anchor = audit.anchor()
    office.execute("DELETE FROM cells WHERE name LIKE ?", f"{BATCHES}%/00000000")

    assert Audit(store, clock=lambda: now[0]).verify(anchors=[anchor]).ok
    audit.close()
    store.close()


@pytest.mark.parametrize("kept", ["an anchor", "a head"])
def test_other_batches_do_not_hide_a_rewritten_entry(office, kept):
    store = SqliteStore(office.path)
    audit = Audit(store, flush_s=1000)
    for number in range(3):
        audit(Event(name="completed", at=1000.0 + number, tool="pay"))
    line, anchor, stream = audit.head(), audit.anchor(), audit.stream
    audit.close()
    store.close()
    known = {"anchors": [anchor]} if kept == "an anchor" else {"expect": line}

    office.remove_all()
    office.write(secret=b"", tools=("sue",) * 7, name=stream, batch=7)

    reader = SqliteStore(office.path)
    assert Audit(reader).verify().ok
    assert [flaw.what for flaw in Audit(reader).verify(**known).flaws] == ["changed"]
    reader.close()


def test_each_anchor_is_a_line_and_none_is_overwritten(office):
    file = office.folder / "anchors"
    office.write(secret=b"")
    office.run("anchor", file)
    file.write_bytes(file.read_bytes() + b'{"torn')
    office.write(secret=b"")
    office.run("anchor", file)

    first, torn, second = file.read_text().splitlines()
    assert [len(json.loads(line)["streams"]) for line in (first, second)] == [1, 2]
    assert torn == '{"torn'
    assert file.stat().st_mode & 0o777 == 0o600
    done = office.run("verify", "--anchor", file)
    assert done.exit_code == 2
    assert "anchor 2 cannot be read" in one_line(done.output)


def test_an_anchor_holds_while_the_audit_grows_and_after_its_time(office):
    file = office.folder / "anchors"
    office.write()
    office.run("anchor", file)
    office.write(tools=("more",) * 5)

    assert office.verified(anchors=file.read_text().splitlines()).ok
    store = SqliteStore(office.path)
    later = Audit(SqliteStore(office.folder / "empty.db"), clock=lambda: 1e12)
    assert later.verify(anchors=file.read_text().splitlines()).ok
    store.close()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n\n",
        "nonsense\n",
        (
            '{"schema": "effectonce.anchor/1", "at": "", "streams": {"a": {"entries": 1, "mark":'
            ' "zz", "until": 1}}}'
        ),
    ],
)
def test_a_file_without_anchors_approves_nothing(office, content):
    office.write(secret=b"")
    (office.folder / "anchors").write_text(content)

    assert office.run("verify", "--anchor", office.folder / "anchors").exit_code in (1, 2)


def test_an_anchor_goes_into_ordinary_files_alone(office):
    os.mkfifo(office.folder / "pipe")
    office.write()

    done = office.run("anchor", office.folder / "pipe")

    assert done.exit_code == 1
    assert "no ordinary file" in done.output


def test_heads_that_cannot_be_read_are_not_anchored(office):
    office.write()
    office.execute("UPDATE cells SET value = x'00' WHERE name LIKE ?", f"{HEADS}%")

    store = SqliteStore(office.path)
    with pytest.raises(
        ContractViolation, match="there is no anchor: the heads of 1 streams cannot be read"
    ):
        Audit(store).anchor()
    store.close()
