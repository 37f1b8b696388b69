"""Pages of a Redis store: what changes while they are made, and what takes more than one part."""

import pytest

from effectonce._core.ops import Claim, Complete
from effectonce._core.pages import Beside, Recent, Refer
from effectonce._core.record import State
from effectonce.stores.redis import RedisStore, lists, records
from effectonce.testing.conformance.bench import request

KEYS = [f"ab12cd34{n:020}{n:012}" for n in range(7)]


@pytest.fixture
def store(server):
    one = RedisStore(server.url)
    for key in KEYS:
        one.apply(Claim(request(key), "token", 60.0, dispatch=True))
    yield one
    one.close()


def test_keys_are_looked_at_a_part_at_a_time(store, monkeypatch):
    monkeypatch.setattr(lists, "SCANNED", "2")

    assert sorted(r.request.key for r in store.apply(Beside(KEYS[0], 99))) == KEYS
    for key in KEYS:
        assert [r.request.key for r in store.apply(Refer(key[-12:], beginning=key[:12]))] == [key]


def test_what_changes_while_a_page_is_made_is_not_shown_in_its_old_state(store, server):
    (record,) = store.apply(Recent(state=State.DISPATCHED, limit=1)).records
    key, sent = record.request.key, records.score(record)
    store.apply(Complete(key, "token", 1, b"done"))
    server.ask("ZADD", f"eo:{{{key[:2]}}}:s", str(sent), records.member(record.created_at, key))

    shown = [r.request.key for r in store.apply(Recent(state=State.DISPATCHED)).records]

    assert sorted(shown) == sorted(set(KEYS) - {key})
