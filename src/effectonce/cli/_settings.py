"""Settings, and where each came from.

The stronger wins: an option, `EFFECTONCE_*` in the environment, the nearest `effectonce.toml`
upward, `[tool.effectonce]` in the nearest `pyproject.toml` upward, the user's own file, the
default. A secret that grants access is never an option and never in a settings file: it is in
the environment, or in a file of its own that a setting names. A file that only lies on the way
upward is not trusted: it is not read if it belongs to another user, and code that it names is
not run.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from effectonce._text import on_one_line

FILE, PREFIX = "effectonce.toml", "EFFECTONCE_"
_FLAGS, _RESOLVED = "effectonce.flags", "effectonce.settings"
_UNASKED = 98  # the rank of an app that only a file found on the way upward names
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Setting(NamedTuple):
    """One setting. `default` also says what type it has."""

    name: str
    default: Any
    about: str
    option: str = ""  # "": it has none
    choices: tuple[str, ...] = ()
    least: int = 1  # of a number

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


SETTINGS = (
    Setting(
        "store",
        "",
        "The URL of the store. One with a password in it belongs in "
        "`EFFECTONCE_STORE` or in `store_file`.",
        "--store",
    ),
    Setting(
        "store_file", "", "A file that holds the URL of the store, for one with a password in it."
    ),
    Setting(
        "app",
        "",
        "A guard of yours, as `MODULE:GUARD`: its store, and what only your code "
        "knows: tools, probes, breakers.",
        "--app",
    ),
    Setting(
        "keys_file",
        "",
        "A file with the keys of a sealed store, as `EFFECTONCE_KEYS` has them: "
        "`id:base64`, one to a line.",
    ),
    Setting("tenant", "", "Whose effects to show. Without it, those of all tenants.", "--tenant"),
    Setting(
        "by",
        "",
        "Who settles: a name that will be on the record. Without it, the user of "
        "this machine, unless that is root.",
        "--by",
    ),
    Setting(
        "output",
        "auto",
        "How data is printed. `auto` is a table on a terminal and tab-separated lines elsewhere.",
        "--output",
        ("auto", "table", "json", "jsonl"),
    ),
    Setting(
        "color",
        "auto",
        "Whether output is coloured; `NO_COLOR` and `FORCE_COLOR` count for `auto`.",
        "--color",
        ("auto", "always", "never"),
    ),
    Setting("limit", 50, "How many rows a list has.", "--limit"),
    Setting(
        "reconcile",
        True,
        "Whether the guard of an app asks probes in the background while a command runs. "
        "Guards elsewhere read `EFFECTONCE_RECONCILE`, and `Guard(reconcile=)`.",
    ),
    Setting(
        "counters",
        90,
        "For how many days the store keeps what `effectonce report` shows; 0: nothing is "
        "counted. Guards elsewhere read `EFFECTONCE_COUNTERS`, and `Guard(counters=)`.",
        least=0,
    ),
    Setting(
        "no_input",
        False,
        "Never ask: what would be asked for has to be given as an option.",
        "--no-input",
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


class Value(NamedTuple):
    """A setting as it is in force."""

    value: Any
    origin: str  # an option, a variable, a file, or "default"
    rank: int  # 0 is the strongest


class BadSettings(click.ClickException):
    """A settings file, or a variable, that cannot be used."""

    exit_code = 2


# ---------------------------------------------------------------- in a command


def remember(ctx: click.Context, name: str, value: Any) -> None:
    """An option was given. The innermost one counts."""
    ctx.meta.setdefault(_FLAGS, {})[name] = value
    ctx.meta.pop(_RESOLVED, None)


def given() -> dict[str, Any]:
    """The options of this command that say where to look."""
    flags = click.get_current_context().meta.get(_FLAGS, {})
    return {name: flags[name] for name in ("store", "app", "config") if name in flags}


def setting(name: str) -> Any:
    """The value that is in force here."""
    return settings()[name].value


def settings() -> dict[str, Value]:
    """All of them, looked up once for each command."""
    meta = click.get_current_context().meta
    if _RESOLVED not in meta:
        from effectonce._environment import report  # not for --help, which needs no settings
        from effectonce.cli._console import echo

        report(os.environ)
        config, folder = named_file(), here()
        flags = {name: flag for name, flag in meta.get(_FLAGS, {}).items() if name != "config"}
        meta[_RESOLVED] = resolve(flags, os.environ, folder, config)
        for path in () if config else _found_upward(folder):
            if not _is_trusted(path):
                warning = (
                    f"{path} is not read: it belongs to another user, or its folder does. Name it"
                    " with --config to use it."
                )
                echo(on_one_line(warning), err=True)
    resolved: dict[str, Value] = meta[_RESOLVED]
    return resolved


def named_file() -> Path | None:
    """The settings file that was named, if one was."""
    flag = click.get_current_context().meta.get(_FLAGS, {}).get("config")
    named = flag or os.environ.get(PREFIX + "CONFIG")
    return None if named is None else Path(named)


# ---------------------------------------------------------------- resolving


def resolve(
    flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path, config: Path | None = None
) -> dict[str, Value]:
    """Every setting with its value and origin."""
    layers: list[Iterator[tuple[str, Value]]] = [
        ((name, Value(value, BY_NAME[name].option, 0)) for name, value in flags.items()),
        _from_environment(environ),
        *(_from_file(path, rank, config) for rank, path in enumerate(files(folder, config), 2)),
    ]
    found: dict[str, Value] = {}
    for layer in layers:
        for name, value in layer:
            if name not in found or found[name].rank == _UNASKED:
                found[name] = value
    store = found.get("store")
    if store is not None and store.origin != BY_NAME["store"].variable:
        refuse_password(store.value, store.origin)
    return {s.name: found.get(s.name, Value(s.default, "default", 99)) for s in SETTINGS}


def files(folder: Path, config: Path | None = None) -> list[Path]:
    """The settings files that count, the strongest first. One that was named has to be there."""
    if config is not None and not _is_file(config):
        raise BadSettings(f"there is no settings file {config}")
    trusted = (path for path in _found_upward(folder) if _is_trusted(path))
    project = trusted if config is None else (config,)
    return [path for path in (*project, user_file()) if _is_file(path)]


def _found_upward(folder: Path) -> list[Path]:
    found: list[Path] = []
    for name in (FILE, "pyproject.toml"):
        paths = (above / name for above in (folder, *folder.parents))
        found += itertools.islice(filter(_is_file, paths), 1)  # the nearest
    return found


def _is_trusted(path: Path) -> bool:
    """Do it, what it links to, and its folder belong to this user, or to root?"""
    if not hasattr(os, "geteuid"):
        return True
    owners = {path.lstat().st_uid, path.stat().st_uid, path.parent.stat().st_uid}
    return owners <= {os.geteuid(), 0}


def here() -> Path:
    """The folder where the command was given. If it was removed meanwhile, nothing is in it."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _is_file(path: Path) -> bool:
    """One that may not be looked at is not there: the folder may be closed to this user."""
    try:
        return path.is_file()
    except OSError:
        return False


def user_file() -> Path:
    """Where this user's own settings are, on this system."""
    from platformdirs import user_config_path

    return user_config_path("effectonce", appauthor=False) / FILE


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    for known in SETTINGS:
        text = environ.get(known.variable)
        if text:
            yield known.name, Value(_checked(known, text, known.variable), known.variable, 1)


def _from_file(path: Path, rank: int, config: Path | None) -> Iterator[tuple[str, Value]]:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}") from None
    if path.name == "pyproject.toml":
        tools = document.get("tool", {})
        document = tools.get("effectonce", {}) if isinstance(tools, dict) else {}
        if not isinstance(document, dict):
            raise BadSettings(
                f"{path}, line {_line(text, 'effectonce')}: [tool.effectonce] is a table, not"
                f" {document!r}"
            )
    for name, value in document.items():
        where = f"{path}, line {_line(text, name)}"
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, 1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise BadSettings(f"{where}: there is no setting {name!r}{guess}")
        checked = _checked(BY_NAME[name], value, where)
        if name.endswith("_file"):
            checked = str(path.parent / checked)  # beside the file that names it
        if name == "app" and path not in (config, user_file()):
            origin = f"{path} names one that is run when you ask for it: --app {checked}"
            yield name, Value("", origin, _UNASKED)
        else:
            yield name, Value(checked, str(path), rank)


def _line(text: str, name: str) -> int:
    """Where a name stands. TOML's reader does not say, and a person wants to know."""
    names = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[=.]|\s*\[[\w.]*\b{re.escape(name)}\]")
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if names.match(line)), 1)


def _checked(known: Setting, value: Any, where: str) -> Any:
    if isinstance(known.default, bool):
        text = str(value).lower()
        if text not in _TRUE + _FALSE:
            raise BadSettings(f"{where}: {known.name} is true or false, not {value!r}")
        return text in _TRUE
    if isinstance(known.default, int):
        if isinstance(value, bool) or not str(value).isdigit() or int(value) < known.least:
            least = known.least
            raise BadSettings(f"{where}: {known.name} is a number from {least}, not {value!r}")
        return int(value)
    if not isinstance(value, str):
        raise BadSettings(f"{where}: {known.name} is a text, not {value!r}")
    if known.choices and value not in known.choices:
        one_of = ", ".join(known.choices)
        raise BadSettings(f"{where}: {known.name} is one of {one_of}, not {value!r}")
    return value


def refuse_password(
    url: str, origin: str, or_into: str = "a file of its own that the setting store_file names"
) -> None:
    """Options are seen by all users of this machine, and settings files are checked in."""
    userinfo = url.partition("://")[2].rpartition("@")[0]
    if ":" in userinfo or re.search(r"(?i)[?&][^=&]*pass[^=&]*=", url):
        raise BadSettings(
            f"{origin} holds a password. Put the URL into the environment,"
            f" {BY_NAME['store'].variable}, or into {or_into}."
        )
