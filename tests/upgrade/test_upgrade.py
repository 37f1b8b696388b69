"""Stores that an earlier release wrote, and this one's own: today's code reads them, replays what is
known, and settles what is not.
"""

import pytest

import effectonce
from effectonce import Guard, Rejected
from effectonce._core.record import State
from tests.servers.redis import Server
from tests.upgrade import shop
from tests.upgrade.stores import FIXTURES, VERSIONS, load_postgres, load_redis, load_sqlite

HOW = {"by": "ada", "reason": "ticket 812"}
EVERYTHING = {"carrier", "airline", "post office"}


def test_the_stores_of_this_version_are_kept():
    """`python -m tests.upgrade.stores` writes them."""
    folder = FIXTURES / effectonce.__version__

    assert {path.name for path in folder.glob("*")} == {
        "effects.sqlite",
        "effects.sql",
        "effects.redis.jsonl",
    }


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("upgrade") / "redis", fsync="always")
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path, version):
    folder = FIXTURES / version
    match request.param:
        case "sqlite":
            return load_sqlite(folder, tmp_path)
        case "postgres":
            return load_postgres(folder, request.getfixturevalue("postgres"))
        case "redis":
            return load_redis(folder, request.getfixturevalue("redis_server"))


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def guard(url, monkeypatch):
    """The same shop, in a new process of today, with everything in reach again."""
    monkeypatch.setattr(shop, "OPEN", EVERYTHING)
    guard = shop.made(url)
    yield guard
    guard.close()


def called(guard, tool, scope, **arguments):
    with guard.step(scope, tool, asked_by="agent-7"):
        return guard.call(tool, arguments)


def in_doubt(guard, tool):
    return [r.request.key for r in guard.in_doubt() if r.request.terms.tool == tool]


def test_the_store_is_fit(guard):
    assert guard.health().ok
    assert guard.counts()[State.COMPLETED] >= 8


def test_what_happened_is_replayed(guard):
    done = called(guard, "refund", "chat-1", payment_id="pay_1", amount=1401, reason="other words")

    assert done.replayed
    assert done.unwrap() == {"receipt": 90071992547409931, "of": "pay_1"}


def test_what_was_refused_stays_refused(guard):
    refused = called(guard, "refund", "chat-bad", payment_id="pay_bad", amount=1600)

    assert refused.replayed
    with pytest.raises((Rejected, effectonce.EffectOnceError), match="refunded already"):
        refused.unwrap()


def test_what_was_sent_and_abandoned_is_sent_again_under_its_key(guard):
    assert called(guard, "book", "trip-12A", seat="12A").unwrap() == "booked 12A"


def test_doubts_are_confirmed_refuted_retried_and_asked_about(guard):
    first, second, *_ = in_doubt(guard, "mail")
    (booked,), (posted,) = in_doubt(guard, "book"), in_doubt(guard, "post")

    guard.confirm(first, result="message 12", **HOW)
    guard.refute(second, **HOW)
    guard.retry(booked, **HOW)
    guard.reconcile()

    states = [guard.find(key).state for key in (first, second, booked, posted)]
    assert states == [State.COMPLETED, State.FAILED, State.CLAIMED, State.COMPLETED]
    assert called(guard, "book", "trip-12B", seat="12B").unwrap() == "booked 12B"


def test_letters_are_redriven_and_discarded(guard):
    first, second, third = [
        letter.key
        for letter in guard.dead_letters.list(tool="ship")
        if letter.record.request.scope.startswith("chat-ship")
    ]

    done = [guard.dead_letters.redrive(key, **HOW) for key in (first, second)]
    guard.dead_letters.discard(third, **HOW)

    assert [each.what for each in done] == ["done", "done"]
    assert guard.find(first).state is State.COMPLETED


def test_what_waits_for_a_person_is_approved_and_rejected(guard):
    first, second, *_ = guard.approvals.waiting(tool="refund")

    guard.approvals.approve(first.key, **HOW)
    guard.approvals.reject(second.key, **HOW)

    number = guard.find(first.key).request.scope.rpartition("-")[2]
    arguments = {"payment_id": f"pay_large_{number}", "amount": 70_000}
    assert called(guard, "refund", f"chat-large-{number}", **arguments).unwrap()["receipt"]


def test_runs_go_on_and_ended_ones_are_replayed(guard):
    ended = guard.call("deliver", {"order": "pick up 1", "customer": "ada"})
    resumed = guard.call("deliver", {"order": "o-1", "customer": "ada"})

    assert ended.replayed
    assert (ended.unwrap(), resumed.unwrap()) == ("mailed to ada", "mailed to ada")


def test_a_run_that_waits_for_a_doubt_goes_on_when_it_is_settled(guard):
    (key,) = [
        record.request.key
        for record in guard.in_doubt()
        if record.request.terms.tool == "mail" and "deliver" in str(record.request.scope)
    ]

    guard.confirm(key, result="mailed", **HOW)

    again = guard.call("deliver", {"order": "pick up 2", "customer": "lost"})
    assert again.unwrap() == "mailed"


def test_what_was_spent_still_counts(guard):
    (allowance,) = guard.allowances.list()

    assert (allowance.allowance, allowance.spent) == ("refunds", 1400 + 1401 + 1402)


def test_effects_are_found_and_undone(guard):
    (found,) = guard.search("pay_1")

    undone = guard.undo(found.request.key, **HOW)

    assert undone.unwrap() == "pay_1 is taken back"


def test_a_sweep_and_a_new_call_work_beside_what_is_there(guard):
    guard.sweep()
    new = called(guard, "refund", "chat-new", payment_id="pay_new", amount=10)

    assert not new.replayed
    assert new.unwrap()["of"] == "pay_new"


def test_a_guard_without_the_shop_reads_all_of_it(url):
    plain = Guard(url)

    assert sum(plain.counts().values()) >= 25
    plain.close()
