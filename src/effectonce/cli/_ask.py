"""Before something is changed: what and how many, who says so and why, and whether that is really meant."""

from __future__ import annotations

import getpass
import os
import sys

import click

from effectonce.cli._exits import FAILED, Stop
from effectonce.cli._settings import setting


def can_ask() -> bool:
    """Is there somebody to ask?"""
    return sys.stdin.isatty() and not setting("no_input")


def make_sure(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given. Whoever cannot be asked has to give it."""
    if yes:
        return
    if not can_ask():
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes.")
    if not click.confirm(question, err=True):
        raise Stop("Nothing was changed.", FAILED)


def reason_given(reason: str | None) -> str:
    """Why it is done. Somebody will ask."""
    if reason is None and can_ask():
        reason = click.prompt("Reason", err=True, type=str)
    if reason is None or not reason.strip():
        raise click.UsageError("Say why with --reason: it stays on the record.")
    return reason.strip()


def who() -> str:
    """Whose decision it is: --by, the setting, or the user of this machine. Root is nobody in particular."""
    named: str = setting("by") or os.environ.get("SUDO_USER", "") or _login()
    if named in ("", "root"):
        raise click.UsageError("Say who decides: --by NAME, or EFFECTONCE_BY. Root is nobody in particular.")
    return named


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without users
        return ""
