"""Where the hosts of agents keep their MCP servers, and how an entry for the proxy is written
there.

Each file belongs to another program: what is in it stays, an entry of the same name is replaced
only if that is wished, and a file that cannot be read as it should be is left alone.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from effectonce.errors import ContractViolation


class Host(Struct, frozen=True):
    """One host: where its file is, and under which name its servers stand in it."""

    name: str
    about: str
    section: str
    in_project: str = ""  # its file there; "": it has one for the user only
    reads: str = ""  # how an entry takes the variable NAME from the host's environment
    more: tuple[tuple[str, str], ...] = ()  # what else an entry says

    def file(self, folder: Path, home: Path, environ: Mapping[str, str]) -> Path:
        """Its file, for the project in *folder* or for the user."""
        if self.in_project:
            return folder / self.in_project
        if self.name == "claude-desktop":
            return _desktop(home, environ) / "claude_desktop_config.json"
        return Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"

    def handing_on(self, variable: str) -> dict[str, Any]:
        """The entry that gives the server a variable of the host's environment; {}: no way to."""
        if self.reads:
            return {"env": {variable: self.reads.replace("NAME", variable)}}
        return {"env_vars": [variable]} if self.name == "codex" else {}


HOSTS = {
    host.name: host
    for host in (
        Host("claude-code", "Claude Code, this project", "mcpServers", ".mcp.json", "${NAME}"),
        Host("claude-desktop", "Claude Desktop", "mcpServers"),
        Host(
            "vscode",
            "VS Code, this project",
            "servers",
            ".vscode/mcp.json",
            "${env:NAME}",
            (("type", "stdio"),),
        ),
        Host("cursor", "Cursor, this project", "mcpServers", ".cursor/mcp.json", "${env:NAME}"),
        Host("codex", "Codex", "mcp_servers"),
    )
}


def _desktop(home: Path, environ: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Claude"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "Claude"


def read_text(path: Path) -> str:
    """What is in a host's file; nothing if there is none."""
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ContractViolation(
            f"{path} cannot be read ({error}), and was left alone. Add the entry yourself."
        ) from None


def entered(
    host: Host,
    text: str,
    where: Path,
    name: str,
    command: Sequence[str],
    *,
    variable: str = "",
    force: bool,
) -> str:
    """What the file of *host* says with the server *name* in it. Where it says so already, it
    stays as it is.

    *variable* is one of the environment that the server needs.
    """
    entry = {**dict(host.more), "command": command[0], "args": list(command[1:])}
    entry |= host.handing_on(variable) if variable else {}
    if where.suffix == ".toml":
        return _toml(host, text, where, name, entry)
    return _json(host, text, where, name, entry, force=force)


def _json(
    host: Host, text: str, where: Path, name: str, entry: dict[str, Any], *, force: bool
) -> str:
    try:
        document = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ContractViolation(
            f"{where} cannot be read as JSON ({error}), and was left alone. Add the entry yourself."
        ) from None
    servers = document.get(host.section, {}) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ContractViolation(
            f"{where} is not what {host.about} writes there, and was left alone."
        )
    if servers.get(name) == entry:
        return text
    if name in servers and not force:
        raise ContractViolation(
            f"{where} has another server {name!r}, and was left alone. Replace it with --force, or"
            " use another name."
        )
    document |= {host.section: servers | {name: entry}}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _toml(host: Host, text: str, where: Path, name: str, entry: dict[str, Any]) -> str:
    """TOML is only added to: to write it anew would lose its comments."""
    try:
        servers = tomllib.loads(text).get(host.section, {})
    except tomllib.TOMLDecodeError as error:
        raise ContractViolation(
            f"{where} cannot be read as TOML ({error}), and was left alone. Add the entry yourself."
        ) from None
    if servers.get(name) == entry:
        return text
    if name in servers:
        raise ContractViolation(
            f"{where} has a server {name!r} already, and was left alone. Take it out first, or use"
            " another name."
        )
    lines = [f"{field} = {_quoted(value)}\n" for field, value in entry.items()]
    table = f"[{host.section}.{_quoted(name)}]\n{''.join(lines)}"
    return f"{text.rstrip()}\n\n{table}".lstrip()


def write(path: Path, text: str) -> None:
    """As a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.write_text(text, encoding="utf-8")
    if path.exists():
        beside.chmod(path.stat().st_mode)
    beside.replace(path)


def _quoted(value: Any) -> str:
    """Texts and lists of texts as in JSON, but TOML has no half characters and escapes DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# ---------------------------------------------------------------- a contract file to start from


def starting(name: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """A contract file for these tools: the safe choice for each, beside what the server says."""
    text = (
        "# What is known about the tools of this server. Correct it: only you know what running"
        " twice would do.\n"
        "# kind: read, idempotent_write, write or irreversible. All settings are in"
        f" docs/reference/mcp.md.\nname = {_quoted(name)}\n"
    )
    for tool in tools:
        text += "\n".join(["", f"[tools.{_quoted(tool['name'])}]", *_about(tool), ""])
    return text


def _about(tool: Mapping[str, Any]) -> list[str]:
    hints, kind, believe = tool.get("annotations") or {}, 'kind = "write"', "if you believe it"
    if hints.get("readOnlyHint") is True:
        kind += f'  # the server says that it only reads: {believe}, "read"'
    elif hints.get("idempotentHint") is True:
        kind += f'  # the server says that repeats do no harm: {believe}, "idempotent_write"'
    for field in (tool.get("inputSchema") or {}).get("properties") or {}:
        if field.lower().replace("_", "") == "idempotencykey":
            filled = "filled by the proxy; the model does not see it"
            return [kind, f"key_argument = {_quoted(field)}  # {filled}"]
    return [kind]
