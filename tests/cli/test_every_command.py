"""Every command in a message, on a page or in the docs is one that the command line takes: its
name, its options, and as many arguments as it has.
"""

import ast
import functools
import re
import shlex

import click
import pytest
from tests.cli.desk import ROOT

from effectonce.cli import COMMANDS
from effectonce.cli import main as effectonce

SOURCE = ROOT / "src" / "effectonce"
# in backticks, in <code>, behind a prompt or on a line of its own
MARKED = re.compile(
    r"`(effectonce [a-z][^`]+)`|<code>(effectonce [^<]+)</code>|^\s*\$ (effectonce .*)$"
    rf"|^\s*(effectonce (?:{'|'.join(COMMANDS)})\b.*)$",
    re.MULTILINE,
)
# among words: as far as it may be one
BARE = re.compile(r"(?<![`>.\w-])(effectonce [a-z]+(?: [\w./:=-]*\w| --)*)")
JINJA = re.compile(r'\{\{ visit\.runnable\("(.*?)"(?: ~ [^}]+)?\) \}\}')
HOLE = "HOLE"  # what is filled in at run time


def texts_of(path):
    """The texts of a file that people may read, each with its line."""
    text = path.read_text()
    if path.suffix != ".py":
        text = JINJA.sub(lambda found: found[1] + (HOLE if found[1].endswith(" ") else ""), text)
        return [(1, re.sub(r"\{\{.*?\}\}", HOLE, text))]
    found = []
    inside = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            parts = [p.value if isinstance(p, ast.Constant) else HOLE for p in node.values]
            found.append((node.lineno, "".join(parts)))
        elif isinstance(getattr(node, "value", None), str) and id(node) not in inside:
            found.append((node.lineno, node.value))
    return found


def commands_of(text):
    """What stands there as a command; words after a name of the package are none."""
    text = re.sub(r"\\\n\s*", "", text)
    marked = [next(filter(None, groups)) for groups in MARKED.findall(text)]
    bare = BARE.findall(MARKED.sub("", text))
    named = [shortest(each) for each in bare if each.split()[1] in COMMANDS]
    return [each for each in (*marked, *named) if "COMMAND" not in each]


def shortest(words):
    """Without the words of the sentence that it stands in."""
    while complaint(words) and re.search(r" [a-z]+$", words):
        words = words.rpartition(" ")[0]
    return words


def words_of(command):
    """Its words, up to a pipe, a redirection or a comment."""
    command = re.sub(r"\$\([^)]*\)", HOLE, command)
    command = re.split(r" [|<>#&]|;|…| 2>", command)[0]
    command = re.sub(r"\{\w+(?:![rs])?\}", HOLE, command)
    try:
        return shlex.split(command)[1:]
    except ValueError:
        return command.split()[1:]


def parsed(command):
    """Which command it is, and what is left over."""
    words, at = words_of(command), effectonce
    ctx = click.Context(at, info_name="effectonce", **effectonce.context_settings)
    while isinstance(at, click.Group):
        if "--" in words and at.name == "mcp" and words[0] not in at.commands:
            words = ["run", *words]
        parser = at.make_parser(ctx)
        parser.allow_interspersed_args = False
        _, words, _ = parser.parse_args(words)
        if not words:
            return at, []
        following = at.get_command(ctx, words[0])
        if following is None:
            raise click.UsageError(f"no command {words[0]!r} of {ctx.command_path}")
        ctx = click.Context(following, info_name=words[0], parent=ctx)
        at, words = following, words[1:]
    _, left, _ = at.make_parser(ctx).parse_args(words)
    return at, left


def complaint(command):
    try:
        _, left = parsed(command)
    except click.UsageError as error:
        return error.format_message()
    return f"too many: {left}" if left and "--" not in words_of(command) else ""


FILES = [
    *SOURCE.rglob("*.py"),
    *SOURCE.rglob("*.html"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "README.md",
    *(ROOT / "examples").rglob("*.py"),
]


@functools.cache
def printed_commands():
    """Return each command that a file shows, as (file, command)."""
    return sorted(
        {
            (str(path.relative_to(ROOT)), " ".join(command.split()))
            for path in FILES
            for _, text in texts_of(path)
            for command in commands_of(text.replace("{}", HOLE))
        }
    )


def test_there_are_many():
    assert len(printed_commands()) > 150
    places = {path.split("/")[0] for path, _ in printed_commands()}
    assert places == {"src", "docs", "README.md", "examples"}


def test_every_command_parses():
    complaints = [
        f"{path}: {command}: {complaint(command)}"
        for path, command in printed_commands()
        if complaint(command)
    ]
    assert complaints == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("effectonce efect show X", "no command 'efect'"),
        ("effectonce effect shows X", "no command 'shows'"),
        ("effectonce effect show X --colour", "--colour"),
        ("effectonce effect show X Y", "too many"),
        ("effectonce status --store", "--store"),
    ],
)
def test_a_wrong_one_would_be_found(command, said):
    assert said in complaint(command)
