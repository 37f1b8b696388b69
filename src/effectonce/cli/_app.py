"""The guard that a command works with: the user's own, or one made for the store that was named."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._exits import NOT_FOUND, STORE_UNREACHABLE, Stop
from effectonce.cli._settings import BadSettings, here, setting, settings
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Guard, Health
    from effectonce._tools.tool import GuardedTool

NO_STORE = (
    "Which store? Give --store URL or --app MODULE:GUARD, set EFFECTONCE_STORE, or write "
    '`store = "sqlite:///effects.db"` into effectonce.toml.'
)
NO_APP = "This needs your tools: give --app MODULE:GUARD, or set EFFECTONCE_APP."

_MADE_HERE: weakref.WeakSet[Guard] = weakref.WeakSet()


@contextlib.contextmanager
def guard_here(*, create: bool = False) -> Iterator[Guard]:
    """The guard in force. A file that is not there is not made by looking, unless *create*."""
    guard = the_guard()
    inner = getattr(guard.store, "_store", None)
    path = getattr(guard.store, "path", None) or getattr(inner, "path", None)
    if not create and isinstance(path, Path):
        _refuse_missing(path)
    try:
        yield guard
    finally:
        guard.close()


def _refuse_missing(path: Path) -> None:
    try:
        there = path.exists()
    except OSError as error:  # a folder that may not be entered
        raise Stop(f"{path} cannot be looked at: {error.strerror}.", STORE_UNREACHABLE) from None
    if not there:
        advice = "The first guarded call makes it; there is nothing to look at yet."
        raise Stop(f"there is no file {path}.", STORE_UNREACHABLE, advice)


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """A URL, or keys, that nothing can be opened with were given wrongly."""
    from effectonce import ContractViolation

    try:
        yield
    except ContractViolation as error:
        raise click.UsageError(str(error)) from None


def the_guard() -> Guard:
    """By --app or --store; the stronger wish wins, and an app knows more than a URL."""
    known = settings()
    app, store, file = known["app"], known["store"], known["store_file"]
    url = min(store, file, key=lambda value: value.rank)
    if app.value and app.rank <= url.rank:
        return load_app(app.value)
    if not url.value:
        raise click.UsageError(NO_STORE + offered())
    return _guard_of_store(read_setting(url.value, "store_file") if url is file else url.value)


def app_here() -> Guard:
    """The user's own guard: for what only his code knows."""
    app = setting("app")
    if not app:
        raise click.UsageError(NO_APP + offered())
    return load_app(app)


def offered() -> str:
    """An app that a file names which was only found here is not run unasked."""
    origin = settings()["app"].origin
    return "" if origin == "default" else f" {origin}."


def load_app(app: str) -> Guard:
    """The guard that a module of the user's has, from the folder where the command was given."""
    from effectonce import Guard

    if not setting("reconcile"):
        os.environ["EFFECTONCE_RECONCILE"] = "false"  # the guard reads it when it is made
    if settings()["counters"].origin != "default":
        os.environ["EFFECTONCE_COUNTERS"] = str(setting("counters"))
    guard = imported("--app", app, "guard")
    if not isinstance(guard, Guard):
        raise click.UsageError(f"--app {app} is a {type(guard).__name__}, not a Guard.")
    return guard


def imported(option: str, named: str, usual: str) -> Any:
    """What a MODULE:NAME of an option is; *usual* is the name if there is none."""
    module, _, name = named.partition(":")
    sys.path.insert(0, str(here()))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is talk
            return getattr(importlib.import_module(module), name or usual)
    except Exception as error:  # noqa: BLE001  # a user's module
        plain = isinstance(error, ImportError | AttributeError | ValueError)
        raise click.UsageError(f"{option} {named}: {error if plain else repr(error)}.") from None


def health_of(guard: Guard) -> Health:
    """How its store is. A guard that was made here has no spool to say something about."""
    from msgspec.structs import replace

    health = guard.health()
    if guard.spool is not None:
        return health
    findings = (finding for finding in health.findings if finding.subject != "spool")
    return replace(health, findings=tuple(findings))


def _guard_of_store(url: str) -> Guard:
    """Without a spool: outcomes that wait here belong to the process that put them there."""
    from effectonce import Guard, Keyring
    from effectonce.stores import open_store

    if url.startswith("memory:"):
        raise click.UsageError(
            "A memory store lives in its own process: there is nothing to see from here."
        )
    if setting("keys_file"):
        os.environ["EFFECTONCE_KEYS"] = ",".join(
            read_setting(setting("keys_file"), "keys_file").split()
        )
    with opening():
        if os.environ.get("EFFECTONCE_KEYS"):
            # No key is derived here, so any secret will do.
            guard = Guard(open_store(url), keyring=Keyring.from_env(), secret=os.urandom(16))
        else:
            guard = Guard(open_store(url))
    _MADE_HERE.add(guard)
    return guard


def made_here(guard: Guard) -> bool:
    """Is it one for a store alone? Then it does not know the secret of yours."""
    return guard in _MADE_HERE


def read_setting(path: str, name: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{name} = {path}: {error}") from None


# ---------------------------------------------------------------- what the user's guard has


def tool_named(guard: Guard, name: str) -> GuardedTool:
    import difflib

    tools = tools_of(guard)
    if name not in tools:
        near = difflib.get_close_matches(name, tools, 1)
        has = f"It has: {', '.join(tools) or 'none'}."
        advice = f"Did you mean {near[0]!r}?" if near else has
        raise Stop(f"there is no tool {name!r}.", NOT_FOUND, advice)
    return tools[name]
