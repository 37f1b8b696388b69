"""`effectonce lint`: what would a retry do twice, as far as the source shows it?"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from effectonce._text import on_one_line
from effectonce.cli._console import busy, console, echo, say
from effectonce.cli._exits import NEEDS_YOU
from effectonce.cli._options import takes
from effectonce.cli._output import for_machines, print_json, print_line, print_one, shape
from effectonce.lint import CODES, LintFinding, RulePage, check, files, page

NO_RULE = "there is no rule {!r}. `effectonce lint --explain all` has them all."


def _rules(value: str) -> frozenset[str]:
    """Codes of rules, with commas; the beginning of one stands for all that begin so."""
    chosen: set[str] = set()
    for given in re.split(r"[,\s]+", value.strip().upper()):
        meant = {code for code in CODES if given and code.startswith(given)}
        if not meant:
            raise click.BadParameter(NO_RULE.format(given))
        chosen |= meant
    return frozenset(chosen)


@click.command()
@click.argument(
    "paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--select",
    multiple=True,
    type=_rules,
    metavar="CODES",
    help="Only these rules: EO101,EO303, or EO1 for all of keys.",
)
@click.option("--ignore", multiple=True, type=_rules, metavar="CODES", help="Not these rules.")
@click.option(
    "--explain",
    metavar="CODE",
    help=(
        "Say why a rule is there, with an example both ways, and check nothing. `all` explains all."
    ),
)
@takes("output", "color")
def lint(
    *,
    paths: tuple[Path, ...],
    select: tuple[frozenset[str], ...],
    ignore: tuple[frozenset[str], ...],
    explain: str | None,
) -> None:
    r"""Look for keys, effects and retries that would go wrong: the checklist before a merge.

    Reads the Python files of each PATH, by default of the current folder, and imports nothing of
    them. Tests, hidden folders, environments and node_modules are passed by unless they are
    named. What one file protects (an adapter for an agent, the middleware of an API) is
    protected in all that are checked together, so give it the whole tree. A comment `#
    effectonce: allow EO101 because ...` lets one finding pass. The exit code is 0 if nothing is
    found, 3 if something is.

    \b
    Examples:
      effectonce lint
      effectonce lint src --ignore EO304 --json
      effectonce lint --explain EO101
    """
    if explain is not None:
        _explain(explain)
        return
    chosen = frozenset[str]().union(*select) if select else frozenset(CODES)
    codes = chosen - frozenset().union(*ignore)
    given = paths or (Path(),)
    checked = list(files(given))
    if not checked:
        raise click.UsageError(f"there is no Python file in {', '.join(map(str, given))}.")
    collects = gc.isenabled()
    gc.disable()  # nothing here is a cycle, and collecting would look at every tree again
    try:
        with busy("Checking"):
            found = check(checked, codes=codes)
    finally:
        if collects:
            gc.enable()
    _print(found, len(checked))
    if found:
        raise SystemExit(NEEDS_YOU)


# ---------------------------------------------------------------- findings


def _print(found: list[LintFinding], checked: int) -> None:
    match shape():
        case "json":
            about = {"schema": "effectonce.lint/1", "files": checked}
            print_json({**about, "findings": [_as_data(finding) for finding in found]})
        case "jsonl":
            for finding in found:
                print_line(_as_data(finding), "lint-finding")
        case "plain":
            for finding in found:
                echo(on_one_line(f"{_place(finding)}: {finding.code} {finding.message}"))
        case _:
            _tell(found)
    if not for_machines():
        say(_summary(found, checked))


def _as_data(finding: LintFinding) -> dict[str, Any]:
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "code": finding.code,
        "name": page(finding.code).name,
        "message": finding.message,
    }


def _place(finding: LintFinding) -> str:
    return f"{finding.path}:{finding.line}:{finding.column}"


def _tell(found: Iterable[LintFinding]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    screen = console()
    for finding in found:
        place = (on_one_line(f"{_place(finding)}:"), "bold")
        code = (finding.code, "bold red")
        title = Text.assemble(place, " ", code, f" {page(finding.code).name}")
        screen.print(title, soft_wrap=True)
        screen.print(Padding(Text(finding.message), (0, 0, 0, 2)))


def _summary(found: list[LintFinding], checked: int) -> str:
    among = f"{checked:,} file{'s' if checked != 1 else ''}"
    if not found:
        return f"Nothing found in {among}."
    paths = len({finding.path for finding in found})
    spoken = f"{len(found):,} finding{'s' if len(found) != 1 else ''} in {paths:,} of {among}."
    return f"{spoken} More about one: effectonce lint --explain {found[0].code}"


# ---------------------------------------------------------------- rules


def _explain(given: str) -> None:
    if given == "all":
        rules = [_rule(page(code)) for code in CODES]
        print_one({"rules": rules}, lambda: echo(markdown()), schema="rules")
        return
    if given.upper() not in CODES:
        raise click.BadParameter(NO_RULE.format(given), param_hint="--explain")
    one = page(given.upper())
    print_one(_rule(one), lambda: echo(one.markdown), schema="rule")


def _rule(one: RulePage) -> dict[str, str]:
    return {"code": one.code, "name": one.name, "why": one.why, "bad": one.bad, "good": one.good}


def markdown() -> str:
    """All rules, for the page of the reference."""
    return "\n\n".join(f"##{page(code).markdown}" for code in CODES)
