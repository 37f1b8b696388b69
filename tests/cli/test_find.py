"""`effectonce find`: what a person types who has a payment id."""

import pytest
from tests.cli.desk import Desk

from effectonce import Guard


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = Guard(desk.url)

    @guard.tool(kind="write", searchable=["payment_id"])
    def refund(payment_id: str) -> str:
        return payment_id

    for number, tenant in ((3, "a"), (38, "b")):
        with guard.step("chat", number, tenant=tenant):
            refund(f"pay_{number}")
    guard.close()
    return desk


def test_effects_are_found_by_their_arguments(desk):
    (one,) = desk.json("find", "pay_38")["effects"]

    assert (one["tool"], one["state"], one["tenant"]) == ("refund", "completed", "b")
    assert len(desk.json("find", "PAY_3")["effects"]) == 2
    assert len(desk.json("find", "pay_3", "--limit", "1")["effects"]) == 1
    assert [e["tenant"] for e in desk.json("find", "pay_3", "--tenant", "a")["effects"]] == ["a"]


def test_nothing_found_says_who_is_found(desk):
    done = desk.run("find", "pay_9")

    assert done.returncode == 0
    assert "No effect is known by 'pay_9'. Only tools that declare searchable=" in done.stderr
