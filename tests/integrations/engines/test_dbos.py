"""What DBOS makes of our errors, and what its steps are outside a workflow of ours."""

import pytest

from effectonce import Guard


@pytest.fixture
def clerk(dbos_clerk):
    return dbos_clerk


def runs(clerk, payment_id):
    return (clerk.folder / "wires").read_text().splitlines().count(payment_id)


def test_a_doubt_is_not_retried_and_shows_no_key(clerk):
    said = clerk.ask("run", "doubt", "in_doubt")

    assert said["code"] == "OUTCOME_UNKNOWN"
    assert runs(clerk, "doubt") == 1
    assert clerk.effects("doubt") == 1


def test_a_settled_doubt_is_taken_by_a_fork(clerk):
    guard = Guard(f"sqlite:///{clerk.folder / 'effects.db'}", spool=clerk.folder / "mine")
    clerk.fails("run", "settled", "fails_in_doubt")
    (record,) = [r for r in guard.in_doubt() if r.request.scope == "settled"]
    guard.confirm(record.request.key, result="rcpt_found", by="ada", reason="it is in the ledger")
    guard.close()

    assert clerk.ask("fork", "settled", 1) == "rcpt_found"
    assert clerk.effects("settled") == 1


def test_a_workflow_that_does_not_count_its_places_is_refused(clerk):
    assert clerk.ask("run", "unplaced", "unplaced") == "CONTRACT_VIOLATION"
    assert clerk.effects("unplaced") == 0


def test_outside_a_workflow_a_step_is_a_function(clerk):
    receipts = clerk.ask("alone", "alone")

    assert receipts == clerk.ask("alone", "alone")
    assert (clerk.effects("alone"), clerk.effects("alone/async")) == (1, 1)


def test_arguments_without_a_canonical_form_count_by_the_name_of_the_step(clerk):
    clerk.ask("run", "strange", "strange_wishes")

    assert clerk.effects("strange") == 2


def test_an_async_step_that_failed_gives_its_place_back(clerk):
    clerk.plan("after the tool", "raised")
    clerk.ask("run", "async-again", "fails_then_works")

    assert clerk.effects("async-again") == 1


def test_a_step_that_is_called_in_a_step_is_part_of_it(clerk):
    """Recovered, the outer one is not run again: if the inner one had a place of its own, the
    next call would take that.
    """
    clerk.dies("after the step", "run", "nested", "nested")
    clerk.ask("result", "nested")

    assert clerk.effects("nested") == 2
