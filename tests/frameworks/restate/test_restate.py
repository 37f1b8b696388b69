"""Restate: a real server, and processes of handlers that are really killed. Effects are counted
by a bank in another process.
"""

import os
import re
import urllib.error
from pathlib import Path

import pytest

from effectonce import Guard
from tests.frameworks import pages
from tests.frameworks.restate.rows import restate, rows
from tests.frameworks.restate.server import binary

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "identity.md"
TABLE = {
    "the run fails after the tool, and is retried": 1,
    "the handler fails after the run, and is retried": 1,
    "a tool that is called without a run, in a handler that is retried": 1,
    "the process is killed after the effect, another resumes": 1,
    "the process is killed between two steps": 1,
    "process and server are killed after the effect": 1,
    "the handler catches the failure, and calls again": 1,
    "the same idempotency key is sent again, also after Restate has forgotten it (redrive)": 1,
    "the same workflow key is sent again after Restate has forgotten it (redrive)": 1,
    "it has the header, and is restarted as new (redrive)": 1,
    "called twice on purpose, in a handler that is retried in between": 2,
    "called twice on purpose, side by side": 2,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with restate(tmp_path_factory.mktemp("restate")) as one:
        yield one


def test_what_was_wished_for_lands_and_nothing_else(tmp_path):
    with restate(tmp_path) as shop:
        landed, left = dict(rows(shop)), shop.planned()

    assert landed == TABLE
    assert left == []  # every accident happened


def test_the_page_shows_this_table():
    shown = re.search(
        r"<!-- identity of restate -->\n(.*?)<!-- /identity of restate -->",
        PAGE.read_text(),
        re.DOTALL,
    )[1]
    lines = [
        "| engine | what happens | effects |",
        "|---|---|---|",
        *(f"| Restate | {what} | {n} |" for what, n in TABLE.items()),
    ]

    assert shown.splitlines() == lines, "\n".join(lines)


def test_the_page_and_its_example(bank, guard, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(binary()).parent}:{os.environ['PATH']}")

    pages.check("restate", bank, tmp_path, guard=guard)


@pytest.fixture
def desk(shop):
    """Where a person looks at the effects of the shop."""
    guard = Guard(f"sqlite:///{shop.folder / 'effects.db'}", spool=shop.folder / "mine")
    yield guard
    guard.close()


def runs(shop, payment_id):
    return (shop.folder / "wires").read_text().splitlines().count(payment_id)


def test_a_doubt_is_not_retried_and_shows_no_key(shop, desk):
    said = shop.restate.call("refunds/in_doubt", "doubt")

    assert (said["code"], said["retriable"], said["status"]) == ("OUTCOME_UNKNOWN", "false", "409")
    assert said["operation"].startswith("eff_")
    assert (runs(shop, "doubt"), shop.effects("doubt")) == (1, 1)
    keys = [record.request.key for record in desk.in_doubt()]
    assert [key in str(said) for key in keys] == [False]


def test_a_settled_doubt_is_taken_by_an_invocation_that_is_restarted_as_new(shop, desk):
    with pytest.raises(urllib.error.HTTPError) as failed:
        shop.restate.call(
            "refunds/fails_in_doubt", "settled", idempotency_key="s-1", effectonce_scope="ticket-18"
        )
    with failed.value as answer:
        assert answer.code == 409
    invocation = shop.restate.send("refunds/fails_in_doubt", "settled", idempotency_key="s-1")

    (record,) = [record for record in desk.in_doubt() if record.request.scope == "ticket-18"]
    desk.confirm(record.request.key, result="rcpt_found", by="ada", reason="it is in the ledger")

    again = shop.restate.control(invocation, "restart-as-new")["new_invocation_id"]
    assert shop.restate.result(again) == "rcpt_found"
    assert shop.effects("settled") == 1


def test_what_may_go_better_is_retried(shop):
    shop.plan("before the effect", "raised")

    shop.restate.call("refunds/goes_better", "better")

    assert shop.effects("better") == 1
    assert shop.planned() == []


def test_a_refusal_is_not_retried(shop):
    said = shop.restate.call("refunds/is_refused", "refused")

    assert said == {"message": "the bank refuses refused", "code": "Rejected", "retriable": "false"}
    assert shop.effects("refused") == 0


def test_what_a_step_says_in_restates_words_is_left_as_it_is(shop):
    assert shop.restate.call("refunds/speaks_restate", "words") == "418 in its own words"


def test_each_invocation_is_a_wish_also_of_the_same_object(shop):
    for _ in range(2):
        shop.restate.call("accounts/pay_7/refund", "object")

    assert shop.effects("object") == 2


def test_a_tenant_has_effects_of_its_own(shop):
    for tenant in ("a", "b", "a"):
        shop.restate.call("tenants/refund", "tenant", tenant=tenant, effectonce_scope="ticket-19")

    assert shop.effects("tenant") == 2
