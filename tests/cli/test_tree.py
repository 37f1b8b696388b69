"""The whole tree of commands: help with an example, reference page, exit codes, and what a look
at the help does not import.
"""

import re
import subprocess
import sys

import click
import pytest
from tests.cli.desk import ROOT, environment

from effectonce.cli import COMMANDS
from effectonce.cli._exits import EXITS
from effectonce.cli._reference import markdown, walk

TREE = [(ctx.command_path, ctx, command) for ctx, command in walk()]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
LEAVES = [
    (path, ctx, command) for path, ctx, command in TREE if not isinstance(command, click.Group)
]


def named(tree):
    return pytest.mark.parametrize(
        ("path", "ctx", "command"), tree, ids=[path for path, _, _ in tree]
    )


def test_the_tree_is_whole():
    assert {path.split()[1] for path, _, _ in TREE[1:]} == set(COMMANDS)
    assert len(LEAVES) > 25


@named(TREE)
def test_every_command_has_a_help_with_an_example_of_itself(path, ctx, command):
    help_text = command.get_help(ctx)

    assert "\n  Examples:\n" in help_text
    assert re.search(rf"^    .*{re.escape(path)}", help_text, re.MULTILINE), (
        "an example stands on a line of its own"
    )
    assert "\\b" not in help_text
    assert (command.help or "").strip().splitlines()[0].endswith((".", "?"))


@named(TREE)
def test_every_option_has_a_help(path, ctx, command):
    assert [
        p.name for p in command.get_params(ctx) if isinstance(p, click.Option) and not p.help
    ] == []


@named(TREE)
def test_every_command_and_option_is_in_the_reference(path, ctx, command):
    section = re.search(
        rf"^##+ `{re.escape(path)}(?: [^`]*)?`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL
    )

    assert section is not None
    assert [
        p.opts[0]
        for p in command.params
        if isinstance(p, click.Option) and p.opts[-1] not in section[1]
    ] == []


def test_the_reference_is_current():
    """After a change: `python -m effectonce.cli._reference`, between the two marks."""
    shown = re.search(r"<!-- commands -->\n(.*?)<!-- /commands -->", PAGE, re.DOTALL)[1]

    assert shown == markdown() + "\n"


def test_every_exit_code_is_in_the_help():
    shown = TREE[0][2].get_help(TREE[0][1])

    assert [code for code in EXITS if not re.search(rf"\b{code} \w", shown)] == []


@named(
    [
        leaf
        for leaf in LEAVES
        if leaf[0].split()[1]
        not in (
            "demo",
            "gateway",
            "mcp",
            "simulate",
            "classify",
            "completion",
            "config",
            "docs",
            "examples",
            "metrics",
            "lint",
            "provider",
        )
    ]
)
def test_every_command_takes_the_same_options(path, ctx, command):
    options = {opt for p in command.params if isinstance(p, click.Option) for opt in p.opts}

    assert options >= {"--app", "--config"}
    assert "--json" in options or path in (
        "effectonce effect export",
        "effectonce dlq export",
        "effectonce serve",
    )  # JSON, and pages


# ---------------------------------------------------------------- what is not imported


def modules(*arguments):
    code = (
        "import sys; from effectonce.cli import main; main(sys.argv[1:], standalone_mode=False);"
        " print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return set(done.stderr.split())


HEAVY = {
    "asyncio",
    "msgspec",
    "orjson",
    "rich",
    "platformdirs",
    "tomllib",
    "sqlite3",
    "psycopg",
    "hiredis",
    "threading.Timer",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["effect", "--help"],
        ["effect", "show", "--help"],
        ["indoubt", "-h"],
        ["dlq", "redrive", "-h"],
        ["workflow", "-h"],
        ["audit", "list", "-h"],
        ["docs", "-h"],
        ["metrics", "-h"],
        ["provider", "show", "-h"],
    ],
)
def test_help_imports_nothing_of_the_engine(arguments):
    seen = modules(*arguments)

    assert not {
        m
        for m in seen
        if m.startswith("effectonce.")
        and not m.startswith(("effectonce.cli", "effectonce.views", "effectonce._text"))
    }
    assert not seen & HEAVY


def test_the_help_of_all_imports_no_command():
    assert not {f"effectonce.cli.{name}" for name in COMMANDS} & modules("--help")


def test_completing_a_name_imports_no_command():
    environ = environment(
        _EFFECTONCE_COMPLETE="bash_complete", COMP_WORDS="effectonce s", COMP_CWORD="1"
    )
    command = [sys.executable, "-X", "importtime", "-m", "effectonce.cli"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)

    assert "plain,status" in done.stdout
    assert "effectonce.cli.status" not in done.stderr


def test_a_command_that_is_misspelt_has_a_guess():
    def said(*arguments):
        command = [sys.executable, "-m", "effectonce.cli", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment(), check=False
        )

    assert "Did you mean 'effect'?" in said("efect").stderr
    assert "Did you mean 'show'?" in said("effect", "shwo").stderr
    assert said("xyzzy").returncode == said("efect").returncode == 2
