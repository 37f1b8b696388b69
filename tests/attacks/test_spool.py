"""Outcomes on the disk of a machine that other users share."""

import json
import os

import pytest

from effectonce import ContractViolation, Guard, Retry
from effectonce._core import ops
from effectonce.recovery.spool import Settled, Spool, default_folder
from effectonce.testing.clock import FakeClock
from tests.attacks.strangers import given_to_a_stranger
from tests.core.helpers import named, tool
from tests.flaky import FlakyStore

SECRET = b"a secret of this guard, and of no other"


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch):
    """Nothing is settled but by the test."""
    monkeypatch.setattr(Spool, "_settle_in_the_background", lambda _: None)


@pytest.fixture
def store():
    return FlakyStore(clock=FakeClock())


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool"


def kept(store, folder, secret=b""):
    """A guard that keeps one outcome, and its file."""
    guard = Guard(store, cache=0, spool=folder, secret=secret)
    pay = tool(guard, named("pay", lambda: "receipt"), retry=Retry(attempts=3, deadline_s=0.05))
    store.fail(ops.Complete, times=10_000)
    with guard.step("chat", "pay"):
        guard.call(pay, {})
    store.faults.clear()
    (file,) = folder.iterdir()
    return guard, file


def test_a_file_name_tells_no_token(store, folder):
    _, file = kept(store, folder)

    assert json.loads(file.read_text())["token"] not in file.name


def test_there_is_no_folder_for_a_user_without_a_home():
    assert default_folder("sqlite:///a.db", {}) is None


def test_a_guard_without_a_folder_says_what_it_cannot_keep(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_STATE_HOME", "EFFECTONCE_SPOOL"):
        monkeypatch.delenv(name, raising=False)

    assert Guard(f"sqlite:///{tmp_path}/effects.db").spool is None


def _is_a_link(folder, _):
    folder.with_name("real").mkdir(mode=0o700)
    folder.symlink_to(folder.with_name("real"))


def _is_anothers(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    given_to_a_stranger(folder, monkeypatch)


def _may_be_written(folder, _):
    folder.mkdir()
    folder.chmod(0o777)


def _lies_in_anothers(folder, monkeypatch):
    given_to_a_stranger(folder.parent, monkeypatch)


each_bad_folder = pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_is_a_link, "is not a folder"),
        (_is_anothers, "another user"),
        (_may_be_written, "may be written by other users"),
        (_lies_in_anothers, "another user"),
    ],
)


@each_bad_folder
def test_a_folder_that_others_can_change_is_refused_where_it_was_named(
    store, folder, monkeypatch, spoil, why
):
    spoil(folder, monkeypatch)

    with pytest.raises(ContractViolation, match=why):
        Guard(store, spool=folder)


@each_bad_folder
def test_a_folder_that_others_can_change_is_not_used_from_then_on(
    store, folder, monkeypatch, caplog, spoil, why
):
    guard, file = kept(store, folder)
    content = file.read_bytes()
    file.unlink()
    folder.rmdir()

    spoil(folder, monkeypatch)
    if folder.is_dir():
        (folder / file.name).write_bytes(content)

    assert guard.spool.settle() == Settled(written=0, attested=0, left=0)
    guard.spool.keep(ops.Complete("key", "token", 1, b"outcome"))
    assert why in caplog.text
    finding = guard.spool.finding()
    assert finding.bad
    assert why in finding.found


def test_a_link_in_the_folder_is_not_followed(store, folder, tmp_path):
    guard, file = kept(store, folder)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")

    assert guard.spool.settle().written == 0


def test_a_pipe_in_the_folder_holds_nothing_up(store, folder):
    guard, _ = kept(store, folder)
    os.mkfifo(folder / "a.json")

    assert guard.spool.settle() == Settled(written=1, attested=0, left=1)


@pytest.mark.parametrize(
    "spoilt",
    [
        '"signature": "\u00e9"',
        r'"signature": "\ud800"',
        r'"by": "\ud800"',
        '"more": ' + "[" * 100_000 + "]" * 100_000,
    ],
    ids=["not ASCII", "half a character", "half a character elsewhere", "too deep"],
)
def test_a_file_that_was_spoilt_holds_no_other_up(store, folder, spoilt):
    guard, file = kept(store, folder, SECRET)
    entry = json.dumps(
        {
            name: value
            for name, value in json.loads(file.read_text()).items()
            if f'"{name}"' not in spoilt
        }
    )
    (folder / "a.json").write_text(f"{entry[:-1]}, {spoilt}" + "}")

    assert guard.spool.settle().written == 1


def test_a_file_of_another_user_is_not_believed(store, folder, monkeypatch):
    guard, file = kept(store, folder)
    # then all that we can change is who we are, and the folder would not be ours either
    if os.geteuid() != 0:
        monkeypatch.setattr(Spool, "distrusted", lambda _: "")
    given_to_a_stranger(file, monkeypatch)

    assert guard.spool.settle() == Settled(written=0, attested=0, left=1)


def test_with_a_secret_a_changed_outcome_is_not_believed(store, folder, caplog):
    guard, file = kept(store, folder, SECRET)
    entry = json.loads(file.read_text())
    for name in ("write", "key", "token", "epoch", "outcome", "by", "signature"):
        changed = {"epoch": 2, "write": "Fail"}.get(
            name, entry[name] + "AAAA" if isinstance(entry[name], str) else 0
        )
        file.write_text(json.dumps(entry | {name: changed}))
        assert guard.spool.settle().written == 0, name
    file.write_text(
        json.dumps({name: value for name, value in entry.items() if name != "signature"})
    )
    assert guard.spool.settle().written == 0
    assert "not signed with the secret of this guard" in caplog.text

    file.write_text(json.dumps(entry))
    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)


def test_an_outcome_that_another_secret_signed_waits_for_its_guard(store, folder):
    guard, _ = kept(store, folder, SECRET)
    another = Guard(store, cache=0, spool=folder, secret=b"another secret, of another application")

    assert another.spool.settle() == Settled(written=0, attested=0, left=1)
    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)
