"""An outcome that the store could not be told is kept on this machine, and written when the
store is back.
"""

import asyncio
import base64
import json
import logging
import threading
from pathlib import Path

import pytest

from effectonce import (
    Guard,
    Keyring,
    Rejected,
    ReplayedFailure,
    ResultUnavailable,
    Retry,
    State,
    StoreUnavailable,
)
from effectonce._core import ops
from effectonce.recovery.spool import Settled, Spool, default_folder
from effectonce.stores.base import TooLarge
from effectonce.stores.memory import MemoryStore
from tests.core.helpers import named, tool
from tests.flaky import FlakyStore

SOON = Retry(attempts=3, deadline_s=0.05)


@pytest.fixture
def store(clock):
    return FlakyStore(clock=clock)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch):
    """Nothing is settled but by the test."""
    monkeypatch.setattr(Spool, "_settle_in_the_background", lambda _: None)


def unwritten(store, spool, function=lambda: "receipt", write=ops.Complete, **contract):
    """A guard whose call happened and could not be written down."""
    guard = Guard(store, cache=0, spool=spool)
    pay = tool(guard, named("pay", function), retry=SOON, **contract)
    store.fail(write, times=10_000)
    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})
    store.faults.clear()
    return guard, pay, outcome


def test_it_is_told_and_kept_and_then_written(store, spool):
    guard, pay, outcome = unwritten(store, spool)
    assert (outcome.value, outcome.recorded, guard.spool.waiting()) == ("receipt", False, 1)
    assert "wait for the store" in guard.health().findings[-1].found

    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)
    with guard.step("chat", "pay"):
        again = guard.call(pay, {})
    assert (again.value, again.replayed) == ("receipt", True)
    assert list(spool.iterdir()) == []


def test_it_settles_a_doubt_that_came_meanwhile(store, spool, clock):
    guard, pay, _ = unwritten(store, spool)
    clock.advance(31)
    guard.sweep()
    assert guard.counts() == {State.IN_DOUBT: 1}

    assert guard.spool.settle().written == 1
    assert guard.counts() == {State.COMPLETED: 1}
    with guard.step("chat", "pay"):
        assert guard.call(pay, {}).settled_by == "late evidence"


def test_where_somebody_else_decided_it_is_evidence(store, spool, clock):
    guard, _, outcome = unwritten(store, spool)
    clock.advance(31)
    guard.sweep()
    guard.refute(outcome.effect.key, by="ann", reason="asked the bank")

    assert guard.spool.settle() == Settled(written=0, attested=1, left=0)
    record = guard.find(outcome.effect.key)
    assert (record.state, record.evidence[0].outcome) == (State.FAILED, b'v1 ok "receipt"')


def test_a_refusal_is_kept_too(store, spool):
    def refuse():
        raise Rejected("card declined")

    guard = Guard(store, cache=0, spool=spool)
    pay = tool(guard, named("pay", refuse), retry=SOON)
    store.fail(ops.Fail, times=10_000)
    with guard.step("chat", "pay"), pytest.raises(Exception, match="could not write that down"):
        pay()
    store.faults.clear()

    assert guard.spool.settle().written == 1
    with guard.step("chat", "pay"), pytest.raises(ReplayedFailure, match="card declined"):
        pay()


def test_async_tools_keep_theirs_as_well(store, spool):
    async def main():
        guard = Guard(store, cache=0, spool=spool)

        @guard.tool(kind="write", retry=SOON)
        async def pay():
            return "receipt"

        store.fail(ops.Complete, times=10_000)
        async with guard.step("chat", "pay"):
            assert await pay() == "receipt"
        store.faults.clear()
        return guard

    guard = asyncio.run(main())
    assert guard.spool.settle().written == 1


def test_settling_twice_is_settling_once(store, spool):
    guard, _, _ = unwritten(store, spool)
    (file,) = spool.iterdir()
    content = file.read_bytes()
    guard.spool.settle()
    file.write_bytes(content)

    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)
    assert guard.counts() == {State.COMPLETED: 1}


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"version": 2}', b"not json", b'{"version": 1, "write": "\xff"}']
)
def test_a_file_that_cannot_be_read_is_left_to_a_person(store, spool, content, caplog):
    guard, _, _ = unwritten(store, spool)
    (spool / "broken.json").write_bytes(content)

    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)
    assert [file.name for file in spool.iterdir()] == ["broken.unreadable"]
    assert "broken.json cannot be read" in caplog.text


def test_a_file_that_cannot_be_opened_now_is_read_later(store, spool, monkeypatch, caplog):
    """A process that has too many files open could not reach its store either."""
    guard, _, _ = unwritten(store, spool)

    def too_many(_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as machine:
        machine.setattr("effectonce.recovery.spool._read_ours", too_many)
        assert guard.spool.settle() == Settled(written=0, attested=0, left=1)
    assert "Too many open files" in caplog.text
    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)


class Picky(FlakyStore):
    """A store that does not take some outcomes, however often it is told."""

    refused = (b'v1 ok "a"', b'v1 ok "c"')

    def apply(self, op):
        if isinstance(op, ops.Complete) and op.outcome in self.refused:
            raise StoreUnavailable("a record that it cannot read")
        return super().apply(op)


def kept(store, spool, *names):
    guard = Guard(store, cache=0, spool=spool)
    pay = tool(guard, named("pay", lambda name: name), retry=SOON)
    store.fail(ops.Complete, times=10_000)
    for name in names:
        with guard.step("chat", name):
            assert pay(name) == name
    store.faults.clear()
    return guard


def test_an_outcome_that_the_store_does_not_take_holds_up_no_other(spool, clock):
    guard = kept(Picky(clock=clock), spool, "a", "b", "c", "d", "e")

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            guard.spool.settle()
    assert guard.spool.waiting() == 2
    assert guard.counts()[State.COMPLETED] == 3

    guard.store.refused = ()
    assert guard.spool.settle() == Settled(written=2, attested=0, left=0)


def test_an_error_of_another_kind_does_not_end_the_background(store, spool, monkeypatch, caplog):
    monkeypatch.setattr("effectonce.recovery.spool.FIRST_S", 0.001)
    guard, _, _ = unwritten(store, spool)
    apply, errors = store.apply, [ValueError("what no store should say")]

    def once(op):
        if errors:
            raise errors.pop()
        return apply(op)

    monkeypatch.setattr(store, "apply", once)
    guard.spool._live()
    assert guard.counts() == {State.COMPLETED: 1}
    assert "what no store should say" in caplog.text


def test_without_a_thread_what_is_kept_waits_for_the_next_process(
    store, spool, monkeypatch, caplog
):
    monkeypatch.undo()

    def no_room(thread):
        raise (
            RuntimeError("can't start new thread")
            if thread.name == "effectonce-spool"
            else AssertionError
        )

    guard = Guard(store, cache=0, spool=spool)
    with monkeypatch.context() as machine:
        machine.setattr(threading.Thread, "start", no_room)
        guard.spool.keep(ops.Complete("k" * 64, "t", 1, b"v1 ok 1"))
    assert guard.spool.waiting() == 1
    assert "is not settled now: can't start new thread" in caplog.text
    assert "k" * 64 not in caplog.text


def test_a_file_that_another_process_settled_first_is_no_error(store, spool, monkeypatch):
    guard, _, _ = unwritten(store, spool)
    monkeypatch.setattr(guard.spool, "_files", lambda: [spool / "gone.json"])

    assert guard.spool.settle().written == 0


def test_a_folder_that_cannot_be_written_is_told(store, tmp_path, caplog):
    (tmp_path / "file").touch()
    _, _, outcome = unwritten(store, tmp_path / "file" / "spool")

    assert outcome.value == "receipt"
    assert "could be written neither to the store nor to" in caplog.text


def test_no_log_line_about_what_is_kept_shows_a_key(store, spool, caplog):
    guard, _, outcome = unwritten(store, spool)
    (file,) = spool.iterdir()
    content = file.read_bytes()

    file.write_bytes(b"torn")
    guard.spool.settle()
    file.unlink(missing_ok=True)
    file.symlink_to("itself.json")  # as if somebody wanted to know what is written
    (spool / "itself.json").symlink_to(file.name)
    guard.spool.settle()
    guard.spool.keep(ops.Complete(outcome.effect.key, "a token", 1, content))

    assert len(caplog.records) >= 3
    assert outcome.effect.reference in caplog.text
    assert outcome.effect.key not in caplog.text


def test_without_a_folder_it_is_at_least_told(store, caplog):
    _, _, outcome = unwritten(store, None)

    assert (
        f"how {outcome.effect.reference} ended was not written to the store, and there is no spool"
        in caplog.text
    )
    assert outcome.effect.key not in caplog.text


def test_only_this_user_can_look_into_it(store, spool):
    unwritten(store, spool)

    (file,) = spool.iterdir()
    assert spool.stat().st_mode & 0o077 == 0
    assert file.stat().st_mode & 0o077 == 0, "a folder that was there before may be open to others"


def test_a_store_given_by_its_url_has_a_folder_of_its_own():
    environ = {"HOME": "/home/ann"}
    folder = default_folder("postgresql://app:secret@db:5432/effects", environ)

    assert folder.is_relative_to("/home/ann/.local/state/effectonce/spool")
    assert folder == default_folder("postgresql://other@db:5432/effects", environ)
    assert folder != default_folder("postgresql://app@db:5432/another", environ)
    assert default_folder("sqlite:///a.db", {"XDG_STATE_HOME": "/state"}).is_relative_to(
        "/state/effectonce/spool"
    )
    assert default_folder("sqlite:///a.db", {"EFFECTONCE_SPOOL": "/var/spool/eo"}).parent == Path(
        "/var/spool/eo"
    )
    assert Guard("memory://").spool is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql:///effects?host=/run/a", "postgresql:///effects?host=/run/b"),
        ("postgresql://h1:5432,h2:5433/effects", "postgresql://h1:5432,h3:5433/effects"),
        ("redis://cache/0?prefix=pay", "redis://cache/0?prefix=mail"),
        ("redis+unix:///run/redis?db=1", "redis+unix:///run/redis?db=2"),
    ],
)
def test_two_stores_never_share_a_folder(one, other):
    """Whoever opens one would tell it the outcomes of the other, and then they are gone."""
    environ = {"HOME": "/home/ann"}
    assert default_folder(one, environ) != default_folder(other, environ)
    assert default_folder(one, environ) == default_folder(one, environ)


def test_a_relative_file_is_another_store_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = default_folder("sqlite:///effects.db", {"HOME": "/home/ann"})
    assert here == default_folder(f"sqlite:///{tmp_path}/effects.db", {"HOME": "/home/ann"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert here != default_folder("sqlite:///effects.db", {"HOME": "/home/ann"})


def test_how_a_store_is_connected_to_does_not_change_its_folder():
    environ = {"HOME": "/home/ann"}
    folder = default_folder("postgresql://app:p/w@db/effects", environ)
    assert folder == default_folder(
        "postgresql://db/effects?sslmode=require&password=other", environ
    )


def test_an_outcome_that_the_store_knows_nothing_of_is_left_to_a_person(store, spool, caplog):
    """The wrong store, or one that was restored from before: to throw the outcome away would
    lose what happened.
    """
    unwritten(store, spool)
    (file,) = spool.iterdir()
    another = Guard(MemoryStore(), cache=0, spool=spool)

    assert another.spool.settle() == Settled(written=0, attested=0, left=0)
    (left,) = spool.iterdir()
    assert left == file.with_suffix(".unknown")
    assert "knows nothing of" in caplog.text


def test_what_is_kept_says_what_it_is(store, spool):
    unwritten(store, spool)
    (file,) = spool.iterdir()
    kept = json.loads(file.read_text())

    assert (kept["version"], kept["write"], kept["epoch"]) == (1, "Complete", 1)


def test_an_earlier_process_left_something(store, spool, monkeypatch):
    unwritten(store, spool)
    monkeypatch.undo()
    later = Guard(store, cache=0, spool=spool)

    later.spool._thread.join()
    assert later.counts() == {State.COMPLETED: 1}


def test_the_background_goes_on_until_the_store_answers(store, spool, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "effectonce")
    monkeypatch.undo()
    monkeypatch.setattr("effectonce.recovery.spool.FIRST_S", 0.001)
    monkeypatch.setattr("effectonce.recovery.spool.MAX_S", 0.001)
    guard = Guard(store, cache=0, spool=spool)
    pay = tool(guard, named("pay", lambda: "receipt"), retry=SOON)
    store.fail(ops.Complete, times=100)
    with guard.step("chat", "pay"):
        assert pay() == "receipt"

    assert "is kept in" in caplog.text
    guard.spool._thread.join()
    assert guard.counts() == {State.COMPLETED: 1}


def test_what_is_kept_is_sealed_as_in_the_store(store, spool, caplog):
    def guard_with(keyring):
        return Guard(store, cache=0, spool=spool, keyring=keyring, secret=b"secret")

    ring = Keyring({"one": bytes(32)})
    guard = guard_with(ring)
    pay = tool(guard, named("pay", lambda: "receipt"), retry=SOON)
    store.fail(ops.Complete, times=10_000)
    with guard.step("chat", "pay"):
        pay()
    store.faults.clear()
    (file,) = spool.iterdir()
    content = file.read_bytes()
    assert b"receipt" not in content
    assert b"receipt" not in base64.b64decode(json.loads(content)["outcome"])

    without_the_key = guard_with(Keyring({"two": bytes(32)})).spool
    for _ in range(2):
        assert without_the_key.settle() == Settled(written=0, attested=0, left=1)
    assert caplog.text.count("waits for a process that can open it") == 1
    assert guard.spool.settle().written == 1
    with guard.step("chat", "pay"):
        assert pay() == "receipt"


def test_calls_of_one_effect_that_come_to_the_same_end_leave_one_file(store, spool, clock):
    guard, pay, _ = unwritten(store, spool, downstream="key")
    for _ in range(3):
        clock.advance(1000)
        store.fail(ops.Complete, times=10_000)
        with guard.step("chat", "pay"):
            assert not guard.call(pay, {}).recorded
        store.faults.clear()

    assert guard.spool.waiting() == 1
    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)


def test_calls_of_one_effect_that_come_to_other_ends_leave_both(store, spool, clock):
    results = iter(["first", "second"])
    guard, pay, _ = unwritten(store, spool, lambda: next(results), downstream="key")
    clock.advance(1000)
    store.fail(ops.Complete, times=10_000)
    with guard.step("chat", "pay"):
        guard.call(pay, {})
    store.faults.clear()

    assert guard.spool.waiting() == 2
    assert guard.spool.settle() == Settled(written=1, attested=1, left=0)


class Small(MemoryStore):
    """Takes no outcome of more than 100 bytes, and counts what it refuses."""

    refused = 0

    def apply(self, op):
        if len(getattr(op, "outcome", b"")) > 100:
            self.refused += 1
            raise TooLarge("a value of 1 kB was refused")
        return super().apply(op)


def test_a_result_that_the_store_refuses_for_its_size_is_asked_once_and_recorded_as_done(
    spool, caplog
):
    store = Small()
    guard = Guard(store, cache=0, spool=spool)
    pay = tool(guard, named("pay", lambda: "x" * 1000), retry=Retry(attempts=3, deadline_s=60))
    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})
    assert (outcome.value, outcome.recorded, store.refused) == ("x" * 1000, False, 1)

    assert guard.spool.settle() == Settled(written=1, attested=0, left=0)
    assert guard.spool.settle() == Settled(written=0, attested=0, left=0)

    assert store.refused == 2
    with (
        guard.step("chat", "pay"),
        pytest.raises(ResultUnavailable, match="too large for the store"),
    ):
        pay()
    kept = guard.health().findings[-1]
    assert "1 are recorded without their results" in kept.found
    assert str(spool) in kept.advice
    (left,) = spool.glob("*.toolarge")
    assert b"version" in left.read_bytes()
    assert "too large for the store" in caplog.text


def test_a_claim_that_the_store_refuses_for_its_size_says_so_and_is_not_to_be_repeated():
    class Refuses(MemoryStore):
        def apply(self, op):
            if isinstance(op, ops.Claim):
                raise TooLarge("a value of 1 GB was refused")
            return super().apply(op)

    guard = Guard(Refuses(), cache=0)
    pay = tool(guard, named("pay", lambda: 1))

    with (
        guard.step("chat", "pay"),
        pytest.raises(StoreUnavailable, match="1 GB was refused") as refused,
    ):
        pay()
    assert not refused.value.retriable
    assert "Return or pass less" in refused.value.as_model_error()["corrective_action"]
