"""`effectonce classify`: what does this error mean, and what is to be done about it?"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import click

from effectonce import Certainty, Verdict
from effectonce import classify as verdict_of
from effectonce._core.decisions import DecisionRow, gate
from effectonce.cli._console import color_option, console, echo, in_markup
from effectonce.cli._output import for_machines

NAMED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
OTHERS = (
    "A tool may have sent other requests before this answer came. One that sends no other says so:"
    " one_request=True."
)
UNSURE = (Certainty.AMBIGUOUS, Certainty.ACTED)


@click.command()
@click.argument("name", required=False)
@click.option("--status", type=click.IntRange(100, 599), help="The HTTP status.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header of the response. May be repeated.",
)
@click.option("--body", help="The body of the response; - reads it from standard input.")
@click.option("--code", help="The error code, as the service or the exception has it.")
@click.option("--type", "kind", help="The error type, where there is one beside the code.")
@click.option("--message", default="", help="What the error says.")
@click.option("--tables", is_flag=True, help="Print all tables as Markdown and nothing else.")
@click.option(
    "--gate",
    "as_gate",
    is_flag=True,
    help="Print as Markdown what is done about which error, and nothing else.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON and nothing else.")
@color_option
def classify(
    *,
    name: str | None,
    status: int | None,
    headers: tuple[str, ...],
    body: str | None,
    code: str | None,
    kind: str | None,
    message: str,
    tables: bool,
    as_gate: bool,
    as_json: bool,
) -> None:
    r"""What does this error mean, and may it be tried again?

    NAME is an exception class with its package, as a traceback shows it; nothing of it needs to
    be installed. With no arguments, standard input is read: a response with its headers, a JSON
    body, or a traceback.

    \b
    Examples:
      effectonce classify openai.RateLimitError --code insufficient_quota
      effectonce classify --status 429 --header 'retry-after: 20' --body '{"error": {"type": "rate_limit_error"}}'
      curl -si https://api.example.com/pay | effectonce classify --json
    """
    if as_gate or tables:
        from effectonce.cli._tables import gate_markdown, markdown

        echo(gate_markdown() if as_gate else markdown())
        return
    given = {
        "status_code": status,
        "code": code,
        "type": kind,
        "headers": _headers(headers),
        "body": _stdin() if body == "-" else body,
    }
    given = {field: value for field, value in given.items() if value is not None and value != {}}
    if name is None and not given and not message:
        thing = _read(_stdin())
    elif name is not None:
        thing = _error(name, message, given)
    else:
        thing = {**given, "message": message}
    verdict = verdict_of(thing, now=time.time())
    if as_json or for_machines():
        echo(json.dumps(_as_data(verdict)))
    else:
        _tell(verdict)


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [line.partition(":") for line in given]
    wrong = [line for line, (_, colon, _) in zip(given, pairs, strict=True) if not colon]
    if wrong:
        raise click.BadParameter(
            f"{wrong[0]!r} is no header: write 'name: value'", param_hint="--header"
        )
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _stdin() -> str:
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    if not text.strip():
        raise click.UsageError(
            "there is nothing to classify: give a NAME or --status, or pipe a response or a"
            " traceback in"
        )
    return text


def _read(text: str) -> Any:
    """A response as `curl -i` shows it, a JSON body, a traceback, or words."""
    if text.startswith("HTTP/"):
        head, _, body = text.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.split("\n")
        status = first.split(" ")[1] if " " in first else ""
        return {
            "status": int(status) if status.isdigit() else None,
            "headers": _headers(tuple(lines)),
            "body": body,
        }
    if text.lstrip()[:1] in ("{", "["):
        return {"body": text}
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    named = NAMED.fullmatch(last.strip()) if "Traceback" in text else None
    return text if named is None else _error(named[1], named[2] or "", {})


def _error(name: str, message: str, given: dict[str, Any]) -> BaseException:
    """A stand-in of that name: classes are matched by name, so nothing needs to be imported."""
    package, _, cls = name.rpartition(".")
    stand_in = type(cls or name, (Exception,), {"__module__": package or "builtins"})
    error: BaseException = stand_in(message)
    for field, value in given.items():
        setattr(error, field, value)
    return error


def _as_data(verdict: Verdict) -> dict[str, Any]:
    return {
        "bucket": verdict.bucket,
        "certainty": verdict.certainty,
        "retryable": verdict.retryable,
        "retry_after_s": verdict.retry_after_s,
        "scope": verdict.scope,
        "why": verdict.why,
        "matched": verdict.matched,
        "actions": {situation.removeprefix("… "): row.action for situation, row in _rows(verdict)},
    }


def _tell(verdict: Verdict) -> None:
    from rich.table import Table

    from effectonce._core.classification.tables import VERSION
    from effectonce.cli._tables import CERTAINTY

    delay = "" if verdict.retry_after_s is None else f", after {verdict.retry_after_s:g} s"
    asked = delay.replace(", after", "; it asks for")
    again = f"[green]yes[/]{delay}" if verdict.retryable else f"[red]no[/]{asked}"
    lines = Table.grid(padding=(0, 2))
    lines.add_row("bucket", f"[bold]{verdict.bucket}[/]: {in_markup(verdict.why)}")
    lines.add_row("certainty", f"[bold]{verdict.certainty}[/]: {CERTAINTY[verdict.certainty]}")
    lines.add_row("try again", again)
    lines.add_row("affects", f"the {verdict.scope}")
    lines.add_row("matched", f"{in_markup(verdict.matched)} [dim](tables of {VERSION})[/]")
    screen, calls = console(), Table.grid(padding=(0, 2))
    for situation, row in _rows(verdict):
        calls.add_row(situation, f"[bold]{str(row.action).replace('_', ' ')}[/]: {row.why}")
    screen.print(lines)
    screen.print("\n[dim]What to do:[/]")
    screen.print(calls)
    if verdict.certainty not in UNSURE:
        screen.print(f"\n[dim]{OTHERS}[/]")


def _rows(verdict: Verdict) -> list[tuple[str, DecisionRow]]:
    """What to do, by what ended so. Without `one_request`, an earlier request may have left."""
    of_many = verdict
    if verdict.certainty not in UNSURE:
        of_many = verdict.but(certainty=Certainty.AMBIGUOUS, retry=verdict.retryable)
    return [
        ("a read, a model call", gate(verdict, repeatable=True)),
        ("a write without help", gate(of_many, repeatable=False)),
        ("… with a probe", gate(of_many, repeatable=False, probe=True)),
        ("… with one_request=True", gate(verdict, repeatable=False)),
        ("… with a key downstream", gate(of_many, repeatable=True)),
    ]
