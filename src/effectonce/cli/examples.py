"""`effectonce examples`: programs that run as they are, installed with this version."""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from effectonce.cli._console import echo, say
from effectonce.cli._exits import CHANGED, FAILED, NOT_FOUND, Stop
from effectonce.cli._options import takes
from effectonce.cli._output import field, print_one, print_pairs, print_rows, shape
from effectonce.cli._pages import shipped

FOLDER = "examples"  # where the pages have them: `python examples/refund_agent.py`
HERE = "\0"  # the value of --save without a FILE
# JSON has no comments
SAID = {"mcp_refund.jsonl": "What a client of MCP sends to mcp_bank.py to ask for one refund."}


@dataclass(frozen=True, kw_only=True)
class Example:
    """One file of `examples/`: its first sentence says what it shows, a line of its head what
    has to be installed for it.
    """

    name: str
    file: str
    shows: str
    needs: str
    text: str


@click.command()
@click.argument("name", required=False)
@click.option(
    "--save",
    "file",
    metavar="[FILE]",
    is_flag=False,
    flag_value=HERE,
    help="Write it to FILE, or where the documentation has it: examples/NAME.py. Without a NAME,"
    " write all of them into a new folder.",
)
@takes("output", "color")
def examples(*, name: str | None, file: str | None) -> None:
    r"""See programs that show one thing each, and run offline.

    Without a NAME all are listed, with what has to be installed for each. With a NAME it is
    printed, or written into a file with --save. A file that is there is left as it is.

    \b
    Examples:
      effectonce examples
      effectonce examples refund_agent
      effectonce examples refund_agent --save
      effectonce examples --save shop
    """
    found = _examples()
    if name is None:
        _list(found) if file is None else _save_all(found, Path(_place(file, FOLDER)))
        return
    example = _named(name, found)
    if file is not None:
        _save(example, Path(_place(file, f"{FOLDER}/{example.file}")))
        return
    print_one(asdict(example), lambda: echo(example.text, nl=False), schema="example")


def _examples() -> list[Example]:
    files = sorted(path for path in shipped(FOLDER).iterdir() if path.is_file())
    return [_read(path) for path in files if not path.name.startswith((".", "_"))]


def _read(path: Path) -> Example:
    """Its head is a docstring, or comments."""
    text = path.read_text(encoding="utf-8")
    head = re.match(r'"""(.*?)"""', text, re.DOTALL)
    said = head[1] if head else re.sub(r"(?m)^# ?|^[^#].*$", "", text)
    first = " ".join(said.strip().partition("\n\n")[0].split()).partition(". ")[0].strip(".:")
    needs = re.search(r"^ *pip install (.+?)$", said, re.MULTILINE)
    return Example(
        name=path.stem,
        file=path.name,
        shows=SAID.get(path.name, f"{first}."),
        needs=needs[1] if needs else "",
        text=text,
    )


def _named(name: str, found: list[Example]) -> Example:
    for example in found:
        if name in (example.name, example.file):
            return example
    near = difflib.get_close_matches(name, [example.name for example in found], 1)
    advice = f"Did you mean `effectonce examples {near[0]}`? " if near else ""
    advice += "`effectonce examples` lists all."
    raise Stop(f"there is no example {name!r}.", NOT_FOUND, advice)


def _list(found: list[Example]) -> None:
    if shape() == "table":
        print_pairs([(each.name, each.shows + _needs(each, " Needs: ")) for each in found])
        say("\nRead one: `effectonce examples NAME`. Write it: `effectonce examples NAME --save`.")
        return
    items = [
        {"name": each.name, "shows": each.shows, "needs": each.needs, "file": each.file}
        for each in found
    ]
    columns = [field("NAME", "name"), field("SHOWS", "shows"), field("NEEDS", "needs")]
    print_rows(items, columns, schema="example", empty="")


def _needs(example: Example, before: str) -> str:
    return f"{before}pip install {example.needs}" if example.needs else ""


def _place(file: str, otherwise: str) -> str:
    return otherwise if file == HERE else file


def _save(example: Example, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as new:
            new.write(example.text)
    except FileExistsError as there:
        advice = f"Give another: `effectonce examples {example.name} --save FILE`."
        taken = there.filename
        raise Stop(f"{taken} is there already, and was not changed.", CHANGED, advice) from None
    except OSError as error:
        raise Stop(f"{path} was not written: {error.strerror}.", FAILED) from None
    say(f"Written: {path}.{_needs(example, ' It needs: ')}")


def _save_all(found: list[Example], folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        advice = "Give another: `effectonce examples --save FOLDER`."
        raise Stop(f"{folder} is there already, and was not changed.", CHANGED, advice) from None
    for example in found:
        (folder / example.file).write_text(example.text, encoding="utf-8")
    say(f"Written: {len(found)} files in {folder}.")
