"""`effectonce effect undo`, and what `effect show` says about an effect that was undone."""

import asyncio

import pytest
from tests.cli import undone
from tests.cli.desk import Desk

from effectonce import Guard, InDoubt

APP = ("--app", "tests.cli.undone:guard")
SIGNED = ("--reason", "wrong customer", "--by", "ada", "--yes")


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")


@pytest.fixture
def guard(desk):
    guard = undone.tools(Guard(desk.url))
    yield guard
    guard.close()


def test_an_effect_is_undone_once_and_both_say_so(desk, guard):
    effect = undone.call(guard, "refund", payment="pay_1").effect

    first = desk.run("effect", "undo", effect.reference, *SIGNED, *APP)
    again = desk.json("effect", "undo", effect.reference, *SIGNED, *APP)

    assert (first.returncode, "Undone, by eff_" in first.stderr) == (0, True), first
    undo = again["undo"]
    assert (undo["state"], undo["asked_by"], undo["reason"]) == (
        "completed",
        "ada",
        "wrong customer",
    )
    shown = desk.json("effect", "show", undo["reference"], "--reveal")
    assert (shown["tool"], shown["undoes"]) == ("refund.undo", effect.reference)
    assert shown["result"] == "pay_1: receipt of pay_1 is void"
    assert shown["sends"] == 1
    original = desk.run("effect", "show", effect.reference).stdout
    assert f"It was undone by {undo['reference']}, asked for by ada: wrong customer" in original
    story = desk.run("effect", "show", undo["reference"]).stdout
    assert f"It is the undo of {effect.reference}." in story


def test_an_effect_without_an_undo_says_nothing_about_one(desk, guard):
    effect = undone.call(guard, "pay", to="a").effect

    shown = desk.json("effect", "show", effect.reference)
    assert (shown["undo"], shown["undoes"]) == (None, None)
    refused = desk.run("effect", "undo", effect.reference, *SIGNED, *APP)
    assert (refused.returncode, "pay declares no undo" in refused.stderr) == (4, True), refused


def test_what_is_in_doubt_is_refused(desk, guard):
    outcome = undone.call(guard, "refund", payment="pay_lost")
    assert isinstance(outcome.error, InDoubt)

    refused = desk.run("effect", "undo", outcome.effect.reference, *SIGNED, *APP)

    assert refused.returncode == 4, refused
    assert "settle it first" in refused.stderr


def test_it_asks_first_and_needs_the_tools(desk, guard):
    effect = undone.call(guard, "refund", payment="pay_1").effect

    unasked = desk.run("effect", "undo", effect.reference, *SIGNED[:-1], *APP)
    toolless = desk.run("effect", "undo", effect.reference, *SIGNED)

    assert (unasked.returncode, toolless.returncode) == (2, 2)
    assert "Undo it? There is no terminal to ask on" in unasked.stderr
    assert "needs your tools" in toolless.stderr
    assert desk.json("effect", "show", effect.reference)["undo"] is None


def test_an_async_undo_waits_for_its_approval(desk, guard):
    async def posted():
        return await undone.call(guard, "post", to="ada")

    with guard.step("chat", "post"):
        effect = asyncio.run(posted()).effect

    waits = desk.run("effect", "undo", effect.reference, *SIGNED, *APP)
    assert (waits.returncode, "waits for a person" in waits.stderr) == (1, True), waits
    undo = desk.json("effect", "show", effect.reference)["undo"]
    assert undo["state"] == "claimed"
    desk.run("approve", "yes", undo["reference"], "--reason", "yes", "--by", "grace", "--yes", *APP)

    done = desk.run("effect", "undo", effect.reference, *SIGNED, *APP)
    assert (done.returncode, "Undone, by" in done.stderr) == (0, True), done
