"""`effectonce mcp init`: entries in the files of clients, and a contract file to start from."""

import json
import subprocess
import sys
import tomllib

import pytest

from effectonce.mcp._client_configs import HOSTS
from effectonce.mcp._contracts import read_contracts
from tests.mcp_proxy.conftest import Client, environment


def init(stage, *options, command=None):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "effectonce.cli",
            "mcp",
            "init",
            "bank",
            *options,
            "--",
            *(command or stage.command),
        ],
        capture_output=True,
        text=True,
        env=environment(stage.folder),
        cwd=stage.folder,
        check=False,
    )


FILES = {
    "claude-code": (".mcp.json", "mcpServers"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
}


def entry(stage, host):
    file, section = FILES[host]
    text = (stage.folder / file).read_text()
    return (tomllib.loads if file.endswith("toml") else json.loads)(text)[section]["bank"]


def test_every_client_has_its_file():
    assert set(FILES) == set(HOSTS)


def test_what_is_written_into_each_client_starts_the_proxy(stage):
    done = init(stage, *[part for host in FILES for part in ("--client", host)])
    assert done.returncode == 0, done.stderr

    entries = [entry(stage, host) for host in FILES]
    assert len({json.dumps([each["command"], each["args"]]) for each in entries}) == 1
    assert entries[2]["type"] == "stdio"
    client = Client([sys.executable, "-m", "effectonce.cli", *entries[0]["args"]], stage.folder)
    receipts = [client.result("pay", {"id": "p"})["content"][0]["text"] for _ in range(2)]
    shown = client.answer(client.request("tools/list"))["result"]["tools"]
    client.close()
    assert receipts == ["rcpt_1", "rcpt_1"]
    assert not any("idempotency_key" in tool["inputSchema"].get("properties", {}) for tool in shown)


def test_the_contract_file_has_every_tool_as_a_write_and_what_the_server_says(stage):
    init(stage, "--client", "cursor")

    file = stage.folder / "bank.contracts.toml"
    contracts = read_contracts(str(file), {})
    assert contracts.name == "bank"
    assert {name: contracts.of(name, {}).kind for name in contracts.tools} == dict.fromkeys(
        ("pay", "look", "set", "typed", "pay_with_key"), "write"
    )
    assert contracts.of("pay_with_key", {}).key_argument == "idempotency_key"
    assert 'if you believe it, "read"' in file.read_text()


@pytest.mark.parametrize("host", ["claude-code", "codex"])
def test_what_else_is_in_a_file_stays(stage, host):
    file = stage.folder / FILES[host][0]
    file.parent.mkdir(exist_ok=True)
    mine = {
        "codex": '# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y"\n',
        "claude-code": '{"mcpServers": {"other": {"command": "y"}}, "z": 1}',
    }[host]
    file.write_text(mine)

    init(stage, "--client", host)

    text = file.read_text()
    document = tomllib.loads(text) if host == "codex" else json.loads(text)
    assert document[FILES[host][1]]["other"] == {"command": "y"}
    assert document.get("model", document.get("z")) in ("x", 1)
    assert host != "codex" or text.startswith("# mine\n")


@pytest.mark.parametrize("host", ["claude-code", "codex"])
def test_another_server_of_the_same_name_is_left_alone(stage, host):
    file = stage.folder / FILES[host][0]
    file.parent.mkdir(exist_ok=True)
    theirs = (
        '[mcp_servers.bank]\ncommand = "y"\n'
        if host == "codex"
        else '{"mcpServers": {"bank": {"command": "y"}}}'
    )
    file.write_text(theirs)

    done = init(stage, "--client", host)

    assert done.returncode != 0
    assert "left alone" in done.stderr
    assert file.read_text() == theirs
    assert not (stage.folder / "bank.contracts.toml").exists()


def test_with_force_it_is_replaced_and_twice_is_once(stage):
    file = stage.folder / ".mcp.json"
    file.write_text('{"mcpServers": {"bank": {"command": "y"}}}')

    assert init(stage, "--client", "claude-code", "--force").returncode == 0
    written = file.read_text()
    assert init(stage, "--client", "claude-code").returncode == 0

    assert file.read_text() == written
    assert "effectonce" in entry(stage, "claude-code")["command"]


@pytest.mark.parametrize("written", [b'{"servers": {}, // with a comment\n}', b"\xff\xfe{"])
def test_a_file_that_cannot_be_read_is_left_alone(stage, written):
    file = stage.folder / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_bytes(written)

    done = init(stage, "--client", "vscode")

    assert done.returncode != 0
    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_bytes() == written


def test_a_dry_run_writes_nothing(stage):
    before = {path.name for path in stage.folder.iterdir()} | {stage.log.name}

    done = init(stage, "--client", "claude-code", "--dry-run")

    assert '[tools."pay"]' in done.stdout
    assert '"mcpServers"' in done.stdout
    assert {path.name for path in stage.folder.iterdir()} == before


def test_a_server_that_says_nothing_is_an_error(stage):
    done = init(stage, "--client", "cursor", command=[sys.executable, "-c", "raise SystemExit(3)"])

    assert done.returncode == 1
    assert "ended before it answered initialize" in done.stderr
