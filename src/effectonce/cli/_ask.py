"""Before something is changed: who says so and why, and whether that is really meant."""

from __future__ import annotations

import getpass
import os
import sys
from typing import TYPE_CHECKING

import click

from effectonce._text import harmless
from effectonce.cli._exits import FAILED, NOT_ALLOWED, Stop
from effectonce.cli._settings import setting

if TYPE_CHECKING:
    from effectonce._core.record import Record


def can_ask() -> bool:
    """Is there a person to ask?"""
    return sys.stdin.isatty() and not setting("no_input")


def make_sure(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given. Without a terminal, --yes is required."""
    if yes:
        return
    if not can_ask():
        raise click.UsageError(f"{question} There is no terminal to ask on: give --yes.")
    if not click.confirm(harmless(question), err=True):
        raise Stop("Nothing was changed.", FAILED)


def reason_given(reason: str | None) -> str:
    """Why it is done. It stays on the record."""
    if reason is None and can_ask():
        reason = click.prompt("Reason", err=True, type=str)
    if reason is None or not reason.strip():
        raise click.UsageError("Say why with --reason: it stays on the record.")
    return reason.strip()


def refuse_sealed(record: Record) -> None:
    """What a person says has to be sealed like everything else, and here is no key to do so."""
    from effectonce.views.effects import is_sealed

    if is_sealed(record):
        keys = "Give --app, or the keys (EFFECTONCE_KEYS, keys_file)"
        advice = f"{keys}: what you say has to be sealed, too."
        raise Stop("This store is sealed, and there is no key here.", NOT_ALLOWED, advice)


def who() -> str:
    """Whose decision it is: --by, the setting, or the user of this machine, unless it is root."""
    named: str = setting("by") or os.environ.get("SUDO_USER", "") or _login()
    if named in ("", "root"):
        raise click.UsageError(
            "Say who decides: --by NAME, or EFFECTONCE_BY. Root does not name a person."
        )
    return named


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without users
        return ""
