"""What is written wrongly is said where it is written, by name: not when an effect is under way,
and never not at all.
"""

import math
from datetime import timedelta
from pathlib import Path

import pytest

from effectonce import (
    Breaker,
    Bucket,
    Budget,
    Circuit,
    Circuits,
    ContractViolation,
    Delivered,
    Downstream,
    Guard,
    Retry,
    RetryBudget,
    TimeWindow,
    breaker,
    retry,
)
from effectonce.observe import Audit
from effectonce.workflows import Run


def pay(invoice: str, cents: int = 5, note: str = "") -> int:
    return cents


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        # its .seconds is 0
        ({"dedup": timedelta(days=1)}, r"dedup=.*: give dedup=TimeWindow\(seconds=300\)"),
        ({"dedup": 300}, r"dedup=300: give dedup=TimeWindow\(seconds=300\)"),
        (
            {"not_sent": ["ValueError"]},
            r"not_sent=\['ValueError'\]: give a list of exception classes",
        ),
        ({"not_sent": ValueError}, "not_sent=.*: give a list of exception classes"),
        ({"not_sent": [ValueError()]}, "not_sent=.*: give a list of exception classes"),
        ({"not_sent": [int]}, "not_sent=.*: give a list of exception classes"),
        ({"rejected": "ValueError"}, "rejected='ValueError': give a list of exception classes"),
        ({"accept_store_loss": "no"}, "accept_store_loss='no': give True or False"),
        ({"one_request": "no"}, "one_request='no': give True or False"),
        ({"separate_dispatch": 1}, "separate_dispatch=1: give True or False"),
        ({"identity": "invoice"}, r"identity='invoice': give a list, identity=\['invoice'\]"),
        ({"volatile": "note"}, r"volatile='note': give a list, volatile=\['note'\]"),
        ({"redact": "note"}, r"redact='note': give a list, redact=\['note'\]"),
        ({"volatile": 5}, "volatile=5: give a list"),
        ({"version": 2}, "version=2: give a text"),
        ({"name": 5}, "name=5: give a text"),
        ({"permission": ["refund"]}, r"permission=\['refund'\]: give a text"),
        ({"window": "1d"}, "window='1d': give a number of seconds, or a timedelta"),
        ({"window": "5"}, "window='5': give a number of seconds, or a timedelta"),
        ({"tombstone": "x"}, "tombstone='x': give a number of seconds"),
        ({"lease_s": "30"}, "lease_s='30': give a number of seconds"),
        ({"lease_s": timedelta(seconds=30)}, "lease_s=.*: give a number of seconds"),
        ({"lease_s": math.inf}, "lease_s=inf: at most 12 h"),
        ({"wait_s": True}, "wait_s=True: give a number of seconds"),
        ({"retry": 3}, r"retry=3: give a policy, such as retry=Retry\(attempts=3\)"),
        ({"retry": 0}, "retry=0: give a policy"),
        ({"breaker": "bank"}, r'breaker=.bank.: give a circuit: breaker=breaker\("bank"\)'),
        (
            {"budget": Budget()},
            r'budget=.*: give a budget of retries: budget=RetryBudget\("bank"\)',
        ),
    ],
)
def test_a_tool_that_is_declared_wrongly_is_refused_by_name(guard, declared, said):
    with pytest.raises(ContractViolation, match=said):
        guard.tool(**{"kind": "write", **declared})(pay)


@pytest.mark.parametrize("rules", [5, "x", [5]])
def test_rules_that_are_none_say_how_rules_are_written(guard, rules):
    with pytest.raises(TypeError, match=r"give Rule.* in a list"):
        guard.tool(kind="write", rules=rules)(pay)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Retry(attempts="3"), "attempts='3': give a whole number"),
        (lambda: Retry(attempts=2.5), "attempts=2.5: give a whole number"),
        (lambda: Retry(attempts=3, deadline_s=None), "deadline_s=None: give a number of seconds"),
        (lambda: retry(attempts="x"), "attempts='x': give a whole number"),
        (lambda: retry(one_request="no"), "one_request='no': give True or False"),
        (lambda: retry(breaker="bank"), "breaker='bank': give a circuit"),
        (lambda: retry(budget=5), "budget=5: give a budget of retries"),
        (lambda: Budget(steps=None), "steps=None: give a whole number"),
        (lambda: Budget(wall_s="9"), "wall_s='9': give a number of seconds"),
        (lambda: Budget(by_bucket=None), "by_bucket=None: give buckets"),
        (
            lambda: Budget(by_bucket={Bucket.RATE_LIMIT: "2"}),
            r"by_bucket\[.*\]='2': give a whole number",
        ),
        (lambda: breaker("bank", failures="5"), "failures='5': give a whole number"),
        (lambda: breaker("bank", open_s="x"), "open_s='x': give a number of seconds"),
        (lambda: breaker("bank", open_s=None), "open_s=None: give a number of seconds"),
        (lambda: breaker("bank", shadow="no"), "shadow='no': give True or False"),
        (lambda: breaker(5), "name=5: give a text"),
        (lambda: breaker(""), "name of its dependency"),
        (lambda: Circuits(limit=0), "at least one circuit"),
        (lambda: breaker("bank", shared=True), "shared=True: give the store"),
        (lambda: Circuit("bank", 5), "policy=5: give a policy"),
        (lambda: RetryBudget(5), "name=5: give a text"),
        (lambda: RetryBudget("bank", capacity="x"), "capacity='x': give a number"),
        (lambda: RetryBudget("bank", shared="no"), "shared='no': give True or False"),
        (lambda: RetryBudget("bank", costs={"rate_limt": 2}), "costs has rate_limt: choose among"),
        (lambda: RetryBudget("bank", costs=5), "costs=5: give buckets"),
        (
            lambda: Downstream.key(window="x"),
            "window='x': give a number of seconds, or a timedelta",
        ),
        (
            lambda: Downstream.key(stores_rejections="no"),
            "stores_rejections='no': give True or False",
        ),
        (
            lambda: Downstream.probe(delay="x"),
            "delay='x': give a number of seconds, or a timedelta",
        ),
        (lambda: TimeWindow(seconds=timedelta(days=1)), "seconds=.*: give a number"),
        (lambda: Guard(Path("effects.db")), "is no store: give a URL"),
        (lambda: Guard(None), "None is no store: give a URL"),
        (lambda: Guard("memory://", secret="text"), "secret is no bytes"),
        (lambda: Guard("memory://", keyring="x", secret=b"s"), "keyring='x': give a keyring"),
        (lambda: Guard("memory://", cache="x"), "cache='x': give a whole number"),
        (lambda: Guard("memory://", observers=[5]), "5 cannot be called with events"),
        (
            lambda: Guard("memory://", observers=[Audit]),
            r"is a class: give an object of it, Audit\(...\)",
        ),
        (lambda: Audit(5), "5 can keep no audit: give a guard, or a store"),
        (lambda: Guard("sqlite:///:memory:"), "Use memory://, or name a file"),
        (lambda: Guard("sqlite:///effects.db?mode=ro"), "has no parameters, only a file"),
    ],
)
def test_a_policy_that_is_written_wrongly_is_refused_by_name(make, said):
    with pytest.raises(ContractViolation, match=said):
        make()


def test_a_secret_of_the_wrong_type_is_not_told_to_anybody():
    with pytest.raises(ContractViolation) as refused:
        Guard("memory://", secret="hunter2")
    assert "hunter2" not in str(refused.value)


def test_a_breaker_without_a_count_of_failures_is_still_one():
    assert Breaker(rate=0.5).failures is None


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            lambda guard: guard.step("chat", "pay", permissions="refund"),
            r"give a list, permissions=\['refund'\]",
        ),
        (lambda guard: guard.step("chat", "pay", latch="no"), "latch='no': give True or False"),
        (
            lambda guard: guard.step("chat", delivered=[("pay", {})]),
            r"delivered has .*: give Delivered\(tool, arguments\)",
        ),
        (
            lambda guard: guard.step("chat", delivered=[Delivered("pay", None)]),
            "delivered has .*: give Delivered",
        ),
        (lambda guard: guard.step("chat", 1.5), "not float. Nothing was sent"),
        (
            lambda guard: guard.step("chat\ud800", "pay"),
            "scope is 'chat.*cannot be written as UTF-8. Nothing was sent",
        ),
        (
            lambda guard: guard.step("chat", "pay\ud800"),
            "the step id is 'pay.*cannot be written as UTF-8. Nothing was sent",
        ),
        (lambda guard: guard.sequence("account", "7"), "number='7': give a whole number"),
        (lambda guard: guard.sequence("account", 1.5), "number=1.5: give a whole number"),
        (
            lambda guard: guard.turn("chat", "turn-7", budget=3),
            "budget=3: give what the turn may spend",
        ),
        # it would sweep for ever
        (lambda guard: guard.sweeper(batch=0), "batch=0, .*: a batch has a record"),
        (lambda guard: guard.sweeper(every_s="x"), "every_s='x': give a number of seconds"),
        (lambda guard: guard.reconciler(per_s=0), "per_s=0 and every_s=60.0"),
        (lambda guard: guard.reconciler(every_s="x"), "every_s='x': give a number of seconds"),
    ],
)
def test_a_place_that_is_written_wrongly_is_refused_by_name(guard, place, said):
    with pytest.raises(ContractViolation, match=said):
        place(guard)


@pytest.mark.parametrize("arguments", [("inv_1",), None])
def test_arguments_are_given_by_name(guard, arguments):
    tool = guard.tool(kind="write")(pay)
    with pytest.raises(ContractViolation, match=r"give them by name, .* Nothing was sent"):
        guard.call(tool, arguments, key="k")


def test_a_function_that_does_not_tell_its_parameters_is_no_tool_and_no_workflow(guard):
    for declare in (guard.tool(kind="write"), guard.workflow):
        with pytest.raises(
            ContractViolation, match=r"does not tell its parameters.* in a function of your own"
        ):
            declare(int)


def test_what_has_no_identity_is_explained_as_it_is_refused(guard):
    tool = guard.tool(kind="write")(pay)
    with (
        guard.step("chat", "pay"),
        pytest.raises(ContractViolation, match=r"pay: .* has no stable identity"),
    ):
        tool.explain(object())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"identty": ["order"]}, "unexpected keyword argument 'identty'. Did you mean 'identity'?"),
        ({"retry": 3}, "unexpected keyword argument 'retry'; it takes identity, volatile"),
    ],
)
def test_an_option_of_a_workflow_that_there_is_not_is_refused(guard, option, said):
    with pytest.raises(TypeError, match=said):

        @guard.workflow(**option)
        def deliver(run: Run, order: str, day: str) -> str:
            return order


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"identity": "order"}, r"identity='order': give a list, identity=\['order'\]"),
        ({"runs": "3"}, "runs='3': give a whole number"),
        ({"keep": "1d"}, "keep='1d': give a number of seconds, or a timedelta"),
        ({"ends_on": ValueError}, "ends_on=.*: give a list of exception classes"),
        ({"permissions": "refund"}, r"permissions='refund': give a list, permissions=\['refund'\]"),
    ],
)
def test_a_workflow_that_is_declared_wrongly_is_refused_by_name(guard, option, said):
    with pytest.raises(ContractViolation, match=said):

        @guard.workflow(**option)
        def deliver(run: Run, order: str) -> str:
            return order


def test_a_workflow_that_takes_no_run_is_refused_when_it_is_declared(guard):
    with pytest.raises(ContractViolation, match="deliver takes no run"):

        @guard.workflow
        def deliver() -> str:
            return "delivered"
