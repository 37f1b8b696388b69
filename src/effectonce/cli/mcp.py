"""`effectonce mcp`: a proxy in front of an MCP server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._options import takes
from effectonce.cli._settings import setting

if TYPE_CHECKING:
    from effectonce import Guard

_File = click.Path(exists=True, dir_okay=False)


class _Proxy(click.Group):
    """What stands behind `--` is the command of a server: `effectonce mcp -- COMMAND` is `effectonce mcp run -- COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Proxy)
def mcp() -> None:
    r"""Put these guarantees between an MCP client and a server.

    Calls of tools reach the server once, whoever repeats them; what comes after the client gave up is kept for the next one that asks.

    \b
    Examples:
      effectonce mcp -- npx -y @example/mcp-server
      effectonce mcp --contracts bank.toml -- python bank_server.py
      claude mcp add bank -- effectonce mcp --name bank -- python bank_server.py
    """


@mcp.command()
@click.option("--contracts", type=_File, metavar="FILE", help="What is known about the tools, in TOML or JSON.")
@click.option("--name", metavar="NAME", help="The server's name in records. It is part of every key.  [default: its command]")
@click.option("--trust-annotations", is_flag=True, help="Believe what the server says: readOnlyHint, idempotentHint.")
@click.option("--conversation", metavar="ID", help="Which conversation this is, if its host does not say.")
@takes("store", "app", "config")
@click.argument("command", nargs=-1, required=True)
def run(*, contracts: str | None, name: str | None, trust_annotations: bool, conversation: str | None, command: Any) -> None:
    r"""Run a server behind the proxy: `effectonce mcp -- COMMAND` is the same.

    Without a contract file every tool is a write that is sent once. Effects are recorded in --store, or in a file among the user's state.

    \b
    Examples:
      effectonce mcp run --name bank --contracts bank.toml -- python bank_server.py
      effectonce mcp --trust-annotations --store sqlite:///effects.db -- npx -y @example/mcp-server
    """
    from effectonce.mcp._contracts import read_contracts
    from effectonce.mcp._pipes import NotStarted
    from effectonce.mcp._places import ENVIRONMENT
    from effectonce.mcp.proxy import Proxy

    given: dict[str, Any] = {"trust_annotations": True} if trust_annotations else {}
    declared = read_contracts(contracts, given | ({"name": name} if name else {}))
    known = conversation or next((os.environ[variable] for variable in ENVIRONMENT if os.environ.get(variable)), "")
    guard = _guard()
    try:
        with guard.sweeper():
            code = asyncio.run(Proxy(guard, declared, command, conversation=known).run())
    except NotStarted as error:
        raise click.ClickException(str(error)) from None
    finally:
        guard.close()
    os._exit(code)  # a thread may still wait for a client that keeps its end open


def _guard() -> Guard:
    """The user's own, or one for the store that was named, or one for a file of this user's."""
    from effectonce import Guard
    from effectonce.cli._app import load_app

    if setting("app"):
        return load_app(setting("app"))
    return Guard(setting("store") or _store_file() or _own_file())


def _store_file() -> str:
    path = setting("store_file")
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() if path else ""
    except OSError as error:
        raise click.UsageError(f"store_file = {path}: {error}") from None


def _own_file() -> str:
    from platformdirs import user_state_path

    folder = user_state_path("effectonce", appauthor=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{Path(folder) / 'mcp.db'}"
