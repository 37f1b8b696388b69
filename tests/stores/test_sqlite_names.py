"""One SQLite file that is opened by several names."""

import fcntl
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce.stores.sqlite import SqliteStore, connection, forks
from effectonce.testing.conformance.bench import request
from tests.stores.helpers import guarded

CLAIM = ops.Claim(request("effect"), "t", 30, dispatch=True)


@pytest.fixture
def opened():
    """Opens stores that are closed afterwards."""
    stores = []

    def opening(path, **options):
        stores.append(SqliteStore(path, **options))
        return stores[-1]

    yield opening
    for store in stores:
        store.close()


@pytest.fixture
def linked(tmp_path):
    """A file in one folder, and a link to it in another."""
    (tmp_path / "data").mkdir()
    (tmp_path / "app").mkdir()
    target, link = tmp_path / "data" / "effects.db", tmp_path / "app" / "store.db"
    link.symlink_to(target)
    return target, link


def test_a_store_works_by_the_name_of_a_link(linked, opened):
    target, link = linked
    assert isinstance(opened(target).apply(CLAIM), ops.Held)

    calls = []
    _, pay = guarded(opened(link), calls)

    assert [pay(), pay()] == [{"receipt": 1}] * 2
    assert opened(link).apply(ops.Find("effect")).state == "dispatched"
    assert opened(link).examine()
    assert [file.name for file in link.parent.iterdir()] == ["store.db"], (
        "its log and its queue stand beside the file"
    )


def test_two_names_of_one_file_share_one_queue(linked, opened):
    target, link = linked
    by_name, by_link = opened(target), opened(link, busy_s=0.1)
    by_name.apply(ops.Tally())

    with by_name.transaction(), pytest.raises(StoreUnavailable, match="locked by another writer"):
        by_link.apply(CLAIM)

    assert isinstance(by_link.apply(CLAIM), ops.Held)


def test_two_processes_that_use_two_names_see_each_others_claims(linked, opened):
    target, link = linked
    opened(target).apply(CLAIM)
    script = (
        "import sys; from effectonce.stores.sqlite import SqliteStore; from effectonce._core import"
        " ops;store = SqliteStore(sys.argv[1]); print(store.apply(ops.Find('effect')).token);"
        " store.close()"
    )

    for name in (str(link), os.path.relpath(link, link.parent)):
        found = subprocess.run(
            [sys.executable, "-c", script, name],
            cwd=link.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == "t"


def test_a_link_that_leads_nowhere_is_refused(linked, opened):
    target, link = linked
    with pytest.raises(
        StoreUnavailable,
        match=rf"{link} is a link to {target}, which is not there\. Nothing was sent",
    ):
        opened(link).apply(CLAIM)
    assert not target.exists()


def test_a_link_that_is_put_to_another_file_is_noticed_before_the_next_claim(
    linked, opened, tmp_path
):
    target, link = linked
    opened(target).apply(ops.Tally())
    opened(tmp_path / "other.db").apply(ops.Tally())
    store = opened(link)
    store.apply(ops.Tally())

    link.unlink()
    link.symlink_to(tmp_path / "other.db")

    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        store.apply(CLAIM)


def test_a_file_with_two_hard_links_is_refused(tmp_path, opened):
    """SQLite keeps its log beside the name: by another name it would not see what was written."""
    store = opened(tmp_path / "effects.db")
    store.apply(CLAIM)
    store.close()
    os.link(tmp_path / "effects.db", tmp_path / "again.db")

    for name in ("effects.db", "again.db"):
        with pytest.raises(StoreUnavailable, match="2 names"):
            opened(tmp_path / name).apply(ops.Tally())


def test_a_forked_child_may_not_open_by_a_link_what_its_parent_had_open(linked, opened):
    target, link = linked
    parents = opened(target)
    parents.apply(ops.Tally())
    connection = parents._connect()
    try:
        forks._INHERITED.append(connection)
        with pytest.raises(StoreUnavailable, match="when this process was forked"):
            opened(link).apply(ops.Tally())
    finally:
        forks._INHERITED.remove(connection)


def test_a_process_that_waits_long_for_its_turn_looks_less_often(tmp_path, monkeypatch):
    """64 that look all the time leave no processor to the one that writes."""
    pauses = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses))
    store = SqliteStore(tmp_path / "effects.db", busy_s=5.0)
    store.apply(ops.ReadCell("a cell"))
    with (tmp_path / "effects.db-queue").open() as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        monkeypatch.setattr(connection, "time", clock)
        store.apply(ops.WriteCell("a cell", 0, b"value", 60.0, listed=False))  # without its turn
    store.close()

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (connection.POLL_S, connection.POLL_MAX_S)
    assert len(pauses) < 1000
