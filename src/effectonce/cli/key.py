"""`effectonce key`: why a call has the key it has, why two differ, and which keys would not
survive a retry.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce._text import on_one_line
from effectonce.cli._app import app_here, tool_named
from effectonce.cli._console import echo, say
from effectonce.cli._exits import NEEDS_YOU
from effectonce.cli._options import app_options
from effectonce.cli._output import Column, field, print_one, print_pairs, print_rows
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Explanation, Guard
    from effectonce._core.keys import Place

_File = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str)
CALL = (
    '{"tool": "refund", "arguments": {"payment_id": "pay_7"}, "scope": "chat-42", "step": "refund"}'
)
check_option = click.option("--check", is_flag=True, help="Exit with 3 if something is found.")


@click.group()
def key() -> None:
    r"""See how calls get their keys. Nothing is called and nothing is stored.

    A call is a JSON object: the tool, its arguments, and the place, as `guard.step(scope, step)`
    has it.

    \b
    Examples:
      echo '{"tool": "refund", "arguments": {"payment_id": "pay_7"}, "scope": "chat-42", "step": "refund"}' > call.json
      effectonce key explain call.json --app shop.agents:guard
    """


@key.command()
@click.argument("file", type=_File)
@click.option("--reveal", is_flag=True, help="Show the key as well.")
@app_options
def explain(*, file: str, reveal: bool) -> None:
    r"""Show which fields of a call are in its key, which only have to match, and which are ignored.

    FILE holds the call as JSON; - reads standard input.

    \b
    Examples:
      effectonce key explain call.json --app shop.agents:guard
      echo '{"tool": "refund", "arguments": ["pay_7"], "scope": "chat-42"}' | effectonce key explain - --json --app shop.agents:guard
    """
    ((_, call),) = _calls(file, one=True)
    explanation = _explained(app_here(), call)
    data = _as_data(explanation, reveal=reveal)
    print_one(data, lambda: _tell(data, _placed(explanation.place)), schema="key")


@key.command()
@click.argument("first", type=_File, metavar="FILE_A")
@click.argument("second", type=_File, metavar="FILE_B")
@check_option
@app_options
def diff(*, first: str, second: str, check: bool) -> None:
    r"""Say why two calls have different keys, or that they are one effect.

    \b
    Examples:
      effectonce key diff first.json retry.json --app shop.agents:guard
      effectonce key diff first.json retry.json --check --app shop.agents:guard
    """
    guard = app_here()
    mine, theirs = (_explained(guard, _calls(file, one=True)[0][1]) for file in (first, second))
    same = mine.key == theirs.key
    data = {
        "same_effect": same,
        "same_request": mine.fingerprint == theirs.fingerprint,
        "differences": list(mine.differences(theirs)),
    }

    def tell() -> None:
        echo("One effect." if same else "Two effects.")
        for difference in data["differences"]:  # type: ignore[attr-defined]
            echo(on_one_line(f"  {difference}"))

    print_one(data, tell, schema="key-diff")
    if check and not same:
        raise SystemExit(NEEDS_YOU)


@key.command()
@click.argument("file", type=_File, required=False)
@check_option
@app_options
def check(*, file: str | None, check: bool) -> None:
    r"""Look for keys that a retry would not have again.

    Without FILE, looks at the parameters of every tool. With FILE, one call in each line, it
    also looks at the values: a time, a random id or a count of attempts in a hashed field makes
    every retry a new effect.

    \b
    Examples:
      effectonce key check --app shop.agents:guard
      effectonce key check recorded-calls.jsonl --check --app shop.agents:guard
    """
    guard = app_here()
    found = _suspect_parameters(guard)
    if file is not None:
        for line, call in _calls(file, one=False):
            found += _suspect_values(guard, call, file, line)
    columns = [
        field("TOOL", "tool", whole=True),
        field("FIELD", "field", whole=True),
        Column(
            "LINE", lambda item: str(item["line"] or "-"), lambda item: item["line"], right=True
        ),
        field("WHAT", "what"),
    ]
    empty = "Every key would be the same on the next attempt."
    print_rows(found, columns, schema="finding", empty=empty)
    if found:
        say(
            "Declare such fields volatile=[...], or give the tool a step id that was written down"
            " before the first attempt."
        )
    if check and found:
        raise SystemExit(NEEDS_YOU)


# ---------------------------------------------------------------- calls


def _calls(file: str, *, one: bool) -> list[tuple[int, dict[str, Any]]]:
    """Each with its line."""
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    calls = []
    for line, document in enumerate([text] if one else text.splitlines(), 1):
        if not one and not document.strip():
            continue
        where = f"{file}, line {line}"
        try:
            call = json.loads(document)
        except ValueError as error:
            raise click.UsageError(f"{where}: {error}. A call is JSON: {CALL}") from None
        if (
            not isinstance(call, dict)
            or not isinstance(call.get("tool"), str)
            or not isinstance(call.get("arguments", {}), dict | list)
        ):
            wanted = "a call is an object with a tool and its arguments"
            raise click.UsageError(f"{where}: {wanted}: {CALL}")
        calls.append((line, call))
    return calls


def _explained(guard: Guard, call: dict[str, Any]) -> Explanation:
    tool = tool_named(guard, call["tool"])
    arguments = call.get("arguments", {})
    args, kwargs = (arguments, {}) if isinstance(arguments, list) else ((), arguments)
    if "scope" not in call:
        return tool.explain(*args, **kwargs)
    permission = tool.contract.permission
    allowed = () if permission is None else (permission,)
    scope, tenant = _taken(call["scope"]), _taken(call.get("tenant"))
    with guard.step(scope, call.get("step"), tenant=tenant, permissions=allowed):
        return tool.explain(*args, **kwargs)


def _taken(name: Any) -> Any:
    """It is explained, whatever one thinks of it: an engine may have vouched for it."""
    from effectonce import Stable

    return Stable(name) if isinstance(name, str) else name


def _as_data(explanation: Explanation, *, reveal: bool) -> dict[str, Any]:
    from effectonce import EffectRef

    return {
        "reference": EffectRef(explanation.tool, explanation.key).reference,
        **({"key": explanation.key} if reveal else {}),
        "tool": explanation.tool,
        "tenant": explanation.tenant,
        "scope": explanation.scope,
        "place": str(explanation.place),
        "hashed": dict(explanation.hashed),
        "matched": dict(explanation.matched),
        "stripped": dict(explanation.stripped),
    }


def _placed(place: Place) -> str:
    from effectonce._core.keys import AtOrdinal, AtStep

    match place:
        case AtStep(step):
            return f"step {step}"
        case AtOrdinal(ordinal):
            return f"no step: after {ordinal} results of this call that the model was shown"
        case _:
            return "no step: the same tool and arguments, for as long as its window"


def _tell(data: dict[str, Any], place: str) -> None:
    def fields(name: str) -> str:
        return ", ".join(f"{field}={value!r}" for field, value in data[name].items()) or "nothing"

    rows = [
        ("effect", data["reference"]),
        ("key", data.get("key", "")),
        ("tool", data["tool"]),
        ("where", f"tenant {data['tenant']}, scope {data['scope'] or '-'}, {place}"),
        ("hashed", f"{fields('hashed')}  (another value is another effect)"),
        ("matched", f"{fields('matched')}  (another value is a conflict)"),
        ("stripped", f"{fields('stripped')}  (another value is the same call)"),
    ]
    print_pairs([row for row in rows if row[1]])


# ---------------------------------------------------------------- keys that change


def _suspect_parameters(guard: Guard) -> list[dict[str, Any]]:
    from effectonce._core.keys import unstable_name

    found = []
    for name, tool in tools_of(guard).items():
        vouched = {field: unstable_name(field) for field in tool.signature.identity}
        suspect = {
            field: f"named like {what}, and vouched for with Stable"
            for field, what in vouched.items()
            if what
        }
        suspect |= {
            field: f"a field of a model that looks like {what}"
            for field, what in tool.signature.suspects().items()
        }
        found += [
            {"tool": name, "field": field, "line": None, "what": what}
            for field, what in suspect.items()
        ]
    return found


def _suspect_values(
    guard: Guard, call: dict[str, Any], file: str, line: int
) -> list[dict[str, Any]]:
    """Of its step, which a call would be refused for, and of what is hashed."""
    from effectonce import ContractViolation, Stable

    suspect = {
        field: _unstable(call[field], field, lasting=field != "step")
        for field in ("tenant", "scope", "step")
        if call.get(field) is not None
    }
    if suspect.get("step"):
        call = {**call, "step": Stable(str(call["step"]))}
    try:
        hashed = _explained(guard, call).hashed
    except ContractViolation as error:
        raise click.UsageError(f"{file}, line {line}: {error}") from None
    suspect |= {field: _unstable(value, field) for field, value in hashed.items()}
    return [
        {"tool": call["tool"], "field": field, "line": line, "what": what}
        for field, what in suspect.items()
        if what
    ]


def _unstable(value: Any, field: str, *, lasting: bool = False) -> str:
    """What is wrong with it as part of a key; "" if nothing is."""
    from effectonce._core.keys import UnstableKey, check_stable

    if not isinstance(value, str | int) or isinstance(value, bool):
        return ""
    try:
        check_stable(value, field, lasting=lasting)
    except UnstableKey as error:
        return str(error).split(". ", 1)[0].removeprefix(f"{field} ")
    return ""
