"""Commands that are printed for a person to give next. Each runs as it is printed."""

from __future__ import annotations

import shlex

from effectonce.cli._settings import given, settings

_ANY_APP = "--app MODULE:GUARD"


def see(reference: str) -> str:
    """The advice to look at an effect."""
    return f"See it: {runnable(f'effectonce effect show {reference}')}"


def runnable(command: str) -> str:
    """*command* with the store, the app and the settings file that were given as options here.

    What comes from the environment or from a settings file need not be given again. A command
    that needs an app gets the one in force.
    """
    options, app = given(), settings()["app"]
    if _ANY_APP in command and app.value:
        command = command.replace(f" {_ANY_APP}", "")
        options.pop("store", None)  # it takes none: an app has its own
    elif _ANY_APP in command:
        options.clear()
    return " ".join(
        [command, *(f"--{name} {shlex.quote(str(value))}" for name, value in options.items())]
    )
