"""`effectonce serve`: the dashboard."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import click

from effectonce.cli._app import guard_here, imported, made_here
from effectonce.cli._ask import who
from effectonce.cli._console import echo, say
from effectonce.cli._exits import FAILED, Stop
from effectonce.cli._options import takes
from effectonce.cli._settings import setting
from effectonce.cli.gateway import (
    ANY_ADDRESS,
    address,
    is_loopback,
    listen_option,
    needing,
    repeated_option,
    tls_options,
)

HERE = ("127.0.0.1", "localhost", "::1", "[::1]")


@click.command()
@listen_option("127.0.0.1:8642")
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Settle, redrive, discard and cancel; otherwise it is read-only.",
)
@click.option("--reveal", is_flag=True, help="Show arguments, results and keys as well.")
@click.option(
    "--access",
    "access_by",
    metavar="MODULE:FUNCTION",
    help="Who may do what: a function of yours, instead of a link.",
)
@repeated_option("--allow-host", "hosts", "HOST", "A name that it answers to.")
@tls_options
@takes("by", "tenant", "store", "app", "config", "color")
def serve(
    *,
    listen: str,
    allow_actions: bool,
    reveal: bool,
    access_by: str | None,
    hosts: tuple[str, ...],
    certfile: str | None,
    keyfile: str | None,
) -> None:
    r"""Look at effects in a browser, and settle what is in doubt.

    It listens on this machine alone and prints a link that lets one browser in. It is read-only
    unless you say --allow-actions. With --app it knows your tools: then letters can be redriven,
    and probes asked. Other machines are let in by --access alone.

    \b
    Examples:
      effectonce serve
      effectonce serve --app shop.agents:guard --allow-actions --by ada
      effectonce serve --listen 0.0.0.0:8642 --allow-host ops.example.com --access shop.staff:access
    """
    if keyfile is not None and certfile is None:
        raise click.UsageError("--keyfile needs --certfile.")
    host, port = address(listen)
    _check(host, hosts, access_by, limited=allow_actions or reveal)
    from effectonce.dashboard import Access
    from effectonce.dashboard._live import end_streams
    from effectonce.dashboard._serve import served, served_here
    from effectonce.views.audit import is_there

    with needing("the dashboard needs", "server"):
        from effectonce.cli._uvicorn import run_server
    let_in = None if access_by is None else _function(access_by)
    by = who() if allow_actions else "you"
    names = {*(HERE if is_loopback(host) else (host,)), *hosts}
    with guard_here() as guard, _listening(host, port) as listener:
        port = listener.getsockname()[1]
        scheme, shown = "https" if certfile else "http", f"[{host}]" if ":" in host else host
        where = f"{scheme}://{shown}:{port}/"
        if allow_actions and made_here(guard) and is_there(guard):
            say(
                "What is decided here is on the record, and not in the audit. With --app, your"
                " guard writes it there as well."
            )
        if certfile is None and not is_loopback(host):
            say("Without --certfile, what passes here can be read on the way.")
        if let_in is not None:
            made = served(guard, let_in, names)
            say(f"Listening on {where}")
        else:
            tenant = setting("tenant") or None
            access = Access(by, acts=allow_actions, reveals=reveal, tenant=tenant)
            can = f"with actions, by {by}" if allow_actions else "read-only"
            say(f"The dashboard, {can}. Open it; each link works once:")
            cookie = f"effectonce_{port}"
            made = served_here(guard, access, names, cookie, lambda t: _show(f"{where}?token={t}"))
        run_server(
            made,
            lifespan="off",
            listener=listener,
            certfile=certfile,
            keyfile=keyfile,
            ending=end_streams,
        )


def _show(link: str) -> None:
    """Data, on stdout. Its reader may have closed it after the first link: sessions stay open."""
    with contextlib.suppress(OSError):
        echo(link)


def _check(host: str, hosts: tuple[str, ...], access_by: str | None, *, limited: bool) -> None:
    if access_by is None and not is_loopback(host):
        raise click.UsageError(
            f"Listening on {host} lets other machines in: say who may do what with --access"
            " MODULE:FUNCTION, or listen on 127.0.0.1."
        )
    if access_by is not None and limited:
        raise click.UsageError(
            "--access decides who may do what: leave out --allow-actions and --reveal."
        )
    if access_by is not None and setting("tenant"):
        raise click.UsageError(
            "--access decides whose effects are shown, by Access(tenant=...): leave out the setting"
            " tenant."
        )
    if access_by is not None and not hosts and host in ANY_ADDRESS:
        raise click.UsageError("Say which names it answers to: --allow-host ops.example.com.")


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise Stop(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            FAILED,
            "Name another port: --listen 127.0.0.1:0 takes a free one.",
        ) from None
    with listener:
        yield listener


def _function(named: str) -> Callable[..., Any]:
    function = imported("--access", named, "access")
    if not callable(function):
        raise click.UsageError(f"--access {named} is a {type(function).__name__}, not a function.")
    return function  # type: ignore[no-any-return]
