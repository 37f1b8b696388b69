"""A process that forks while it has a SQLite file open: what each of the two may rely on
afterwards.
"""

import subprocess
import sys
import textwrap
import threading

import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce.stores.sqlite import SqliteStore, forks
from effectonce.testing.conformance.bench import request

WORKER = """
    import os, subprocess, sys
    from effectonce import Guard, StoreUnavailable

    guard = Guard(f"sqlite:///{sys.argv[1]}")

    @guard.tool(kind="write")
    def pay(invoice: str):
        print("paid", invoice, flush=True)

    def work(*invoices):
        for invoice in invoices:
            with guard.step("chat", invoice):
                pay(invoice)
"""


def said(tmp_path, script, *arguments):
    """What a process prints that does this."""
    file = tmp_path / "work.py"
    file.write_text(textwrap.dedent(WORKER) + textwrap.dedent(script))
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        file,
        tmp_path / "effects.db",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "effects.db", busy_s=0.05)
    yield store
    store.close()


# ---------------------------------------------------------------- real ones


ORPHAN = """
    if sys.argv[2:] == ["look"]:
        work("a", "b", "c")
        sys.exit()
    work("a")
    (worked, tell_parent), (closed, tell_child) = os.pipe(), os.pipe()
    if os.fork() != 0:
        os.read(worked, 1)
        guard.close()
        os.write(tell_child, b".")
        os.wait()
        sys.exit()
    work("b")
    os.write(tell_parent, b".")
    os.read(closed, 1)
    work("c")
    subprocess.run([sys.executable, *sys.argv, "look"], check=True)
"""


def test_what_a_child_wrote_stays_when_its_parent_closes_the_file(tmp_path):
    """SQLite deletes its log when the last process closes the file, and must not take the parent
    for the last one.
    """
    assert said(tmp_path, ORPHAN) == "paid a\npaid b\npaid c\n"


IN_A_TRANSACTION = """
    with guard.store.transaction():
        if os.fork() == 0:
            for _ in range(2):
                try:
                    work("a")
                except StoreUnavailable as error:
                    print("refused", "Nothing was sent" in str(error), "was forked" in str(error), flush=True)
            os._exit(0)
        os.wait()
    work("a")
"""


def test_a_child_that_was_forked_inside_a_transaction_sends_nothing(tmp_path):
    assert said(tmp_path, IN_A_TRANSACTION) == "refused True True\n" * 2 + "paid a\n"


# ---------------------------------------------------------------- without one


def test_nothing_is_open_while_a_process_forks(store):
    claim = ops.Claim(request("effect"), "t", 30, dispatch=True)
    store.apply(claim)
    with store.transaction():
        pass

    forks.before()
    others = threading.Thread(target=store.apply, args=(claim,))
    others.start()
    open_then = list(store._connections)
    forks.after_in_parent()

    others.join()
    assert open_then == []
    assert store.apply(claim) == ops.Held(1, 1, dispatched=True)


def test_a_child_neither_uses_nor_closes_what_is_open_all_the_same(store):
    store.apply(ops.Tally())
    parents = store._connect()

    with store._lock:  # a signal handler that forks, in the middle of a write
        forks.before()
        forks.after_in_parent()
    assert store._connect() is parents
    forks.after_in_child()

    with pytest.raises(StoreUnavailable, match="when this process was forked"):
        store.apply(ops.Tally())
    assert parents.db.execute("SELECT 1").fetchone() == (1,)
    parents.db.close()  # its place in the queue was given up


@pytest.mark.parametrize("lock", ["_lock", "_opening"])
def test_a_fork_does_not_wait_for_ever_for_whoever_is_at_work(store, lock):
    store.apply(ops.Tally())
    taken, done = threading.Event(), threading.Event()

    def work():
        with getattr(store, lock):
            taken.set()
            done.wait(30)

    worker = threading.Thread(target=work)
    worker.start()
    taken.wait()
    forks.before()
    forks.after_in_parent()
    done.set()
    worker.join()

    assert len(store._connections) == 1
    assert store.apply(ops.Tally()) == {}
