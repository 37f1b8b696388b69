"""Calls that wait for a person, in the dashboard: who sees what, and who decides."""

import contextlib
import html
import re

import pytest

from effectonce import Approval, ApprovalNeeded, Conflict, Guard, NotApproved
from effectonce._core.effect_ref import reference_of
from effectonce.dashboard import Access
from effectonce.workflows import Run
from tests.server.conftest import browser

SIGNED = {"reason": "the parcel came back"}


class Till:
    """A refund that waits for a person; what really happened is in `ledger`."""

    def __init__(self, guard):
        self.guard, self.ledger = guard, []

        @guard.tool(
            kind="write", redact=["iban"], identity=["payment"], wait_s=0,
            approval=Approval(when=lambda amount: amount > 1000, four_eyes=True),
        )  # fmt: skip
        def refund(payment: str, amount: int, iban: str = "", note: str = "") -> str:
            self.ledger.append((payment, amount))
            return f"refunded {amount}"

        self.refund = refund

    def ask(self, payment="pay_2", amount=70_000, tenant=None, asked_by="agent-7", note="late"):
        with self.guard.step("chat", payment, tenant=tenant, asked_by=asked_by):
            return self.refund(payment, amount, "DE89370400440532013000", note)

    def wish(self, **asked):
        """The reference of a call that waits."""
        with pytest.raises(ApprovalNeeded):
            self.ask(**asked)
        return self.guard.approvals.waiting(limit=1000)[-1].effect.reference


@pytest.fixture
def guard(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}", secret=b"till")
    yield guard
    guard.close()


@pytest.fixture
def till(guard):
    return Till(guard)


def form_of(pages, reference):
    """What the form on the page of an effect sends along."""
    text = pages.get(f"/effects/{reference}").text
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', text))


def decide(pages, reference, act, **form):
    given = {**SIGNED, **form_of(pages, reference), **form}
    return pages.post(f"/effects/{reference}/{act}", data=given)


def text_of(answer):
    return html.unescape(re.sub(r"<[^>]+>", " ", answer.text))


def test_what_waits_is_listed_with_who_asks_and_for_what(till, operator):
    reference = till.wish()

    page = operator.get("/approvals").text
    assert reference in page
    assert "agent-7" in page
    assert "amount=70000" in page
    assert "DE89" not in page
    overview = " ".join(text_of(operator.get("/")).split())
    assert "1 waiting for approval" in overview
    assert "0 given up" in overview


def test_nothing_waits(till, viewer):
    assert "Nothing waits for approval." in viewer.get("/approvals").text


def test_the_page_says_what_is_new_about_it(till, operator):
    till.ask("pay_1", 900)
    reference = till.wish()

    page = " ".join(text_of(operator.get(f"/effects/{reference}")).split())
    assert "needs approval It waits for a person to approve it. Nothing was sent." in page
    assert "amount 70000 900" in page
    assert 'note "late" the same' in page
    assert "DE89" not in page


def test_an_approved_call_is_sent_once_by_the_next_call(till, operator, guard):
    reference = till.wish()

    answer = decide(operator, reference, "approve")

    assert answer.status_code == 303
    assert "Written down: it may be sent." in operator.get(answer.headers["location"]).text
    assert till.ledger == []
    assert [till.ask(), till.ask()] == ["refunded 70000"] * 2
    assert till.ledger == [("pay_2", 70_000)]
    page = text_of(operator.get(f"/effects/{reference}"))
    assert "approved by ada: the parcel came back" in page


def test_a_rejected_call_is_never_sent(till, operator):
    reference = till.wish()

    answer = decide(operator, reference, "reject", reason="not before Friday")

    assert answer.status_code == 303
    with pytest.raises(NotApproved, match=r"rejected by ada .*: not before Friday"):
        till.ask()
    assert "rejected by ada" in operator.get(f"/effects/{reference}").text


def test_an_approval_that_was_not_used_is_taken_back(till, operator):
    reference = till.wish()
    decide(operator, reference, "approve")

    assert f"/effects/{reference}" in operator.get("/effects").text
    assert "Take the approval back" in operator.get(f"/effects/{reference}").text
    assert decide(operator, reference, "reject").status_code == 303
    with pytest.raises(NotApproved):
        till.ask()


def test_how_long_it_is_good_can_be_said(till, operator, guard):
    reference = till.wish()

    assert decide(operator, reference, "approve", **{"for": "soon"}).status_code == 422
    assert decide(operator, reference, "approve", **{"for": "2h"}).status_code == 303
    record = guard.dead_letters.show(reference).record
    assert record.dedup_until - record.decided_at == 7200


def test_the_name_is_that_of_the_login_whatever_a_form_says(till, operator, guard):
    reference = till.wish()

    decide(operator, reference, "approve", by="grace", who="grace")

    assert guard.dead_letters.show(reference).record.settled_by == "ada"


def test_who_asked_does_not_approve_under_their_login(till, operator):
    reference = till.wish(asked_by="ada")

    answer = decide(operator, reference, "approve", by="grace")

    assert answer.status_code == 409
    assert "another person has to approve it" in answer.text
    with pytest.raises(ApprovalNeeded):
        till.ask(asked_by="ada")


def test_a_viewer_sees_that_it_waits_and_cannot_decide(till, viewer, operator):
    reference = till.wish()
    form = form_of(operator, reference)

    for path in ("/approvals", f"/effects/{reference}"):
        page = viewer.get(path).text
        assert reference in page
        assert "70000" not in page
        assert '<form method="post"' not in page
        assert form["fingerprint"] not in page
        assert "You may look, and not decide." in page


def test_a_tenant_sees_and_decides_its_own_alone(till, guard, operator):
    mine, theirs = till.wish(tenant="acme"), till.wish(payment="pay_3", tenant="other")
    form = form_of(operator, theirs)
    acme = browser(guard, Access("ann", acts=True, tenant="acme"))

    assert mine in acme.get("/approvals").text
    assert theirs not in acme.get("/approvals").text
    assert acme.get(f"/effects/{theirs}").status_code == 404
    for act in ("approve", "reject"):
        answer = acme.post(f"/effects/{theirs}/{act}", data={**SIGNED, **form})
        assert answer.status_code == 404
    assert decide(acme, mine, "approve").status_code == 303


def test_the_last_call_is_of_the_same_tenant(till, operator):
    till.ask("pay_1", 900, tenant="other")

    page = text_of(operator.get(f"/effects/{till.wish(tenant='acme')}"))
    assert "no completed call of this tool in this scope" in page


@pytest.mark.parametrize("act", ["approve", "reject"])
def test_arguments_that_changed_since_are_not_decided(till, operator, guard, act):
    reference = till.wish()
    form = {**SIGNED, **form_of(operator, reference)}
    with pytest.raises(Conflict):
        till.ask(amount=7_000_000)

    answer = operator.post(f"/effects/{reference}/{act}", data=form)

    assert answer.status_code == 409
    assert "its arguments are others since" in answer.text
    (wish,) = guard.approvals.waiting()
    assert wish.arguments["amount"] == 7_000_000


@pytest.mark.parametrize("fingerprint", ["", "0" * 64])
def test_a_form_with_another_fingerprint_is_refused(till, operator, guard, fingerprint):
    reference = till.wish()

    answer = decide(operator, reference, "approve", fingerprint=fingerprint)

    assert answer.status_code == 409
    assert "its arguments are others by now" in answer.text
    assert len(guard.approvals.waiting()) == 1


def test_two_who_approve_at_once_are_one_decision(till, operator, guard):
    reference = till.wish()
    form = {**SIGNED, **form_of(operator, reference)}
    bob = browser(guard, Access("bob", acts=True))

    answers = [
        pages.post(f"/effects/{reference}/{act}", data=form)
        for pages, act in ((operator, "approve"), (bob, "approve"), (bob, "reject"))
    ]

    assert [answer.status_code for answer in answers] == [303, 409, 409]
    assert "it was waiting for approval; now it is approved and not used" in answers[1].text
    assert guard.dead_letters.show(reference).record.settled_by == "ada"


def test_a_reason_is_given(till, operator, guard):
    reference = till.wish()

    for act in ("approve", "reject"):
        assert decide(operator, reference, act, reason=" ").status_code == 422
    assert len(guard.approvals.waiting()) == 1


def test_a_link_cannot_say_that_it_was_approved(till, operator):
    reference = till.wish()

    for act in ("approve", "reject"):
        assert "Written down" not in operator.get(f"/effects/{reference}?done={act}").text


def test_there_are_pages_of_many(till, operator, guard):
    made = [till.wish(payment=f"pay_{n}") for n in range(53)]

    first = operator.get("/approvals")
    seen = re.findall(r">(eff_[0-9a-f]{12})<", first.text)
    more = html.unescape(re.search(r'class="more"><a href="([^"]+)"', first.text)[1])
    seen += re.findall(r">(eff_[0-9a-f]{12})<", operator.get(f"/approvals{more}").text)
    assert seen == made


def test_an_expired_approval_says_so(till, operator, guard):
    reference = till.wish()
    (wish,) = guard.approvals.waiting()
    assert reference_of(wish.key) == reference
    guard.approvals.approve(wish.key, by="ada", reason="yes", valid_s=1e-9)

    assert "it was approved, and that ended unused" in operator.get("/approvals").text
    page = text_of(operator.get(f"/effects/{reference}"))
    assert "ada approved it, and that ended" in page
    assert decide(operator, reference, "approve").status_code == 303


def test_it_is_there_on_every_store(anywhere):
    guard = anywhere
    sent = []

    @guard.tool(kind="write", approval=True, wait_s=0)
    def send(text: str) -> str:
        sent.append(text)
        return text

    with guard.step("chat", 1), contextlib.suppress(ApprovalNeeded):
        send("hello")
    pages = browser(guard, Access("ada", acts=True))
    (reference,) = re.findall(r">(eff_[0-9a-f]{12})<", pages.get("/approvals").text)

    assert decide(pages, reference, "approve").status_code == 303
    with guard.step("chat", 1):
        assert [send("hello"), send("hello")] == ["hello"] * 2
    assert sent == ["hello"]


def test_a_step_of_a_run_that_waits_is_shown_as_that_and_how_it_is_decided(guard, till):
    @guard.workflow(identity=["order"])
    def give_back(run: Run, order: str) -> str:
        return run.step("refund", till.refund, "pay_2", 70_000)

    with pytest.raises(ApprovalNeeded):
        give_back("o1")
    (wish,) = guard.approvals.waiting()
    pages = browser(guard, Access("ada", "operate"))
    (run,) = set(re.findall(r'href="/workflows/(eff_\w+)"', pages.get("/workflows").text))

    page = pages.get(f"/workflows/{run}").text

    assert "needs approval" in page
    assert ">claimed<" not in page
    assert f"effectonce approve show {wish.effect.reference}" in page
    assert f'href="/effects/{wish.effect.reference}' in page
    guard.approvals.approve(wish.key, by="ada", reason="yes")
    assert "approve show" not in pages.get(f"/workflows/{run}").text
