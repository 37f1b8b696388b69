"""Ten mistakes of a new user. Each is a script, and what the script prints fits on one screen:
what happened, what is known, what to do.
"""

import subprocess
import sys
import textwrap

import pytest

from tests.cli.desk import environment
from tests.privileges import drop_for_good

SCREEN = 24  # lines of a terminal
BEGIN = """
import asyncio, uuid
from effectonce import Guard, current_effect

guard = Guard("sqlite:///effects.db")
"""
TOOL = """
@guard.tool(kind="write")
def refund(payment_id: str):
    return "refunded"
"""
CALL = """
with guard.step("chat-42", "refund"):
    print(refund("pay_7"))
"""
MAIN = """
async def main():
    with guard.step("chat-42", "refund"):
        print(CALL)

asyncio.run(main())
"""


class Screen:
    """What a script of a new user prints."""

    def __init__(self, folder, script, preexec_fn=None):
        file = folder / "shop.py"
        file.write_text(textwrap.dedent(script))
        done = subprocess.run(
            [sys.executable, file.name],
            cwd=folder,
            env=environment(EFFECTONCE_SPOOL=str(folder / "spool")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
            preexec_fn=preexec_fn,
        )
        self.text, self.failed = done.stdout, done.returncode != 0
        self.words = " ".join(done.stdout.split())
        self.lines = done.stdout.splitlines()

    def says(self, *sentences):
        missing = [sentence for sentence in sentences if sentence not in self.words]
        assert not missing, f"{missing} not in:\n{self.text}"
        assert len(self.lines) <= SCREEN, self.text
        assert "temporarily degraded" not in self.words


def test_no_step(tmp_path):
    screen = Screen(tmp_path, BEGIN + TOOL + 'refund("pay_7")')

    assert screen.failed
    screen.says(
        "refund was called outside a step, so a retry could not be recognised.",
        "Nothing was sent.",
        "Call it inside `with guard.step(conversation, step):`, or give it a business key with"
        " guard.call(..., key=...).",
    )


@pytest.mark.parametrize("parentheses", ["", "()"])
def test_no_parentheses(tmp_path, parentheses):
    screen = Screen(tmp_path, BEGIN + f"@guard.tool{parentheses}\ndef refund(payment_id: str): ...")

    assert screen.failed
    screen.says(
        "guard.tool does not know what",
        "so it was not made a tool.",
        "Say what running it twice would do: @guard.tool(kind='write'), or 'read',"
        " 'idempotent_write', 'irreversible'.",
    )


def test_a_key_that_is_never_read(tmp_path):
    screen = Screen(tmp_path, BEGIN + TOOL.replace('"write"', '"write", downstream="key"') + CALL)

    assert not screen.failed
    screen.says(
        "refund declares downstream='key' and never read its key, so the downstream cannot"
        " recognise a second request.",
        "Send current_effect().downstream_key with the request",
        "otherwise declare downstream='none'.",
        "Until it reads its key, a call without an answer is in doubt and is not sent again.",
    )


def test_a_misspelt_volatile(tmp_path):
    screen = Screen(tmp_path, BEGIN + TOOL.replace('"write"', '"write", volatile=["paymnt_id"]'))

    assert screen.failed
    screen.says(
        "refund has no parameter 'paymnt_id'; it has payment_id. Did you mean 'payment_id'?",
        "Correct the arguments or the contract",
    )


def test_a_wrong_path_of_the_store(tmp_path):
    screen = Screen(tmp_path, BEGIN.replace("effects.db", "data/effects.db") + TOOL + CALL)

    assert screen.failed
    screen.says(
        f"was not run by this call: {tmp_path}/data/effects.db: there is no folder {tmp_path}/data."
        " Nothing was sent.",
        f"Make it (mkdir -p {tmp_path}/data), or give the path of another file.",
    )


def test_a_file_that_is_no_store(tmp_path):
    (tmp_path / "effects.db").write_text("to do: buy milk\n" * 100)

    screen = Screen(tmp_path, BEGIN + TOOL + CALL)

    assert screen.failed
    screen.says(
        f"{tmp_path}/effects.db is not a SQLite database. Nothing was sent.",
        "Give the path of a new file",
    )


def test_a_read_only_file(tmp_path):
    Screen(tmp_path, BEGIN + TOOL + CALL)
    (tmp_path / "effects.db").chmod(0o444)

    screen = Screen(tmp_path, BEGIN + TOOL + CALL.replace("chat-42", "chat-43"), drop_for_good)

    assert screen.failed
    screen.says(
        f"{tmp_path}/effects.db may not be written by this user, only read",
        "Nothing was sent.",
        f"Run this as the user who owns {tmp_path}/effects.db, or give this user the right to write"
        " there.",
    )


def test_the_same_name_twice(tmp_path):
    screen = Screen(
        tmp_path,
        BEGIN
        + TOOL
        + TOOL.replace('"write"', '"write", name="refund"').replace("def refund", "def refund_all"),
    )

    assert screen.failed
    screen.says(
        "two tools are called 'refund': __main__.refund and __main__.refund_all.",
        "Give one of them name='...': the name is part of every key.",
    )


def test_a_plain_value_error(tmp_path):
    screen = Screen(
        tmp_path, BEGIN + TOOL.replace('return "refunded"', 'raise ValueError("bad sku")') + CALL
    )

    assert screen.failed
    screen.says(
        "is in doubt: an unknown error after the request may have left (ValueError: bad sku). It"
        " was not retried.",
        "Its story, and how to settle it: effectonce effect show eff_",
        f"--store sqlite:///{tmp_path}/effects.db",
        "ValueError does not say whether a request had left.",
        "raise NotSent(...) instead, or declare not_sent=[ValueError].",
        'Or send through protect(client) and declare through="protected"',
    )


@pytest.mark.parametrize(
    "use", ['receipt = refund("pay_7")\n    print(receipt["id"])', 'print(refund("pay_7")["id"])']
)
def test_an_async_tool_called_from_sync_code(tmp_path, use):
    screen = Screen(
        tmp_path,
        BEGIN
        + TOOL.replace("def refund", "async def refund")
        + CALL.replace('print(refund("pay_7"))', use),
    )

    assert screen.failed
    screen.says(
        "was called without await: nothing was run or sent.",
        "Await it inside an `async def`, and start that with asyncio.run(...)",
    )


def test_an_async_tool_called_from_sync_code_whose_result_is_kept(tmp_path):
    screen = Screen(
        tmp_path,
        BEGIN
        + TOOL.replace("def refund", "async def refund")
        + CALL.replace("print(", "receipt = ("),
    )

    assert screen.failed
    screen.says(
        "refund is an async tool and was called without await: nothing was run, and nothing was"
        " sent.",
        "Await it inside",
    )


def test_an_async_tool_that_is_run_by_asyncio_is_no_mistake(tmp_path):
    tool = TOOL.replace("def refund", "async def refund")

    screen = Screen(
        tmp_path, BEGIN + tool + CALL.replace('refund("pay_7")', 'asyncio.run(refund("pay_7"))')
    )

    assert screen.text == "refunded\n"


@pytest.mark.parametrize("given", ["42", "uuid.uuid4()"])
def test_an_id_as_scope(tmp_path, given):
    screen = Screen(tmp_path, BEGIN + TOOL + CALL.replace('"chat-42"', given))

    assert screen.failed
    screen.says(
        "the id of something, and must be a text. Nothing was sent.",
        'Say of what it is the id: f"chat-{id}". It has to be the same on every attempt',
    )


def test_the_id_of_one_call_as_scope(tmp_path):
    screen = Screen(tmp_path, BEGIN + TOOL + CALL.replace("chat-42", "call_Zk3vXq81LmN0pQr7TyUw"))

    assert screen.failed
    screen.says(
        "scope contains the id of one call",
        "A key must be the same on every attempt",
        "Nothing was sent.",
    )


# ---------------------------------------------------------------- and two that only slow things
# down, or do nothing


def test_a_sync_tool_on_a_running_loop(tmp_path):
    screen = Screen(
        tmp_path, BEGIN + TOOL + MAIN.replace("CALL", 'refund("pay_7"), refund("pay_7")')
    )

    assert not screen.failed
    screen.says(
        "refund is a plain def and was called on a running event loop: every other task of the loop"
        " waits until it returns.",
        "Make it async def, or call it with `await asyncio.to_thread(refund, ...)`, which stays in"
        " its step.",
        "refunded refunded",
    )
    assert screen.text.count("plain def") == 1


def test_a_sync_tool_in_a_thread_of_a_loop_is_no_mistake(tmp_path):
    screen = Screen(
        tmp_path, BEGIN + TOOL + MAIN.replace("CALL", 'await asyncio.to_thread(refund, "pay_7")')
    )

    assert screen.text == "refunded\n"


def test_a_variable_that_nothing_reads(tmp_path):
    screen = Screen(
        tmp_path, 'import os\nos.environ["EFFECTONCE_SPOL"] = "/var/spool"\n' + BEGIN + TOOL + CALL
    )

    assert not screen.failed
    screen.says(
        "The environment has EFFECTONCE_SPOL, which nothing reads: it has no effect. Did you mean"
        " EFFECTONCE_SPOOL?"
    )
