"""`effectonce mcp`: a proxy in front of an MCP server."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from effectonce.cli._console import echo
from effectonce.cli._options import takes, value_option, with_options
from effectonce.cli._settings import BY_NAME, setting, settings
from effectonce.cli.gateway import (
    ANY_ADDRESS,
    FILE,
    address,
    is_loopback,
    listen_option,
    needing,
    repeated_option,
)
from effectonce.mcp._jsonrpc import CALL_MAX

if TYPE_CHECKING:
    from effectonce import Guard

F = TypeVar("F", bound=Callable[..., Any])
_CLIENTS = ("claude-code", "claude-desktop", "vscode", "cursor", "codex")


def _server_options(named_by: str) -> Callable[[F], F]:
    """What is known about a server and its tools."""
    contracts = "What is known about the tools, in TOML or JSON."
    trust = "Believe what the server says: readOnlyHint, idempotentHint."
    name = f"The server's name in records. It is part of every key.  [default: its {named_by}]"
    return with_options(
        click.option("--contracts", type=FILE, metavar="FILE", help=contracts),
        click.option("--name", metavar="NAME", help=name),
        click.option("--trust-annotations", is_flag=True, help=trust),
    )


_call_max = value_option("--call-max", CALL_MAX, click.INT, "How large a call may be.", "BYTES")


class _Proxy(click.Group):
    """`effectonce mcp -- COMMAND` is `effectonce mcp run -- COMMAND`: a command of a server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Proxy)
def mcp() -> None:
    r"""Put these guarantees between an MCP client and a server.

    Calls of tools reach the server once, however often they are repeated.
    A result that comes after the client gave up is kept for the next call.

    \b
    Examples:
      effectonce mcp -- npx -y @example/mcp-server
      effectonce mcp --contracts bank.toml -- python bank_server.py
      claude mcp add bank -- effectonce mcp --name bank -- python bank_server.py
    """


@mcp.command()
@_server_options("command")
@click.option(
    "--conversation", metavar="ID", help="Which conversation this is, if its host does not say."
)
@_call_max
@takes("store", "app", "config")
@click.argument("command", nargs=-1, required=True)
def run(*, conversation: str | None, call_max: int, command: Any, **server: Any) -> None:
    r"""Run a server behind the proxy: `effectonce mcp -- COMMAND` is the same.

    Without a contract file every tool is a write that is sent once. Effects are recorded in
    --store, or in a file among the user's state.

    \b
    Examples:
      effectonce mcp run --name bank --contracts bank.toml -- python bank_server.py
      effectonce mcp --trust-annotations --store sqlite:///effects.db -- npx -y @example/mcp-server
    """
    from effectonce.mcp._call_identity import ENVIRONMENT
    from effectonce.mcp._stdio import ServerNotStarted
    from effectonce.mcp.proxy import Proxy

    declared = _declared(**server)
    named = (os.environ.get(variable, "") for variable in ENVIRONMENT)
    known = conversation or next(filter(None, named), "")
    try:
        with closing(_guard()) as guard, guard.sweeper():
            proxy = Proxy(guard, declared, command, conversation=known, call_max=call_max)
            code = asyncio.run(proxy.run())
    except ServerNotStarted as error:
        raise click.ClickException(str(error)) from None
    os._exit(code)  # a thread may still wait for a client that keeps its end open


@mcp.command()
@click.argument("url")
@listen_option("127.0.0.1:8931")
@repeated_option("--allow-host", "hosts", "HOST", "A name that it answers to.")
@repeated_option("--allow-origin", "origins", "ORIGIN", "A site whose pages may ask.")
@click.option(
    "--one-caller",
    is_flag=True,
    help="All who send no credentials are one caller, and may see each other's results.",
)
@repeated_option("--ignore-header", "ignored", "NAME", "It says nothing about who calls.")
@_call_max
@_server_options("URL")
@takes("store", "app", "config")
def http(
    *,
    url: str,
    listen: str,
    hosts: tuple[str, ...],
    contracts: str | None,
    name: str | None,
    trust_annotations: bool,
    **how: Any,
) -> None:
    r"""Stand in front of a server that speaks streamable HTTP.

    A caller is identified by all that it sends to the server and that may be a credential: each
    header that is not known to be harmless, and the query string. A client that sends none of
    these is known by its session; a call without either is refused, unless you say --one-caller.
    Clients connect to the address of --listen, at any path.

    \b
    Examples:
      effectonce mcp http http://127.0.0.1:9000/mcp --one-caller --contracts bank.toml
      effectonce mcp http https://mcp.example.com/mcp --listen 127.0.0.1:8931 --store sqlite:///effects.db
    """
    from effectonce.mcp.http import McpHttpProxy
    from effectonce.stores._urls import shown

    host, port = address(listen)
    if host in ANY_ADDRESS and not hosts:
        raise click.UsageError("Say which names it answers to: --allow-host mcp.example.com.")
    with needing("it needs", "gateway"):
        import httpx  # noqa: F401  # what the proxy asks with

        from effectonce.cli._uvicorn import run_server
    declared = _declared(contracts, name, trust_annotations=trust_annotations)
    guard = _guard()
    names = hosts if is_loopback(host) or host in ANY_ADDRESS else (*hosts, host)
    app = McpHttpProxy(guard, declared, url, hosts=names, **how)
    echo(f"Listening on http://{host}:{port}, for {shown(url)}", err=True)
    with guard.sweeper():
        run_server(app, lifespan="on", host=host, port=port)
    guard.close()


@mcp.command()
@click.argument("name")
@click.option(
    "--client",
    "clients",
    multiple=True,
    required=True,
    type=click.Choice(_CLIENTS),
    help="Whose file to write. May be repeated.",
)
@click.option(
    "--contracts",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The contract file.  [default: NAME.contracts.toml]",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace another server of this name, and a contract file that is there.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@takes("store")
@click.argument("command", nargs=-1, required=True)
def init(
    *,
    name: str,
    clients: tuple[str, ...],
    contracts: str | None,
    force: bool,
    dry_run: bool,
    command: tuple[str, ...],
) -> None:
    r"""Put the proxy into the files of your clients, and begin a contract file.

    The server is started once and asked which tools it has. In the contract file each of them is
    a write that is sent once: the safe choice, with what the server says about it beside it.
    What else is in the clients' files stays as it is. A store that EFFECTONCE_STORE names is not
    written there: the entry refers to the variable.

    \b
    Examples:
      effectonce mcp init bank --client claude-code --client vscode -- python bank_server.py
      effectonce mcp init bank --client codex --dry-run -- npx -y @example/mcp-server
    """
    from effectonce.mcp._client_configs import HOSTS, entered, read_text, starting, write
    from effectonce.mcp._list_tools import tools_of
    from effectonce.mcp._stdio import ServerNotStarted

    file = Path(contracts or f"{name}.contracts.toml").absolute()
    planned = {}
    try:
        if force or not file.exists():
            planned[file] = starting(name, asyncio.run(tools_of(command)))
    except ServerNotStarted as error:
        raise click.ClickException(str(error)) from None
    store, variable = _store_named()
    # by its whole path, because clients may not share our PATH
    ourselves = shutil.which("effectonce") or "effectonce"
    about = ["--name", name, "--contracts", str(file), *store]
    proxied = [ourselves, "mcp", *about, "--", *command]
    for host in (HOSTS[client] for client in clients):
        path = host.file(Path.cwd(), Path.home(), os.environ)
        planned[path] = entered(
            host, read_text(path), path, name, proxied, variable=variable, force=force
        )
        if variable and not host.handing_on(variable):
            echo(
                f"{host.about} cannot refer to {variable}: its entry names no store. Name a file"
                " with the URL as store_file in your settings, or effects are in a file of this"
                " user.",
                err=True,
            )
    for path, text in planned.items():
        if dry_run:
            echo(f"# {path}\n{text}")
        else:
            write(path, text)
            echo(f"Wrote {path}", err=True)
    if file not in planned:
        echo(f"{file} is there already, and was left as it is.", err=True)


def _store_named() -> tuple[list[str], str]:
    """The options that name the store, or the variable that does: its URL may hold a password,
    and the files of clients are shared.
    """
    store = settings()["store"]
    variable = BY_NAME["store"].variable
    if store.origin == variable:
        return [], variable
    return (["--store", store.value] if store.value else []), ""


def _declared(contracts: str | None, name: str | None, *, trust_annotations: bool) -> Any:
    """What the file says, and the command line over it."""
    from effectonce.mcp._contracts import read_contracts

    given = {"trust_annotations": trust_annotations, "name": name}
    return read_contracts(contracts, {key: value for key, value in given.items() if value})


def _guard() -> Guard:
    """The user's own, or one for the store that was named, or one for a file of this user's."""
    from effectonce import Guard
    from effectonce.cli._app import load_app, opening, read_setting

    if setting("app"):
        return load_app(setting("app"))
    with opening():
        path = setting("store_file")
        return Guard(
            setting("store") or (read_setting(path, "store_file") if path else _own_file())
        )


def _own_file() -> str:
    from platformdirs import user_state_path

    folder = user_state_path("effectonce", appauthor=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{Path(folder) / 'mcp.db'}"
