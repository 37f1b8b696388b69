"""`effectonce approve`: where a person lets a call be sent, or not."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import app_here, guard_here, tool_named
from effectonce.cli._commands import runnable, see
from effectonce.cli._console import console, echo, say
from effectonce.cli._decide import Decision, decide
from effectonce.cli._exits import CHANGED, NEEDS_YOU, Stop
from effectonce.cli._filters import as_option, filter_options, limit_option
from effectonce.cli._options import app_options, decision_options, effect_options
from effectonce.cli._output import (
    EFFECT,
    TOOL,
    Column,
    field,
    for_machines,
    print_next,
    print_one,
    print_pairs,
    print_rows,
    shape,
    since,
)
from effectonce.cli._settings import setting
from effectonce.views.filter_fields import APPROVALS, ListFilter
from effectonce.views.times import moment, span, span_s

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record
    from effectonce._tools.tool import GuardedTool
    from effectonce.approvals import Wish
    from effectonce.views.wishes import Comparison

_A_DAY = (
    "Its tool is not known here, so an approval is good for a day: --for says otherwise, --app knows"
    " what the tool declares."
)


@click.group()
def approve() -> None:
    r"""Let calls that wait for a person be sent, or not.

    \b
    Examples:
      effectonce approve list
      effectonce approve yes eff_3fa94c1f22d0 --reason 'the parcel came back'
    """


# ---------------------------------------------------------------- looking


@approve.command("list")
@filter_options(APPROVALS)
@limit_option
@effect_options
def list_wishes(*, asked: ListFilter) -> None:
    r"""List the calls that wait for a person, the oldest first.

    \b
    Examples:
      effectonce approve list
      effectonce approve list --tool refund --tenant acme --older-than 1h
      effectonce approve list --json | jq '.wishes[].arguments'
    """
    from effectonce.approvals import wish_of
    from effectonce.views.effects import now_of
    from effectonce.views.lists import wishes_page
    from effectonce.views.wishes import asks_for, wish_data

    limit = setting("limit")
    with guard_here() as guard:
        now = now_of(guard)
        page = wishes_page(guard.store, asked, now, None, limit + 1)
        found = list(page.records)
        while page.further is not None and len(found) <= limit:
            page = wishes_page(guard.store, asked, now, page.further, limit + 1 - len(found))
            found += page.records
    wishes = [wish_of(record) for record in found]
    items = [
        {**wish_data(wish), "_for_s": now - wish.asked_at, "_asks_for": asks_for(wish)}
        for wish in wishes[:limit]
    ]
    filtered = ", ".join(words for name, words in asked.words().items() if name != "tenant")
    empty = f"No call that waits fits: {filtered}." if filtered else "Nothing waits for approval."
    print_rows(items, _WISHES, schema="wish", plural="wishes", empty=empty)
    if items and shape() == "table":
        say("The first one:")
        # in two lines it could not be copied
        echo(f"  {runnable('effectonce approve show ' + items[0]['reference'])}", err=True)
    if len(wishes) > limit and not for_machines():
        say("There are more: give a higher --limit.")


_WISHES = [
    EFFECT,
    TOOL,
    field("ASKED BY", "asked_by"),
    Column("ASKS FOR", lambda item: item["_asks_for"]),
    since("FOR", "_for_s", "asked_at"),
]


@approve.command()
@click.argument("reference", metavar="EFFECT")
@effect_options
def show(*, reference: str) -> None:
    r"""Show what a call asks for, who asks, and what is new about it.

    Its arguments are shown as they are stored: what the tool redacts stays so. They are compared
    with the last completed call of the same tool in the same scope.

    \b
    Examples:
      effectonce approve show eff_3fa94c1f22d0
      effectonce approve show 3fa9 --json | jq .arguments
    """
    from effectonce.cli._find import find_one
    from effectonce.views.effects import now_of
    from effectonce.views.wishes import compared, wish_data

    with guard_here() as guard:
        record, now = find_one(guard, reference), now_of(guard)
        wish = _wish(guard, record)
        last = compared(guard, wish)
    data = {**wish_data(wish), "differs": None if last is None else last.as_data()}
    print_one(data, lambda: _tell(wish, last, now), schema="wish")


def _wish(guard: Guard, record: Record) -> Wish:
    """It, as it waits now."""
    wish = guard.approvals.find(record.request.key)
    if wish is None:
        raise _not_waiting(guard, record)
    return wish


def _not_waiting(guard: Guard, record: Record) -> Stop:
    from effectonce.views.effects import now_of, reference, verdict

    ref = reference(record)
    said = verdict(record, now_of(guard))
    return Stop(f"{ref} does not wait for approval. {said}", CHANGED, see(ref))


def _tell(wish: Wish, last: Comparison | None, now: float) -> None:
    from effectonce.views.wishes import arguments_shown

    effect, ref = wish.effect, wish.effect.reference
    place = "/".join(part for part in (effect.scope, effect.step) if part)
    known = [
        ("call", f"{effect.tool}  {ref}"),
        ("where", place),
        ("tenant", effect.tenant),
        ("asked by", wish.asked_by or "not known"),
        ("asked", f"{moment(wish.asked_at)} UTC, {span(now - wish.asked_at)} ago"),
        ("before", "it was approved, and that ended unused" if wish.expired else ""),
    ]
    print_pairs([row for row in known if row[1]], style="bold")
    screen = console()
    screen.print("\nits arguments", style="dim")
    print_pairs(arguments_shown(wish) or [("none", "")])
    screen.print(f"\n{_compared_with(last)}", style="dim", markup=False, highlight=False)
    if last is not None and last.changed:
        print_pairs(
            [
                (each.name, f"{each.before or 'none'} → {each.now or 'none'}")
                for each in last.changed
            ]
        )
    screen.print()
    steps = [
        ("let it be sent", f"effectonce approve yes {ref} --reason TEXT"),
        ("never send it", f"effectonce approve no {ref} --reason TEXT"),
    ]
    print_next([(what, runnable(command)) for what, command in steps], "")


def _compared_with(last: Comparison | None) -> str:
    if last is None:
        return "there is no completed call of this tool in this scope to compare it with"
    from effectonce.views.effects import reference

    ref, at = reference(last.last), moment(last.last.decided_at)
    if not last.changed:
        return f"the same arguments as {ref}, completed {at} UTC"
    return f"what differs from {ref}, completed {at} UTC"


# ---------------------------------------------------------------- deciding


@approve.command()
@click.argument("reference", metavar="EFFECT")
@click.option(
    "--for",
    "valid_s",
    type=as_option(span_s),
    metavar="SPAN",
    help="How long it is good: 30m, 2h, 7d.  [default: as the tool declares, or a day]",
)
@click.option(
    "--fingerprint",
    metavar="TEXT",
    help="Only if the arguments are still those that `approve show --json` had.",
)
@decision_options
def yes(*, reference: str, valid_s: float | None, fingerprint: str | None, **how: Any) -> None:
    r"""Let it be sent, once: the next call with these very arguments does it.

    Nothing is sent by this command. If the arguments change before you have answered, it is
    refused, and so is an approval by who asked for it, where the tool declares four eyes.

    \b
    Examples:
      effectonce approve yes eff_3fa94c1f22d0 --reason 'the parcel came back'
      effectonce approve yes 3fa9 --reason 'ticket 812' --by ada --for 2h --yes
    """

    def write(guard: Guard, record: Record, **signed: Any) -> None:
        seen = fingerprint or record.request.fingerprint
        key = record.request.key
        guard.approvals.approve(key, fingerprint=seen, valid_s=valid_s, **signed)

    def about(guard: Guard, record: Record) -> str:
        from effectonce.views.tools import tools_of

        unknown = valid_s is None and record.request.terms.tool not in tools_of(guard)
        return _asked(guard, record) + (f"\n{_A_DAY}" if unknown else "")

    decide(Decision("Let it be sent", about, write), reference, **how)


@approve.command()
@click.argument("reference", metavar="EFFECT")
@decision_options
def no(*, reference: str, **how: Any) -> None:
    r"""Never send it: every later call gets that as a failure, with your reason.

    An approval that no call has used yet is taken back by this.

    \b
    Examples:
      effectonce approve no eff_3fa94c1f22d0 --reason 'not before Friday'
      effectonce approve no 3fa9 --reason 'ticket 812' --by ada --yes
    """

    def write(guard: Guard, record: Record, **signed: Any) -> None:
        guard.approvals.reject(record.request.key, **signed)

    decide(Decision("Never send it", _undecided, write), reference, **how)


def _asked(guard: Guard, record: Record) -> str:
    from effectonce.views.wishes import asks_for

    wish = _wish(guard, record)
    by = f", asked by {wish.asked_by}" if wish.asked_by else ""
    return f"It waits for approval{by}: {asks_for(wish)}"


def _undecided(guard: Guard, record: Record) -> str:
    from effectonce.approvals._standing import standing_of
    from effectonce.views.effects import now_of, verdict

    now = now_of(guard)
    standing = standing_of(record, now)
    if standing is None or standing.state not in ("waiting", "expired", "approved"):
        raise _not_waiting(guard, record)
    return verdict(record, now) if standing.state == "approved" else _asked(guard, record)


# ---------------------------------------------------------------- the rule


@approve.group()
def policy() -> None:
    r"""See which calls need an approval, by the rule that a tool declares.

    \b
    Examples:
      effectonce approve policy check refund --arg amount=70000 --app shop.agents:guard
    """


@policy.command()
@click.argument("tool", metavar="TOOL")
@click.option(
    "--arg",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the call; JSON, or a text. Repeat it.",
)
@click.option(
    "--check", is_flag=True, help="Exit with 3 if the call needs an approval, or is never allowed."
)
@app_options
def check(*, tool: str, given: tuple[str, ...], check: bool) -> None:
    r"""Say whether a call would need an approval, and why. Nothing is sent and nothing is stored.

    Only the arguments that the rule asks for have to be given.

    \b
    Examples:
      effectonce approve policy check refund --arg amount=70000 --app shop.agents:guard
      effectonce approve policy check refund --arg amount=70000 --check --json --app shop.agents:guard
    """
    guard = app_here()
    data = _judged(tool_named(guard, tool), given)
    guard.close()
    print_one(data, lambda: _tell_judged(data), schema="policy")
    if check and (data["needs_approval"] or not data["allowed"]):
        raise SystemExit(NEEDS_YOU)


def _judged(tool: GuardedTool, given: tuple[str, ...]) -> dict[str, Any]:
    arguments = dict(_argument(tool, each) for each in given)
    approval = tool.contract.approval
    data: dict[str, Any] = {
        "tool": tool.contract.name,
        "arguments": arguments,
        "allowed": True,
        "needs_approval": False,
        "why": "the tool declares no approval",
        "rule": None,
        "valid_s": None if approval is None else approval.valid_s,
        "four_eyes": approval is not None and approval.four_eyes,
    }
    if approval is None:
        return data
    rules = [rule for rule in (approval.never, approval.when) if rule is not None]
    asked = {name: None for rule in rules for name in inspect.signature(rule).parameters}
    known = _defaults(tool) | arguments
    missing = [name for name in asked if name not in known]
    if missing:
        wanted = " ".join(f"--arg {name}=VALUE" for name in missing)
        raise click.UsageError(f"The rule of {tool.contract.name} asks for more: give {wanted}.")
    assert tool.approval is not None  # it declares one
    values = ", ".join(f"{name}={known[name]!r}" for name in asked)
    if approval.never is not None and tool.approval.forbids(known):
        why = f"no person can approve {values}"
        return data | {"allowed": False, "why": why, "rule": _source(approval.never)}
    needed = tool.approval.needed(known)
    if approval.when is None:
        return data | {"needs_approval": True, "why": "every call of this tool needs one"}
    why = f"its rule says {'yes' if needed else 'no'} to {values}"
    return data | {"needs_approval": needed, "why": why, "rule": _source(approval.when)}


def _argument(tool: GuardedTool, given: str) -> tuple[str, Any]:
    """As the tool's parameter has it, if that can be read from a text; otherwise JSON."""
    import msgspec

    from effectonce._core.strict_json import read_exactly

    name, equals, text = given.partition("=")
    if not equals:
        raise click.UsageError(f"{given!r} is no argument: give --arg NAME=VALUE.")
    if name not in tool.signature.names:
        has = ", ".join(tool.signature.names) or "none"
        raise click.UsageError(f"{tool.contract.name} has no parameter {name!r}; it has {has}.")
    declared = tool.signature.types.get(name, Any)
    if declared is not Any:  # first as it was typed: JSON would round a decimal number
        with contextlib.suppress(msgspec.ValidationError, TypeError):
            return name, msgspec.convert(text, declared, strict=False)
    try:
        value = read_exactly(text)
    except (ValueError, ArithmeticError, RecursionError):
        value = text
    try:
        return name, msgspec.convert(value, declared, strict=False)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"--arg {given}: {error}.") from None
    except TypeError:  # a type of the user's own
        return name, value


def _defaults(tool: GuardedTool) -> dict[str, Any]:
    parameters = inspect.signature(tool.function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _source(rule: Callable[..., bool]) -> str:
    """Where the rule is, and its first line."""
    try:
        lines, number = inspect.getsourcelines(rule)
        file = Path(inspect.getfile(rule))
    except (OSError, TypeError):  # made at runtime, or a builtin
        return getattr(rule, "__qualname__", repr(rule))
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    return f"{file}:{number}: {lines[0].strip()}"


def _tell_judged(data: dict[str, Any]) -> None:
    needed = "needs an approval" if data["needs_approval"] else "needs no approval"
    needed = needed if data["allowed"] else "is never allowed"
    good = span(data["valid_s"]) if data["needs_approval"] else ""
    eyes = "by another person than who asks" if data["four_eyes"] and good else ""
    rows = [
        ("call", f"{data['tool']} {needed}"),
        ("because", data["why"]),
        ("rule", data["rule"] or ""),
        ("good for", good),
        ("who", eyes),
    ]
    print_pairs([row for row in rows if row[1]])
