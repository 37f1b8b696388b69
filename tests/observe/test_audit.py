"""The audit: what was changed or removed is found and located, whatever the store; a killed
process is not taken for a thief.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from effectonce import ContractViolation, Guard, InDoubt, Keyring, StoreUnavailable
from effectonce._core.ops import ListCells, ReadCell, Together, WriteCell
from effectonce.observe import Audit, Event
from effectonce.observe.audit import BATCHES, HEADS
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from tests.observe.helpers import QUICK
from tests.servers import redis

ROOT = Path(__file__).parent.parent.parent
SECRET = b"s" * 32


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def store(request, tmp_path):
    match request.param:
        case "memory":
            opened = MemoryStore()
        case "sqlite":
            opened = SqliteStore(tmp_path / "effects.db")
        case "postgres":
            opened = PostgresStore(request.getfixturevalue("postgres").emptied())
        case _:
            opened = RedisStore(redis.emptied(redis.server()).url)
    yield opened
    opened.close()


def happened(number=1, **data):
    return Event(name="completed", at=1_000.0 + number, tool="pay", **data)


def written(store, entries=3, batches=2, secret=SECRET, **settings):
    """An audit with one stream of some batches."""
    audit = Audit(store, secret=secret, **settings)
    for n in range(batches * entries):
        audit(happened(n))
        if n % entries == entries - 1:
            assert audit.flush()
    return audit


def test_an_entry_with_half_a_character_takes_no_other_along():
    audit = Audit(MemoryStore(), flush_s=1000)
    audit(happened(1))
    audit(happened(2, reason="caf\udce9"))
    audit(happened(3, dependency="é"))

    assert audit.flush()
    assert [(e.reason, e.dependency) for e in audit.entries(event="completed")] == [
        ("", ""),
        ("caf?", ""),
        ("", "é"),
    ]
    assert audit.verify().ok


def cells(store, prefix=BATCHES):
    return dict(store.apply(ListCells(prefix, limit=1000)))


def overwrite(store, name, value):
    seen = store.apply(ReadCell(name)).revision
    assert store.apply(WriteCell(name, seen, value, 1e9, listed=True)) is None


def remove(store, name):
    """A cell whose time is over at once is gone."""
    seen = store.apply(ReadCell(name)).revision
    assert store.apply(WriteCell(name, seen, b"", 0.0, listed=True)) is None
    assert name not in cells(store, name[:-1])


def found(audit, **expect):
    return [(flaw.what, flaw.batch, flaw.entry) for flaw in audit.verify(**expect).flaws]


# ---------------------------------------------------------------- what was written is there


def test_what_was_written_reads_as_it_was_and_verifies(store):
    audit = written(store)

    entries = audit.entries()

    assert [(entry.number, entry.event) for entry in entries if entry.event == "completed"] == [
        (n, "completed") for n in range(2, 8)
    ]
    verified = audit.verify()
    assert verified.ok
    assert (verified.entries, verified.streams[0].batches, verified.streams[0].closed) == (
        7,
        2,
        False,
    )


def test_a_stream_that_is_closed_says_so(store):
    audit = written(store)
    audit.close()
    (stream,) = audit.verify().streams
    assert stream.closed

    audit(happened())
    audit.flush()
    assert sorted(stream.closed for stream in audit.verify().streams) == [False, True]


def test_several_processes_have_one_audit(store):
    first, second = written(store), written(store)
    assert first.verify().ok
    assert len(first.verify().streams) == 2
    assert len(second.entries(event="completed")) == 12


# ---------------------------------------------------------------- what was changed is found


def say_something_else(store):
    name, value = list(cells(store).items())[1]
    at = value.index(b"pay")
    overwrite(store, name, value[:at] + b"say" + value[at + 3 :])


def remove_batches(store, *positions):
    names = list(cells(store))
    for position in positions:
        remove(store, names[position])


@pytest.mark.parametrize(
    ("damage", "flaw"),
    [
        (say_something_else, ("changed", 1, 5)),
        (
            lambda store: overwrite(store, list(cells(store))[1], b"nothing of ours"),
            ("unreadable", 1, None),
        ),
        (lambda store: remove_batches(store, 1, 2), ("missing", 1, None)),
        (lambda store: remove_batches(store, 0), ("missing", 0, None)),
        (lambda store: remove_batches(store, -1), ("cut", 3, None)),
        (lambda store: remove_batches(store, 0, 1, 2, 3), ("removed", None, None)),
    ],
    ids=["an entry", "unreadable", "the middle", "the beginning", "the end", "a whole stream"],
)
def test_what_was_changed_or_removed_is_found_and_located(store, damage, flaw):
    audit = written(store, batches=4)

    damage(store)

    assert found(audit) == [flaw]


def test_a_gap_of_several_batches_is_told_as_one():
    audit = written(MemoryStore(), batches=4)
    remove_batches(audit._store, 1, 2)

    assert "batches 1 to 2" in audit.verify().flaws[0].found


def test_a_batch_that_was_made_anew_without_the_secret_is_found(store):
    audit = written(store)
    forger = written(MemoryStore(), secret=b"another")
    theirs = list(cells(forger._store).values())[1].replace(
        forger.stream.encode(), audit.stream.encode()
    )
    overwrite(store, list(cells(store))[1], theirs)
    assert {("changed", 1, 5), ("changed", 1, None)} <= set(found(audit))


def test_what_a_batch_says_about_itself_cannot_be_changed(store):
    import msgspec

    from effectonce.observe._hash_chain import EntryBatch

    audit = written(store)
    name, value = list(cells(store).items())[1]
    batch = msgspec.msgpack.decode(value, type=EntryBatch)
    overwrite(store, name, msgspec.msgpack.encode(msgspec.structs.replace(batch, closed=True)))
    assert found(audit) == [("changed", 1, None)]


def test_a_head_that_is_gone_put_back_or_changed_is_found(store):
    audit = written(store, batches=2)
    (name,) = cells(store, HEADS)
    old = cells(store, HEADS)[name]
    audit(happened())
    audit.flush()
    audit(happened())
    audit.flush()
    new = cells(store, HEADS)[name]

    overwrite(store, name, old)
    assert found(audit) == [("changed", None, None)]
    overwrite(store, name, new[:-1] + bytes([new[-1] ^ 1]))
    assert found(audit) == [("changed", None, None)]
    overwrite(store, name, b"")
    assert found(audit) == [("unreadable", None, None)]
    remove(store, name)
    assert found(audit) == [("removed", None, None)]


def test_a_whole_stream_that_is_gone_head_and_all_was_seen_by_a_later_one(store):
    first = written(store)
    later = written(store)
    for name in (*cells(store), *cells(store, HEADS)):
        if first.stream in name:
            remove(store, name)
    (flaw,) = later.verify().flaws
    assert (flaw.what, flaw.stream) == ("removed", first.stream)


def test_an_end_that_is_cut_off_head_and_all_was_seen_by_a_later_one(store):
    first = written(store, batches=2)
    old = cells(store, HEADS)[HEADS + first.stream]
    first(happened())
    first.flush()
    later = written(store)

    overwrite(store, HEADS + first.stream, old)
    remove(store, f"{BATCHES}{first.stream}/00000002")

    (flaw,) = later.verify().flaws
    assert (flaw.what, flaw.stream, flaw.entry) == ("cut", first.stream, 8)


def test_a_chain_that_was_made_anew_with_the_secret_does_not_fit_what_is_kept_elsewhere(store):
    audit = written(store, secret=b"")
    line = audit.head()
    audit(happened())
    audit.flush()
    assert audit.verify(expect=line).ok

    for name in (*cells(store), *cells(store, HEADS)):
        remove(store, name)
    forged = written(store, secret=b"")
    assert forged.verify().ok
    (flaw,) = forged.verify(expect=line).flaws
    assert (flaw.what, flaw.stream) == ("removed", audit.stream)


def test_a_rewritten_entry_does_not_fit_what_is_kept_elsewhere():
    store = MemoryStore()
    audit = written(store, secret=b"")
    stream, number, mark = audit.head().split(":")
    assert [what for what, _, _ in found(audit, expect=f"{stream}:{number}:{'0' * len(mark)}")] == [
        "changed"
    ]
    assert [what for what, _, _ in found(audit, expect=f"{stream}:{int(number) + 1}:{mark}")] == [
        "cut"
    ]
    with pytest.raises(ContractViolation, match="head"):
        audit.verify(expect="nothing of ours")


@pytest.mark.parametrize("writes", [1, 3])
def test_an_audit_that_is_being_written_verifies(writes):
    class Busy(MemoryStore):
        others, left = (), 0  # who writes while somebody reads, and how often

        def apply(self, op, /):
            reply = super().apply(op)
            if isinstance(op, ListCells | ReadCell) and self.left:
                left, self.left = self.left, 0
                for other in self.others * writes:
                    other(happened())
                    assert other.flush()
                self.left = left - 1
            return reply

    store = Busy()
    first, second = written(store), written(store)
    store.others = (first, second, Audit(store, secret=SECRET))
    for store.left in range(9):
        verified = Audit(store, secret=SECRET).verify()
        assert verified.flaws == ()
    assert first.verify().ok


@pytest.mark.parametrize("noting", ["head", "new"])
@pytest.mark.parametrize("during", list(itertools.combinations(range(1, 9), 2)), ids=str)
def test_what_others_note_of_each_other_while_somebody_verifies_is_no_flaw(noting, during):
    class Busy(MemoryStore):
        reads, act = 0, None  # what others do while somebody reads

        def apply(self, op, /):
            reply = super().apply(op)
            if self.act is not None and isinstance(op, ListCells | ReadCell):
                self.reads += 1
                if self.reads in during:
                    act, self.act = self.act, None
                    act()
                    self.act = act
            return reply

    store = Busy()
    one, two = written(store), written(store)

    def others():
        noted = Audit(store, secret=SECRET) if noting == "new" else one
        for audit in (two, noted, one):
            audit(happened())
            assert audit.flush()
        noted.head()

    store.act = others
    assert Audit(store, secret=SECRET).verify().flaws == ()


# ---------------------------------------------------------------- time


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


def test_a_batch_and_its_head_are_one_write():
    applied = []

    class Counting(MemoryStore):
        def apply(self, op, /):
            applied.append(type(op).__name__)
            return super().apply(op)

    audit = written(Counting(), batches=3)
    assert applied == ["ListCells", "Together", "Together", "Together"]
    audit.close()


def test_what_is_past_its_time_is_not_missed():
    clock = Clock()
    store = MemoryStore(clock=clock)
    audit = Audit(store, keep=100_000.0, clock=clock)
    for _ in range(4):
        audit(happened())
        audit.flush()
        clock.now += 40_000

    assert len(cells(store)) == 2
    assert audit.verify().ok
    clock.now += 400_000
    later = Audit(store, keep=100_000.0, clock=clock)
    later(happened())
    later.flush()
    assert [stream.name for stream in later.verify().streams] == [later.stream]
    assert later.verify().ok


def test_a_head_that_ends_in_time_while_somebody_verifies_is_not_missed():
    clock = Clock()

    class Slow(MemoryStore):
        """The time of the last batch is over between two of its answers."""

        ends_at = None

        def apply(self, op, /):
            if self.ends_at is not None and isinstance(op, ListCells) and op.prefix == HEADS:
                clock.now = self.ends_at
            return super().apply(op)

    store = Slow(clock=clock)
    audit = Audit(store, keep=100_000.0, clock=clock)
    for _ in range(2):
        audit(happened())
        audit.flush()
    clock.now += 99_999
    store.ends_at = clock.now + 2

    assert audit.verify().ok


# ---------------------------------------------------------------- the buffer


class Away(MemoryStore):
    """A store that can be away, before or after it writes."""

    away = ""

    def apply(self, op, /):
        if self.away == "before":
            raise StoreUnavailable("away")
        reply = super().apply(op)
        if self.away == "after" and isinstance(op, Together):
            raise StoreUnavailable("its answer was lost")
        return reply


def test_nothing_is_lost_or_written_twice_while_the_store_is_away():
    store = Away()
    audit = Audit(store)
    for away in ("before", "after", "", "after", ""):
        store.away = away
        for n in range(3):
            audit(happened(n))
        assert audit.flush() is (away == "")

    assert len(audit.entries(event="completed")) == 15
    assert audit.verify().ok


def test_a_full_buffer_is_written_by_who_fills_it():
    audit = Audit(MemoryStore(), buffer=4, batch=4, flush_s=3600)
    for n in range(4):
        audit(happened(n))
    assert len(cells(audit._store)) == 2  # the first one takes the opening entry along
    audit.close()


def test_of_calls_that_fill_the_buffer_while_the_store_is_away_one_waits_for_it():
    asked = []

    class Slow(Away):
        def apply(self, op, /):
            asked.append(op)
            return super().apply(op)

    store = Slow()
    store.away = "before"
    audit = Audit(store, buffer=4, batch=4, flush_s=3600)
    for n in range(40):
        audit(happened(n))
    assert len(asked) == 1
    audit(happened(40, by="ann"))
    assert len(asked) == 2, "what a person decides is written before he is told, if it can be"

    store.away = ""
    assert audit.flush()
    for n in range(4):
        audit(happened(n))
    assert not audit._waiting, "it answers again: who fills the buffer writes it"
    assert audit.verify().ok
    audit.close()


class Watched(MemoryStore):
    """A store that says when a batch of the audit was written."""

    def __init__(self):
        super().__init__()
        self.wrote = threading.Event()

    def apply(self, op, /):
        reply = super().apply(op)
        if isinstance(op, Together):
            self.wrote.set()
        return reply


def test_whatever_a_store_raises_the_background_goes_on(caplog):
    raised = threading.Semaphore(0)

    class Odd(Watched):
        odd = True

        def apply(self, op, /):
            if self.odd:
                raised.release()
                raise ConnectionError("nobody has told it what a store raises")
            return super().apply(op)

    store = Odd()
    audit = Audit(store, flush_s=0.001)
    audit(happened())
    for _ in range(3):
        assert raised.acquire(timeout=30)
    store.odd = False

    assert store.wrote.wait(30)
    audit.close()
    assert audit.verify().ok
    assert caplog.text.count("the audit could not be written") == 1


def test_what_could_not_be_kept_is_counted(monkeypatch):
    from effectonce.observe import audit as module

    monkeypatch.setattr(module, "WAITING_MAX", 5)
    store = Away()
    store.away = "before"
    audit = Audit(store, buffer=5, batch=5)
    for n in range(8):
        audit(happened(n))
    store.away = ""
    assert audit.flush()
    (flaw,) = audit.verify().flaws
    assert flaw.what == "lost"
    assert flaw.found.startswith("3 entries")


def test_the_background_writes_without_being_asked():
    store = Watched()
    audit = Audit(store, flush_s=0.01)
    audit(happened())
    assert store.wrote.wait(30)
    audit.close()
    assert audit.verify().ok


def test_somebody_else_who_writes_under_our_name_does_not_make_us_lose_anything():
    store = MemoryStore()
    audit = written(store)
    store.apply(WriteCell(f"{BATCHES}{audit.stream}/00000002", 0, b"theirs", 1e9, listed=True))
    audit(happened())
    audit.flush()
    assert len(audit.entries(event="completed")) == 7
    assert [what for what, _, _ in found(audit)] == ["unreadable", "cut"]


@pytest.mark.parametrize(
    "settings",
    [{"keep": 0}, {"flush_s": 0}, {"batch": 0}, {"batch": 9, "buffer": 8}, {"buffer": 10**9}],
)
def test_an_audit_that_keeps_nothing_is_refused(settings):
    with pytest.raises(ContractViolation):
        Audit(MemoryStore(), **settings)


# ---------------------------------------------------------------- with a guard


def paid(guard):
    @guard.tool(kind="write", retry=QUICK)
    def pay(card: str, amount: int):
        if amount > 100:
            raise TimeoutError(card)
        return {"receipt": card}

    return pay


def test_the_story_of_one_effect_and_who_decided_it(store):
    guard = Guard(store, secret=SECRET)
    audit = Audit(guard, flush_s=3600)
    guard.observe(audit)
    pay = paid(guard)
    with guard.step("chat", "one"):
        pay("card-number", 1)
    with guard.step("chat", "two"), pytest.raises(InDoubt):
        pay("card-number", 500)
    (doubt,) = guard.in_doubt()
    guard.confirm(doubt.request.key, result=1, by="ana@bank", reason="it is in the ledger")

    assert len(cells(store)) == 1  # written before she was told, without being asked
    reference = f"eff_{doubt.request.key[-12:]}"
    story = audit.entries(effect=doubt.request.key)
    assert [entry.event for entry in story] == [
        "reserved",
        "dispatched",
        "attempt",
        "in_doubt",
        "dead_letter",
        "settled",
    ]
    assert {entry.effect for entry in story} == {reference}
    (decided,) = audit.entries(actor="ana@bank")
    assert (decided.reason, decided.outcome) == ("it is in the ledger", "happened")
    assert audit.entries(effect=reference, event="settled", since=decided.at) == [decided]
    assert audit.entries(since=decided.at + 1) == []
    assert len(audit.entries(tool="pay", limit=2)) == 2
    for value in cells(store).values():
        assert b"card-number" not in value
        assert doubt.request.key.encode() not in value
    guard.close()
    assert audit.verify().streams[0].closed


def test_a_keyring_seals_the_audit(store):
    ring = Keyring({"2026-11": b"n" * 32})
    guard = Guard(store, secret=SECRET, keyring=ring)
    audit = Audit(guard)
    guard.observe(audit)
    pay = paid(guard)
    with guard.step("chat", "one"):
        pay("card-number", 1)
    assert audit.entries(event="completed")
    assert audit.verify().ok
    assert all(b"pay" not in value for value in cells(store).values())

    blind = Audit(store, secret=SECRET, keyring=Keyring({"other": b"o" * 32}))
    assert [what for what, _, _ in found(blind)] == ["unreadable", "unreadable"]
    assert all(
        "a key that this process does not have" in flaw.found for flaw in blind.verify().flaws
    )
    guard.close()


def test_an_audit_verifies_across_a_rotation_for_whoever_has_both_keys():
    ring, store = Keyring({"old": b"o" * 32}), MemoryStore()
    audit = Audit(store, secret=SECRET, keyring=ring)
    audit(happened())
    audit.flush()
    ring.add("new", b"n" * 32, primary=True)
    audit(happened())
    audit.flush()

    assert audit.verify().ok
    later = Audit(store, secret=SECRET, keyring=Keyring({"new": b"n" * 32}))
    assert found(later) == [("unreadable", 0, None)]


def test_a_tool_in_a_transaction_does_not_wait_for_itself_to_be_audited(tmp_path):
    store = SqliteStore(tmp_path / "effects.db", busy_s=0.05)
    guard = Guard(store)
    audit = Audit(guard, flush_s=3600, buffer=2, batch=2)
    guard.observe(audit)
    flushed = []
    audit.flush = lambda: flushed.append(1) or Audit.flush(audit)

    @guard.tool(kind="read")
    def balance():
        return 1

    @guard.tool(kind="write", downstream="transaction")
    def pay():
        before = len(flushed)
        balance()
        balance()
        balance()
        return len(flushed) - before

    with guard.step("chat", "pay"):
        assert pay() == 0
    assert len(audit.entries(event="attempt")) == 4
    guard.close()


# ---------------------------------------------------------------- processes

WRITER = """
import sys
from effectonce import Guard
from effectonce.observe import Audit
url, end = sys.argv[1:]
guard = Guard(url, secret=b"s" * 32)
audit = Audit(guard, flush_s=3600)
guard.observe(audit)

@guard.tool(kind="idempotent_write")
def pay(n: int):
    return n

for n in range(20):
    with guard.step("chat", n):
        pay(n)
    if n % 5 == 4:
        audit.flush()
with guard.step("chat", "lost"):
    pay(99)
print("ready", flush=True)
if end == "killed":
    sys.stdin.read()
"""


def spawned(url, end):
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )


def test_a_killed_process_leaves_a_chain_that_fits_up_to_its_last_write(url):
    with spawned(url, "killed") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)

    guard = Guard(url, secret=SECRET)
    verified = Audit(guard).verify()
    assert verified.ok
    (stream,) = verified.streams
    assert not stream.closed
    assert stream.batches == 4
    assert len(Audit(guard).entries(event="completed", limit=None)) == 20
    guard.close()


def test_a_process_that_ends_writes_everything_and_closes_its_stream(url):
    with spawned(url, "ended") as process:
        assert process.stdout.read() == "ready\n"
    assert process.returncode == 0

    guard = Guard(url, secret=SECRET)
    verified = Audit(guard).verify()
    assert verified.ok
    assert verified.streams[0].closed
    assert len(Audit(guard).entries(event="completed", limit=None)) == 21
    guard.close()


def test_a_forked_child_writes_a_stream_of_its_own(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")
    audit = Audit(store, flush_s=3600)
    audit(happened(1))
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        try:
            audit(happened(2))
            os._exit(0 if audit.flush() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    audit.flush()
    assert len(audit.verify().streams) == 2
    assert len(audit.entries(event="completed")) == 2
    audit.close()
    store.close()


@pytest.mark.parametrize("does", ["close", "flush", "entries", "head"])
def test_a_child_that_was_forked_while_the_audit_was_written_does_not_wait_for_its_parent(does):
    class Held(MemoryStore):
        def apply(self, op, /):
            if isinstance(op, Together) and threading.current_thread().name == "writer":
                self.begun.set()
                self.go_on.wait()
            return super().apply(op)

    store = Held()
    store.begun, store.go_on = threading.Event(), threading.Event()
    audit = Audit(store, flush_s=3600)
    audit(happened(1))
    writer = threading.Thread(target=audit.flush, name="writer")
    writer.start()
    store.begun.wait()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        signal.alarm(20)  # a child that waits for a lock waits for ever
        try:
            getattr(audit, does)()
            os._exit(0)
        finally:
            os._exit(2)
    status = os.waitpid(pid, 0)[1]
    store.go_on.set()
    writer.join()

    assert os.waitstatus_to_exitcode(status) == 0
    assert audit.verify().ok
    assert len(audit.entries(event="completed")) == 1
