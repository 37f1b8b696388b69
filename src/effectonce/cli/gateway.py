"""`effectonce gateway`: a reverse proxy that makes an API safe to retry."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from effectonce.cli._app import opening
from effectonce.cli._console import color_option, echo
from effectonce.cli._options import value_option, with_options
from effectonce.cli._settings import refuse_password

F = TypeVar("F", bound=Callable[..., Any])
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104  # they need a name that the server answers to
FILE = click.Path(exists=True, dir_okay=False)


def listen_option(default: str) -> Callable[[F], F]:
    return value_option("--listen", default, click.STRING, "Where to listen.", "HOST:PORT")


def repeated_option(flag: str, name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(flag, name, multiple=True, metavar=metavar, help=f"{text} May be repeated.")


tls_options = with_options(
    click.option("--certfile", type=FILE, help="Our certificate, with its chain: listen with TLS."),
    click.option("--keyfile", type=FILE, help="Its key."),
)


@click.command()
@click.option("--upstream", metavar="URL", help="The API that requests go to. There is one.")
@click.option(
    "--config", type=FILE, help="Settings, in TOML or JSON. Options of this command win over it."
)
@click.option(
    "--store",
    metavar="URL",
    help="Where effects are recorded. With a password: in EFFECTONCE_STORE or --config.",
)
@repeated_option("--allow-host", "hosts", "HOST", "A host that it speaks for.")
@click.option(
    "--tenant-header",
    metavar="NAME",
    help="Who is asking: a header that only your own proxy can set.",
)
@click.option(
    "--key-header",
    metavar="NAME",
    help="The header in which the API gets the key.  [default: idempotency-key]",
)
@listen_option("127.0.0.1:8080")
@click.option("--uds", type=click.Path(dir_okay=False), help="Listen on this socket file instead.")
@tls_options
@click.option("--check", is_flag=True, help="Check the settings and end.")
@color_option
def gateway(
    *,
    listen: str,
    uds: str | None,
    check: bool,
    certfile: str | None,
    keyfile: str | None,
    **given: Any,
) -> None:
    r"""Put these guarantees in front of an API, for callers in any language.

    Requests with an Idempotency-Key reach the API once, however often they are repeated; the API
    gets a key of its own for each. There is one upstream, no request names another, and every
    request has a tenant: say who is asking with --tenant-header, or with tokens in --config.

    \b
    Examples:
      effectonce gateway --config examples/gateway.toml
      effectonce gateway --upstream http://127.0.0.1:9000 --store sqlite:///gateway.db \
          --allow-host api.example.com --tenant-header x-tenant
      effectonce gateway --config gateway.toml --listen 0.0.0.0:8443 --certfile chain.pem --keyfile key.pem
    """
    if keyfile is not None and certfile is None:
        raise click.UsageError("--keyfile needs --certfile.")
    host, port = address(listen)
    with needing("the gateway needs", "gateway"):
        import httpx  # noqa: F401  # what the gateway sends with

        from effectonce.cli._uvicorn import run_server
        from effectonce.http.gateway.app import Gateway, read_settings
    with opening():
        config = given.pop("config")
        options, store = _settings(**given), os.environ.get("EFFECTONCE_STORE")
        # It counts where neither an option nor the file names one: gateways with one file are on
        # one store, whichever user starts them.
        environment = {"store": store} if store else {}
        missing = [NEEDED[name] for name in NEEDED if name not in environment | options]
        if config is None and missing:
            raise click.UsageError(f"Give {', '.join(missing)}, or settings with --config FILE.")
        made = Gateway(read_settings(config, options, environment))
    if check:
        made.guard.close()
        echo("The settings can be used.")
        return
    where = uds or f"{'https' if certfile else 'http'}://{host}:{port}"
    echo(f"Listening on {where}, for {made.settings.upstream.url}", err=True)
    if certfile is None and uds is None and not is_loopback(host):
        read = "what passes here can be read on the way: keys, tokens, bodies."
        echo(f"Without --certfile, {read}", err=True)
    run_server(
        made, lifespan="on", host=host, port=port, uds=uds, certfile=certfile, keyfile=keyfile
    )


# settings without a default, by the names that they have on the command line
NEEDED = {
    "upstream": "--upstream URL",
    "hosts": "--allow-host HOST",
    "tenants": "--tenant-header NAME",
    "store": "--store URL",
}


@contextlib.contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """What is imported in this block comes with an extra."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(
            f"{error}. Install what {what}: pip install 'effectonce[{extra}]'"
        ) from None


def address(listen: str) -> tuple[str, int]:
    """Where to listen."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, such as 127.0.0.1:8080.")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Is it this machine alone?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _settings(
    upstream: str | None,
    store: str | None,
    hosts: tuple[str, ...],
    tenant_header: str | None,
    key_header: str | None,
) -> dict[str, Any]:
    """What the command line says, as the file would."""
    if store is not None:
        refuse_password(store, "--store", "the file that --config names")
    sections: dict[str, Any] = {
        "upstream": _given(url=upstream, key_header=key_header),
        "hosts": list(hosts),
        "store": store,
        "tenants": _given(header=tenant_header),
    }
    return {name: value for name, value in sections.items() if value}


def _given(**options: str | None) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}
