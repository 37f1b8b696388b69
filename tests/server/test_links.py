"""A signed link: one person, one call, its very arguments, for a while."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from starlette.testclient import TestClient

from effectonce import ApprovalNeeded, Conflict, ContractViolation, Guard, NotApproved
from effectonce._core.ops import Search
from effectonce.dashboard import app
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.server.conftest import OURS
from tests.server.test_approvals import Till

BASE = "https://ops.example/effects"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def guard(tmp_path, clock):
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), secret=b"till")
    yield guard
    guard.close()


@pytest.fixture
def till(guard):
    return Till(guard)


@pytest.fixture
def stranger(guard):
    """A browser without a login."""
    dashboard = app(guard, access=lambda _: None)
    return TestClient(dashboard, headers=OURS, follow_redirects=False)


def link(till, **how):
    till.wish()
    (wish,) = till.guard.approvals.waiting()
    made = till.guard.approvals.link(wish.key, BASE, **{"approver": "ada", **how})
    assert wish.key not in made
    return made.removeprefix(BASE)


def changed(path, **query):
    parts = urlsplit(path)
    return f"{parts.path}?{urlencode({**dict(parse_qsl(parts.query)), **query})}"


def waits(till):
    return len(till.guard.approvals.waiting()) == 1


def assert_refused(till, stranger, path, status, said):
    """Neither a look nor an answer gets through, and the call goes on waiting."""
    answers = stranger.get(path), stranger.post(path, data={"act": "approve", "reason": "x"})
    assert [answer.status_code for answer in answers] == [status] * 2
    assert all(said in answer.text for answer in answers)
    assert not any("70000" in answer.text for answer in answers)
    assert waits(till)


def test_it_shows_the_call_and_decides_nothing(till, stranger):
    path = link(till)

    for method in ("GET", "HEAD", "GET"):
        answer = stranger.request(method, path)
        assert answer.status_code == 200
    assert "70000" in answer.text
    assert "agent-7" in answer.text
    assert "DE89" not in answer.text
    assert waits(till)


def test_its_approver_approves(till, stranger):
    path = link(till)

    answer = stranger.post(path, data={"act": "approve", "reason": "the parcel came back"})

    assert answer.status_code == 200
    assert "ada approved it" in answer.text
    assert [till.ask(), till.ask()] == ["refunded 70000"] * 2
    assert till.ledger == [("pay_2", 70_000)]


def test_its_approver_rejects(till, stranger):
    path = link(till)

    answer = stranger.post(path, data={"act": "reject", "reason": "no"})

    assert "rejected by ada" in answer.text
    with pytest.raises(NotApproved, match="rejected by ada"):
        till.ask()


def test_the_name_is_the_one_that_was_signed(till, stranger):
    path = link(till)

    stranger.post(path, data={"act": "approve", "reason": "yes", "approver": "eve", "by": "eve"})

    till.ask()
    (record,) = [r for r in till.guard.store.apply(Search()) if r.state == "completed"]
    assert [e.outcome.decode() for e in record.evidence if e.note == "approved"] == ["ada: yes"]


@pytest.mark.parametrize(
    "query",
    [
        {"approver": "eve"},
        {"until": "9999999999"},
        {"until": "soon"},
        {"fingerprint": "0" * 64},
        {"signature": "0" * 40},
        {"signature": ""},
        {"signature": "ä"},
    ],
    ids=str,
)
def test_a_link_that_was_changed_is_refused_before_anything_is_shown(till, stranger, query):
    path = changed(link(till), **query)

    assert_refused(till, stranger, path, 403, "This link is not valid")


def test_a_link_is_for_one_call(till, stranger, guard):
    path = link(till)
    with pytest.raises(ApprovalNeeded):
        till.ask("pay_9")
    (other,) = [w.key for w in guard.approvals.waiting() if w.arguments["payment"] == "pay_9"]
    named = f"eff_{other[-12:]}_{other[:12]}"
    moved = re.sub(r"eff_[0-9a-f]{12}_[0-9a-f]{12}", named, path)

    assert stranger.post(moved, data={"act": "approve", "reason": "x"}).status_code == 403
    assert len(guard.approvals.waiting()) == 2


def test_a_link_ends(till, stranger, clock):
    path = link(till, valid_s=60)
    clock.advance(61)

    assert_refused(till, stranger, path, 410, "This link has ended")


def test_a_link_is_for_the_arguments_that_were_asked_for(till, stranger):
    path = link(till)
    with pytest.raises(Conflict):
        till.ask(amount=7_000_000)

    assert_refused(till, stranger, path, 409, "other arguments")


def test_a_link_is_used_once(till, stranger):
    path = link(till)
    stranger.post(path, data={"act": "approve", "reason": "yes"})

    for act in ("approve", "reject"):
        again = stranger.post(path, data={"act": act, "reason": "once more"})
        assert again.status_code == 409
        assert "does not wait for approval any more" in again.text
    assert till.ask() == "refunded 70000"


def test_who_asked_does_not_approve_by_a_link(till, stranger):
    path = link(till, approver="agent-7")

    answer = stranger.post(path, data={"act": "approve", "reason": "I want it"})

    assert answer.status_code == 409
    assert "another person has to approve it" in answer.text
    assert waits(till)


@pytest.mark.parametrize("form", [{"act": "approve", "reason": " "}, {"reason": "x"}, {"act": "x"}])
def test_an_answer_without_a_reason_or_a_choice_decides_nothing(till, stranger, form):
    path = link(till)

    assert stranger.post(path, data=form).status_code == 422
    assert waits(till)


def test_no_other_page_is_opened_by_a_link(till, stranger):
    path = link(till)
    reference = re.search(r"eff_[0-9a-f]{12}_[0-9a-f]{12}", path)[0]
    query = urlsplit(path).query

    for page in ("/", "/approvals", f"/effects/{reference}"):
        assert stranger.get(f"{page}?{query}").status_code == 403


def test_a_guard_without_a_secret_makes_no_link(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'plain.db'}")

    with pytest.raises(ContractViolation, match="signed by the guard's secret"):
        guard.approvals.link("key", BASE, approver="ada")
    guard.close()


def test_a_guard_with_another_secret_does_not_take_it(till, tmp_path, clock):
    path = link(till)
    for secret in (b"another", b""):
        other = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), secret=secret)
        pages = TestClient(app(other, access=lambda _: None), headers=OURS)
        assert pages.get(path).status_code == 403
        other.close()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"approver": " "}, "name"),
        ({"valid_s": 0}, "valid_s"),
        ({"valid_s": float("inf")}, "valid_s"),
        ({"base_url": "ops.example"}, "base_url"),
        ({"key": "unknown"}, "no such call waits"),
    ],
)
def test_a_link_that_cannot_be_meant_is_refused(till, how, why):
    till.wish()
    (wish,) = till.guard.approvals.waiting()
    given = {"key": wish.key, "base_url": BASE, "approver": "ada"} | how

    with pytest.raises(ContractViolation, match=why):
        till.guard.approvals.link(**given)
