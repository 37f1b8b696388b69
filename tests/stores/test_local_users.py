"""Another user of this machine, who may look at the files of a store."""

import fcntl
import os
import stat

import pytest

from effectonce import StoreUnavailable
from effectonce._core.ops import Find, ReadCell, WriteCell
from effectonce.stores.sqlite import SqliteStore, connection


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def used(path, **settings):
    store = SqliteStore(path, **settings)
    store.apply(WriteCell("cell", 0, b"value", 60.0))
    return store


@pytest.fixture(params=[0o022, 0o002, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_files_of_a_store_are_its_owners_alone(tmp_path):
    store = used(tmp_path / "effects.db")

    assert {file.name: oct(mode(file)) for file in tmp_path.iterdir()} == dict.fromkeys(
        ("effects.db", "effects.db-wal", "effects.db-shm", "effects.db-queue"), "0o600"
    )
    store.close()


@pytest.mark.usefixtures("umask")
def test_a_folder_that_its_owner_shares_with_a_group_shares_the_store(tmp_path):
    tmp_path.chmod(0o2770)
    store = used(tmp_path / "effects.db")

    assert {oct(mode(file)) for file in tmp_path.iterdir()} == {"0o660"}
    store.close()


def test_a_file_that_its_owner_lets_others_read_stays_so_and_its_queue_is_for_writers(tmp_path):
    """Whoever may open the queue may stand in it for ever."""
    used(tmp_path / "effects.db").close()
    (tmp_path / "effects.db").chmod(0o644)
    (tmp_path / "effects.db-queue").chmod(0o644)

    store = used(tmp_path / "effects.db")

    assert mode(tmp_path / "effects.db") == 0o644
    assert mode(tmp_path / "effects.db-queue") == 0o600
    advice = {finding.subject: finding.advice for finding in store.examine()}["access"]
    assert "chmod 640" in advice
    store.close()


def test_where_a_file_cannot_be_made_without_opening_it_it_is_opened(tmp_path, monkeypatch):
    """On macOS only root may make a file as a node."""

    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(connection.faults.os, "mknod", refused)
    used(tmp_path / "effects.db").close()

    assert mode(tmp_path / "effects.db") == 0o600


def test_a_link_in_place_of_the_queue_is_refused(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "effects.db-queue").symlink_to(precious)

    with pytest.raises(StoreUnavailable, match="-queue"):
        used(tmp_path / "effects.db")
    assert precious.read_text() == "mine"


def test_a_stranger_in_the_queue_does_not_stop_writers(tmp_path):
    """Standing in the queue is a courtesy; only the lock of the file counts, and a stranger does
    not have that.
    """
    store = used(tmp_path / "effects.db", busy_s=0.05)
    with (tmp_path / "effects.db-queue").open("rb") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        for _ in range(3):
            seen = store.apply(ReadCell("cell"))
            assert store.apply(WriteCell("cell", seen.revision, b"value", 60.0)) is None
    seen = store.apply(ReadCell("cell"))
    assert store.apply(WriteCell("cell", seen.revision, b"value", 60.0)) is None
    store.close()


def test_a_file_is_not_made_while_another_process_may_be_making_it(tmp_path):
    with (tmp_path / "effects.db-queue").open("w") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        store = SqliteStore(tmp_path / "effects.db", busy_s=0.05)
        with pytest.raises(StoreUnavailable, match="locked by another writer"):
            store.apply(Find("k"))
    assert store.apply(Find("k")) is None
    store.close()


def test_a_writer_that_holds_the_file_does(tmp_path):
    first, second = used(tmp_path / "effects.db"), SqliteStore(tmp_path / "effects.db", busy_s=0.05)
    second.apply(Find("k"))
    with first.transaction(), pytest.raises(StoreUnavailable, match="locked by another writer"):
        second.apply(WriteCell("other", 0, b"value", 60.0))
    assert second.apply(WriteCell("other", 0, b"value", 60.0)) is None
    first.close()
    second.close()
