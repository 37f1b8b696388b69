"""`effectonce key`: why a call has its key, why two differ, and which would not survive a retry."""

import json

import pytest

APP = ("--app", "tests.cli.shop:guard")
CALL = {
    "tool": "refund",
    "arguments": {"payment_id": "pay_1", "amount_minor": 1400, "reason": "late"},
    "scope": "chat-1",
    "step": "refund",
}


def test_a_call_is_explained_and_has_the_reference_that_its_effect_has(desk):
    done = desk.run("key", "explain", "-", "--json", *APP, text=json.dumps(CALL))
    explained = json.loads(done.stdout)

    assert (
        explained["reference"]
        == desk.json("effect", "list", "--scope", "chat-1")["effects"][0]["reference"]
    )
    assert explained["hashed"] == {"payment_id": "pay_1", "amount_minor": 1400}
    assert explained["stripped"] == {"reason": "late"}
    assert "key" not in explained


def test_an_explanation_for_people(desk, tmp_path):
    (tmp_path / "call.json").write_text(json.dumps(CALL))
    shown = desk.run("key", "explain", "call.json", "--reveal", *APP).stdout

    assert (
        "hashed    payment_id='pay_1', amount_minor=1400 (another value is another effect)\n"
        in shown
    )
    assert "where     tenant main, scope chat-1, step refund" in shown
    assert "\nkey       " in shown


def test_two_calls_are_compared(desk, tmp_path):
    other = {**CALL, "arguments": {**CALL["arguments"], "reason": "the parcel was late"}}
    another = {**CALL, "arguments": {**CALL["arguments"], "payment_id": "pay_2"}}
    for name, call in (("a", CALL), ("b", other), ("c", another)):
        (tmp_path / name).write_text(json.dumps(call))

    same = desk.json("key", "diff", "a", "b", *APP)
    assert (same["same_effect"], same["same_request"]) == (True, True)
    differ = desk.run("key", "diff", "a", "c", "--check", *APP)
    assert differ.returncode == 3
    assert (
        differ.stdout
        == "Two effects.\n  payment_id differs: 'pay_1' and 'pay_2', so these are two effects\n"
    )
    assert desk.run("key", "diff", "a", "b", "--check", *APP).returncode == 0


def test_values_that_change_on_every_attempt_are_found(desk, tmp_path):
    calls = [CALL, {**CALL, "arguments": {"payment_id": "2026-11-15T08:00:00", "amount_minor": 1}}]
    (tmp_path / "calls.jsonl").write_text("\n".join(json.dumps(call) for call in calls))
    found = desk.run("key", "check", "calls.jsonl", "--check", *APP)

    assert found.returncode == 3
    assert found.stdout.split("\t") == [
        "refund",
        "payment_id",
        "2",
        "contains a time of day (2026-11-15T08:00:00)\n",
    ]
    assert "volatile" in found.stderr


def test_keys_that_are_stable_are_said_to_be(desk):
    done = desk.run("key", "check", "--check", *APP)

    assert (done.returncode, done.stderr) == (
        0,
        "Every key would be the same on the next attempt.\n",
    )


def test_a_parameter_that_was_vouched_for_is_mentioned(desk, tmp_path):
    (tmp_path / "vouched.py").write_text(
        "import os\nfrom effectonce import Guard, Stable\nguard = Guard(os.environ['SHOP_STORE'])\n"
        "@guard.tool(kind='write', identity=[Stable('run_id')])\ndef pay(run_id: str): ...\n"
    )

    assert desk.json("key", "check", "--app", "vouched")["findings"][0]["field"] == "run_id"


def test_a_field_of_a_model_that_changes_on_every_attempt_is_found(desk, tmp_path):
    (tmp_path / "orders.py").write_text(
        "import dataclasses, os, uuid\nfrom effectonce import Guard\nguard ="
        " Guard(os.environ['SHOP_STORE'])\n@dataclasses.dataclass\nclass Order:\n    number: int\n "
        "   id: uuid.UUID ="
        " dataclasses.field(default_factory=uuid.uuid4)\n@guard.tool(kind='write')\ndef pay(order:"
        " Order): ...\n"
    )

    done = desk.run("key", "check", "--check", "--app", "orders")

    assert (done.returncode, done.stdout) == (
        3,
        "pay\torder.id\t\ta field of a model that looks like a random value\n",
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"tool": 1}', '{"tool": "refund", "arguments": 1}']
)
def test_what_is_no_call_is_wrong_usage_with_an_example(desk, text):
    done = desk.run("key", "explain", "-", *APP, text=text)

    assert done.returncode == 2
    assert '"scope": "chat-42"' in done.stderr


def test_a_call_outside_a_step_has_no_key(desk):
    done = desk.run(
        "key", "explain", "-", *APP, text='{"tool": "refund", "arguments": ["pay_1", 1]}'
    )

    assert done.returncode == 1
    assert "outside a step" in done.stderr


def test_a_tool_that_is_not_there_is_not_found(desk):
    assert desk.run("key", "explain", "-", *APP, text='{"tool": "refnud"}').returncode == 5


def test_a_step_that_changes_is_a_finding_in_its_own_line_and_the_others_are_looked_at(
    desk, tmp_path
):
    odd = [
        {**CALL, "step": "call_Xk2dJ8aQ"},
        {**CALL, "arguments": {"payment_id": "attempt 2", "amount_minor": 1}},
    ]
    # with an empty line between them
    (tmp_path / "calls.jsonl").write_text("\n\n".join(json.dumps(call) for call in odd))

    done = desk.run("key", "check", "calls.jsonl", "--check", *APP)

    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "refund\tstep\t1\tcontains the id of one call (call_Xk2dJ8aQ)",
        "refund\tpayment_id\t3\tcontains a count of attempts (attempt 2)",
    ]


def test_a_scope_and_a_tenant_that_change_are_findings_and_are_explained_all_the_same(
    desk, tmp_path
):
    odd = {**CALL, "scope": "toolu_01D7FLrfh4GYq7yT1ULFeyMV", "tenant": "ada@example.test"}
    (tmp_path / "calls.jsonl").write_text(json.dumps(odd))

    done = desk.run("key", "check", "calls.jsonl", "--check", *APP)

    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["tenant", "scope"]
    assert desk.run("key", "explain", "-", *APP, text=json.dumps(odd)).returncode == 0


def test_a_recorded_call_that_cannot_be_made_is_told_with_its_line(desk, tmp_path):
    (tmp_path / "calls.jsonl").write_text(
        f"{json.dumps(CALL)}\n{json.dumps({**CALL, 'arguments': {}})}"
    )

    done = desk.run("key", "check", "calls.jsonl", *APP)

    assert done.returncode == 2
    assert "calls.jsonl, line 2: refund: missing a required argument" in done.stderr


def test_the_place_of_a_call_without_a_step_is_told_in_words(desk):
    call = {name: value for name, value in CALL.items() if name != "step"}
    shown = desk.run("key", "explain", "-", *APP, text=json.dumps(call)).stdout

    assert (
        "scope chat-1, no step: after 0 results of this call that the model was shown"
        in " ".join(shown.split())
    )
