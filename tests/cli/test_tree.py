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


def test_the_tree_is_whole():
    assert {path.split()[1] for path, _, _ in TREE[1:]} == set(COMMANDS)
    assert len(LEAVES) > 25


def test_every_command_has_a_help_with_an_example_of_itself():
    for path, ctx, command in TREE:
        help_text = command.get_help(ctx)
        assert "\n  Examples:\n" in help_text, path
        assert re.search(rf"^    .*{re.escape(path)}", help_text, re.MULTILINE), (
            f"an example of {path} stands on a line of its own"
        )
        assert "\\b" not in help_text, path
        assert (command.help or "").strip().splitlines()[0].endswith((".", "?")), path


def test_every_option_has_a_help():
    assert [
        (path, parameter.name)
        for path, ctx, command in TREE
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option) and not parameter.help
    ] == []


def test_every_command_and_option_is_in_the_reference():
    for path, _, command in TREE:
        section = re.search(
            rf"^##+ `{re.escape(path)}(?: [^`]*)?`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL
        )
        assert section is not None, path
        for option in options_of(command):
            assert option.opts[-1] in section[1], path


def options_of(command):
    return [each for each in command.params if isinstance(each, click.Option)]


def test_the_reference_is_current():
    """After a change: `python -m effectonce.cli._reference`, between the two marks."""
    shown = re.search(r"<!-- commands -->\n(.*?)<!-- /commands -->", PAGE, re.DOTALL)[1]

    assert shown == markdown() + "\n"


def test_every_exit_code_is_in_the_help():
    shown = TREE[0][2].get_help(TREE[0][1])

    assert [code for code in EXITS if not re.search(rf"\b{code} \w", shown)] == []


# These look at no store, or need no guard.
WITHOUT_A_STORE = set(
    """
    demo gateway mcp simulate classify completion config docs examples metrics lint provider
    """.split()
)
WITHOUT_JSON = {"effectonce effect export", "effectonce dlq export", "effectonce serve"}


def test_every_command_takes_the_same_options():
    for path, _, command in LEAVES:
        if path.split()[1] in WITHOUT_A_STORE:
            continue
        names = {name for option in options_of(command) for name in option.opts}
        assert names >= {"--app", "--config"}, path
        assert "--json" in names or path in WITHOUT_JSON, path


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


HEAVY = set(
    """
    asyncio msgspec orjson rich platformdirs tomllib sqlite3 psycopg hiredis threading.Timer
    """.split()
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        pytest.param(["--version"], marks=pytest.mark.long),
        ["effect", "--help"],
        pytest.param(["effect", "show", "--help"], marks=pytest.mark.long),
        pytest.param(["indoubt", "-h"], marks=pytest.mark.long),
        pytest.param(["dlq", "redrive", "-h"], marks=pytest.mark.long),
        pytest.param(["workflow", "-h"], marks=pytest.mark.long),
        pytest.param(["audit", "list", "-h"], marks=pytest.mark.long),
        pytest.param(["docs", "-h"], marks=pytest.mark.long),
        pytest.param(["metrics", "-h"], marks=pytest.mark.long),
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
