"""`effectonce tool`: what your tools declare, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from effectonce._text import span
from effectonce.cli._app import app_here, guard_here, tool_named
from effectonce.cli._ask import make_sure, reason_given, who
from effectonce.cli._commands import runnable
from effectonce.cli._console import say
from effectonce.cli._exits import CHANGED, NOT_FOUND, Stop
from effectonce.cli._options import (
    app_options,
    reason_option,
    store_options,
    takes,
    with_options,
    yes_option,
)
from effectonce.cli._output import Column, field, print_one, print_pairs, print_rows
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._tools.tool import GuardedTool

OF_STEPS = "each step by its own"  # what a workflow promises


@click.group()
def tool() -> None:
    r"""See the contracts of your tools, and pause one.

    \b
    Examples:
      effectonce tool list --app shop.agents:guard
      effectonce tool show refund --app shop.agents:guard
      effectonce tool pause refund --reason 'the bank is down'
    """


@tool.command("list")
@app_options
def list_tools() -> None:
    r"""List the tools of --app and what each promises.

    \b
    Examples:
      effectonce tool list --app shop.agents:guard
      effectonce tool list --app shop.agents:guard --json | jq '.tools[] | select(.downstream == "none")'
    """
    items = [_as_data(tool) for tool in tools_of(app_here()).values()]
    columns = [
        field("TOOL", "name", whole=True),
        Column(
            "KIND", lambda item: "workflow" if item["is_workflow"] else item["kind"], whole=True
        ),
        Column(
            "DOWNSTREAM",
            lambda item: "-" if item["is_workflow"] else _help(item),
            whole=True,
        ),
        Column("KEY", lambda item: ", ".join(item["hashed"]) or "-"),
        field("PROMISE", "promise"),
    ]
    empty = "This guard has no tools. Are they registered when the module is imported?"
    print_rows(items, columns, schema="tool", empty=empty)


@tool.command()
@click.argument("name", metavar="TOOL")
@app_options
def show(*, name: str) -> None:
    r"""Show the contract of one tool: kind, key, window, retries, and what is advised.

    \b
    Examples:
      effectonce tool show refund --app shop.agents:guard
      effectonce tool show refund --app shop.agents:guard --json | jq .hashed
    """
    found = tool_named(app_here(), name)
    data = _as_data(found)
    print_one(data, lambda: _tell(data), schema="tool")


# ---------------------------------------------------------------- pausing


pausing_options = with_options(
    reason_option, yes_option, takes("by", "no_input", "store", "app", "config", "output", "color")
)


@tool.command()
@click.argument("name", metavar="TOOL")
@click.option("--anyway", is_flag=True, help="Although the store knows no effect of this name.")
@pausing_options
def pause(*, name: str, anyway: bool, reason: str | None, yes: bool) -> None:
    r"""Stop a tool: within two seconds, no process that shares the store sends anything for it.

    Calls whose outcome is known still get it, and a call whose request has left goes on to its
    end. Any other fails with TOOL_PAUSED, and nothing was sent. Reads are not stopped.

    \b
    Examples:
      effectonce tool pause refund --reason 'the bank is down'
      effectonce tool pause refund --reason 'wrong amounts since 9:40' --yes --json | jq .tool
    """
    from effectonce.cli._audit import say_if_left_out
    from effectonce.views.pauses import why_not_paused

    by = who()
    with guard_here(create=anyway) as guard:
        stops_nothing = why_not_paused(guard, name)
        if stops_nothing and not anyway:
            advice = "Nothing was changed. With --anyway, that name is paused."
            raise Stop(stops_nothing, NOT_FOUND, advice)
        why = reason_given(reason)
        make_sure(f"Pause {name} in every process that shares this store?", yes=yes)
        guard.pause_tool(name, by=by, reason=why)
        say_if_left_out(guard)
        data = _paused(guard)[name]
    resume = runnable(f"effectonce tool resume {name}")
    said = f"{name} is paused. It goes on after: {resume}"
    print_one(data, lambda: say(said), schema="pause")


@tool.command()
@click.argument("name", metavar="TOOL")
@pausing_options
def resume(*, name: str, reason: str | None, yes: bool) -> None:
    r"""Let a paused tool send again.

    \b
    Examples:
      effectonce tool resume refund --reason 'the bank is up again'
    """
    from effectonce.cli._audit import say_if_left_out

    by = who()
    with guard_here() as guard:
        paused = _paused(guard)
        if name not in paused:
            others = f" These are: {', '.join(paused)}." if paused else ""
            raise Stop(f"{name} is not paused.{others}", CHANGED, "Nothing was changed.")
        say(f"{name}: {_since(paused[name])}")
        why = reason_given(reason)
        make_sure(f"Let {name} send again?", yes=yes)
        guard.resume_tool(name, by=by, reason=why)
        say_if_left_out(guard)
    print_one(paused[name], lambda: say(f"{name} is no longer paused."), schema="pause")


@tool.command("paused")
@store_options
def list_paused() -> None:
    r"""List the tools that are paused: by whom, why, and since when.

    \b
    Examples:
      effectonce tool paused
      effectonce tool paused --json | jq '.pauses[].tool'
    """
    with guard_here() as guard:
        items = list(_paused(guard).values())
    columns = [
        field("TOOL", "tool", whole=True),
        Column("SINCE", lambda item: f"{span(item['for_s'])} ago", lambda item: item["at"]),
        field("BY", "by", whole=True),
        field("REASON", "reason"),
    ]
    print_rows(items, columns, schema="pause", empty="No tool is paused.")


def _paused(guard: Guard) -> dict[str, dict[str, Any]]:
    from effectonce.views.effects import now_of
    from effectonce.views.pauses import pauses_of

    return {each["tool"]: each for each in pauses_of(guard, now_of(guard))}


def _since(pause: dict[str, Any]) -> str:
    return f"paused {span(pause['for_s'])} ago by {pause['by']}: {pause['reason']}"


def _probe_of(data: dict[str, Any]) -> str:
    first = data["asked_before_sending"]
    if data["has_probe"]:
        return "yes, asked before the first send, too" if first else "yes"
    return "none, so nothing is sent" if first else "none"


def _as_data(tool: GuardedTool) -> dict[str, Any]:
    from effectonce._core.guarantees import GUARANTEES, Capability

    contract, signature, circuit = tool.contract, tool.signature, tool.retrying.circuit
    downstream = contract.downstream
    return {
        "name": contract.name,
        "version": contract.version,
        "kind": contract.kind,
        "downstream": downstream.capability,
        "provider": contract.provider or None,
        "honours_key_s": (
            _finite(downstream.window_s) if downstream.capability is Capability.KEY else None
        ),
        "promise": (
            OF_STEPS
            if tool.terms.steps
            else GUARANTEES[contract.kind, downstream.capability].promise
        ),
        "is_workflow": tool.terms.steps,
        "is_async": tool.is_async,
        "has_probe": tool.probe_function is not None,
        "asked_before_sending": downstream.before_sending,
        "hashed": list(signature.identity),
        "matched": [n for n in signature.matched if n not in signature.identity],
        "stripped": list(signature.volatile),
        "added": list(contract.added),
        "redacted": list(signature.redact),
        "window_s": _finite(contract.window_s),
        "lease_s": contract.lease_s,
        "attempts": contract.retry.attempts,
        "deadline_s": _finite(contract.retry.deadline_s),
        "permission": contract.permission,
        "breaker": getattr(circuit, "name", None),
        "notes": list(contract.notes),
    }


def _help(data: dict[str, Any]) -> str:
    return f"{data['downstream']} ({data['provider']})" if data["provider"] else data["downstream"]


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds


def _tell(data: dict[str, Any]) -> None:
    def fields(name: str) -> str:
        return ", ".join(data[name]) or "nothing"

    retries = "1 attempt" if data["attempts"] == 1 else f"{data['attempts']} attempts"
    if data["deadline_s"] is not None:
        retries += f" within {span(data['deadline_s'])}"
    contract = f"{data['kind']}, downstream {_help(data)}: {data['promise']}"
    kept, is_async = data["window_s"], "async def" if data["is_async"] else "def"
    print_pairs(
        [
            ("tool", f"{data['name']}, version {data['version']}, {is_async}"),
            ("contract", f"workflow: {OF_STEPS}" if data["is_workflow"] else contract),
            ("probe", _probe_of(data)),
            ("in the key", fields("hashed")),
            ("must match", fields("matched")),
            ("ignored", fields("stripped")),
            *([("came later", fields("added"))] if data["added"] else []),
            ("never stored", fields("redacted")),
            ("outcome kept", "forever" if kept is None else f"for {span(kept)}"),
            ("lease", span(data["lease_s"])),
            ("retries", retries),
            ("breaker", data["breaker"] or "none"),
            ("permission", data["permission"] or "none"),
            *(("note", note) for note in data["notes"]),
        ]
    )
