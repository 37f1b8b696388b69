"""How a command ends: the codes that a script can rely on, and the error that carries one."""

from __future__ import annotations

import shutil
import sys

import click

from effectonce._text import harmless
from effectonce.cli._console import broken_at_words

DONE, FAILED, USAGE, NEEDS_YOU, NOT_ALLOWED, NOT_FOUND, CHANGED, STORE_UNREACHABLE = range(8)
INTERRUPTED = 130
EXITS = {
    DONE: "done",
    FAILED: "failed, or declined",
    USAGE: "wrong usage, or a bad settings file",
    NEEDS_YOU: "`--check`, or `lint`, found something that needs a person",
    NOT_ALLOWED: "not allowed: the contract, or the store, does not permit it",
    NOT_FOUND: "there is no such effect, tool, breaker, provider, page or example",
    CHANGED: "the effect is in another state, or changed meanwhile; or a file is there already",
    STORE_UNREACHABLE: "the store cannot be reached",
    INTERRUPTED: "interrupted",
}


class Stop(click.ClickException):
    """End here: what happened, the exit code, and what to do."""

    def __init__(self, message: str, code: int, advice: str = "") -> None:
        super().__init__(f"{message}\n{advice}" if advice else message)
        # click declares it for classes, and reads it from the error
        self.exit_code = code  # type: ignore[misc]


def fitted(error: click.ClickException) -> click.ClickException:
    """The same in lines that end with a word, for a terminal, which breaks them anywhere.

    What others wrote may be in it, and does not command a terminal.
    """
    # click calls it final, and reads it when it shows the error
    error.message = harmless(error.message)  # type: ignore[misc]
    if not sys.stderr.isatty():
        return error
    width = shutil.get_terminal_size().columns
    before = f"Error: {error.format_message()}".removesuffix(error.message)
    wrapped = broken_at_words(f"{before}{error.message}", width)
    error.message = wrapped[len(before) :]  # type: ignore[misc]
    return error
