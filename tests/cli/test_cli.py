import os
import subprocess
import sys
from pathlib import Path

import pytest

from effectonce import __version__
from effectonce.cli._console import wants_color


def run(*command, **environ):
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        check=False,
    )


def effectonce(*arguments):
    return run("-m", "effectonce.cli", *arguments)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option):
    shown = effectonce(option)

    assert shown.returncode == 0
    assert "Usage: effectonce" in shown.stdout
    assert "demo" in shown.stdout
    assert shown.stderr == ""


def test_the_installed_command_is_the_same_one():
    script = Path(sys.executable).parent / "effectonce"

    assert run(script, "--help").stdout == effectonce("--help").stdout
    assert run("-m", "effectonce", "--help").stdout == effectonce("--help").stdout


def test_every_command_has_help_with_an_example():
    shown = effectonce("demo", "-h")

    assert shown.returncode == 0
    assert "Examples:" in shown.stdout


def test_the_version_is_the_package_version():
    assert effectonce("--version").stdout.strip() == f"effectonce, version {__version__}"


def test_an_unknown_command_is_wrong_usage():
    assert effectonce("dmeo").returncode == 2


def test_help_does_not_import_what_only_commands_need():
    shown = run(
        "-c",
        "import sys; from effectonce.cli import main; main(['-h'], standalone_mode=False);"
        " sys.exit('rich' in sys.modules)",
    )

    assert shown.returncode == 0


@pytest.mark.parametrize(
    ("error", "exit_code", "action"),
    [
        ("InDoubt", 1, "Do not call again"),
        ("StoreUnavailable", 7, "may you use it?"),
    ],
)
def test_an_error_says_what_happened_and_what_to_do(error, exit_code, action):
    ended = run("-c", FAILING, error)

    assert ended.returncode == exit_code
    assert ended.stdout == ""
    assert "Error: refund eff_1 went wrong\n" in ended.stderr
    assert action in ended.stderr
    assert "Traceback" not in ended.stderr


FAILING = """
import sys
import effectonce
from effectonce.cli import main

@main.command()
def fail():
    raise getattr(effectonce, sys.argv[1])("refund eff_1 went wrong")

main(["fail"])
"""


@pytest.mark.parametrize(
    ("choice", "environ", "is_tty", "expected"),
    [
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
    ],
)
def test_the_stronger_wish_about_colour_wins(choice, environ, is_tty, expected):
    assert wants_color(choice, environ, is_tty=is_tty) is expected


@pytest.mark.parametrize(
    ("options", "environ", "colored"),
    [
        (["paint"], {}, False),
        (["paint"], {"FORCE_COLOR": "1"}, True),
        (["paint"], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always", "paint"], {"NO_COLOR": "1"}, True),
        (["--color", "always", "paint", "--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_plain_output_has_no_escape_codes_at_all(options, environ, colored):
    painted = run(
        "-c",
        PAINTING,
        *options,
        **{"NO_COLOR": "", "FORCE_COLOR": "", "CLICOLOR_FORCE": "", **environ},
    )

    assert painted.stdout == ("\x1b[1;31mred\x1b[0m\n" if colored else "red\n")


PAINTING = """
import sys
from effectonce.cli import main
from effectonce.cli._console import color_option, console

@main.command()
@color_option
def paint():
    console().print("[bold red]red[/]")

main(sys.argv[1:])
"""


def test_a_terminal_without_our_symbols_is_no_reason_to_fail():
    painted = run("-c", PAINTING.replace("red[/]", "₹ ✓[/]"), "paint", PYTHONIOENCODING="ascii")

    assert painted.returncode == 0
    assert painted.stdout == "? ?\n"
