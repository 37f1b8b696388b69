"""The demo is played for real: processes, kills, a bank's ledger. What it shows is checked, and
that its own checks can fail.
"""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from effectonce.cli._demo_story import SNIPPET

WITHIN_S = 100
PLAIN = {"FORCE_COLOR": "", "CLICOLOR_FORCE": "", "COLUMNS": "80"}

# Start-up code for every process of a demo: its bank promises to honour keys, and does not.
LYING_BANK = """
import sys
sys.argv[:] = [argument for argument in sys.argv if argument != "--honours-keys"]
"""


@dataclass
class Played:
    exit_code: int
    out: str
    err: str
    left_behind: list


def start(folder, *options, **environ):
    command = [sys.executable, "-m", "effectonce.cli", "demo", *options]
    environ = {**os.environ, **PLAIN, "TMPDIR": str(folder), **environ}
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, folder):
    out, err = process.communicate(timeout=WITHIN_S)
    return Played(process.returncode, out, err, list(folder.iterdir()))


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Three demos side by side: for machines, for people, and one whose bank lies."""
    liar = tmp_path_factory.mktemp("liar")
    (liar / "sitecustomize.py").write_text(LYING_BANK)
    folders = {name: tmp_path_factory.mktemp(name) for name in ("json", "human", "lied_to")}
    processes = {
        "json": start(folders["json"], "--json", "--seed", "11"),
        "human": start(folders["human"]),
        "lied_to": start(folders["lied_to"], "--json", PYTHONPATH=str(liar)),
    }
    return {name: finish(process, folders[name]) for name, process in processes.items()}


@pytest.fixture(scope="module")
def counts(played):
    return json.loads(played["json"].out)


def test_json_is_all_there_is_on_stdout(played, counts):
    assert played["json"].exit_code == 0
    assert played["json"].out.count("\n") == 1
    assert played["json"].err == ""
    assert list(counts) == ["unprotected", "protected", "in_doubt"]


def test_without_protection_the_customer_is_refunded_again_and_again(counts):
    assert counts["unprotected"]["effects"] >= 2
    assert counts["unprotected"]["effects"] == counts["unprotected"]["attempts"]


def test_with_protection_the_customer_is_refunded_once(counts):
    protected = counts["protected"]

    assert protected["effects"] == 1
    assert protected["attempts"] > 1
    assert protected["state"] == "completed"
    assert (protected["coalesced"], protected["replayed"]) == (1, 1)


def test_what_nobody_knows_is_in_doubt_until_the_probe_settles_it(counts):
    in_doubt = counts["in_doubt"]

    assert (in_doubt["effects"], in_doubt["attempts"]) == (1, 1)
    assert (in_doubt["state"], in_doubt["refused"]) == ("in_doubt", 1)
    assert (in_doubt["settled_by"], in_doubt["replayed"]) == ("probe", 1)


def test_people_see_the_kill_the_ledgers_and_three_verdicts(played):
    human = played["human"]

    assert human.exit_code == 0
    assert human.err == ""
    assert human.out.count("✗ killed") == 2
    # more than 4 where a busy machine makes an agent wait longer than it does
    refunds = int(re.search(r"The bank's ledger, (\d+) lines:", human.out)[1])
    too_much = f"₹{14_000 * (refunds - 1):,}.00 too much."
    assert refunds >= 4
    assert human.out.count("The bank's ledger, 1 line:") == 2
    assert f"✗ WRONG  {refunds} refunds instead of 1: {too_much}" in human.out
    assert human.out.count("✓ RIGHT  1 refund for") == 2


def test_it_fits_eighty_columns_and_is_plain_when_piped(played):
    assert max(len(line) for line in played["human"].out.splitlines()) <= 80
    assert "\x1b" not in played["human"].out


def test_a_bank_that_lies_about_keys_fails_the_demo(played):
    lied_to = played["lied_to"]
    counts = json.loads(lied_to.out)

    assert lied_to.exit_code == 1
    assert counts["protected"]["effects"] == counts["protected"]["attempts"]
    assert (
        f"effectonce promises 1 refund, but refunds = {counts['protected']['effects']}"
        in lied_to.err
    )


def test_nothing_is_left_behind(played):
    assert [demo.left_behind for demo in played.values()] == [[], [], []]


def test_an_interrupted_demo_clears_the_stage(tmp_path):
    process = start(tmp_path)
    while "→ pays" not in process.stdout.readline():
        assert process.poll() is None

    process.send_signal(signal.SIGINT)
    ended = finish(process, tmp_path)

    assert ended.exit_code == 130
    assert ended.err == "Interrupted.\n"
    assert ended.left_behind == []


def test_the_lines_for_your_own_tool_work(tmp_path, monkeypatch):
    keys = []

    class Bank:
        def refund(self, payment_id, amount_minor, *, idempotency_key):
            keys.append(idempotency_key)
            return {"receipt": "rcpt_1"}

    monkeypatch.chdir(tmp_path)
    names = {"bank": Bank()}

    exec(SNIPPET, names)
    names["guard"].close()

    assert len(keys) == 1
