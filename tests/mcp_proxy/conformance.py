"""The official conformance suite and inspector, against a server directly and through the proxy:
both must find the same.

python -m tests.mcp_proxy.conformance [--tools FOLDER]

Both come from npm, and need Node 22: where there is an older one, that comes from npm as well.
They are kept in FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE, INSPECTOR = (
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
)
REVISIONS = ("2026-07-28", "2025-11-25")
HERE = Path(__file__).parent


def installed(folder: Path) -> Path:
    """A Node that is new enough, and beside it the suite and the inspector."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is missing: the conformance suite and the inspector come from there.")
    found = shutil.which("node")
    version = (
        subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        if found
        else "v0"
    )
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    own = f"node-linux-{machine}"
    packages = [SUITE, INSPECTOR, *([f"{own}@22"] if int(version[1:].split(".")[0]) < 22 else [])]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / ".bin" / "conformance").exists():
        subprocess.run(
            [npm, "install", "--no-fund", "--no-audit", "--silent", "--prefix", folder, *packages],
            check=True,
        )
    carried = folder / "node_modules" / own / "bin" / "node"
    return carried if carried.exists() else Path(found or "node")


@contextlib.contextmanager
def running(command, env):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def wait_for(port: int, process) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
    sys.exit("the proxy did not start; its error is above")


def found_by_suite(
    node: Path, tools: Path, url: str, revision: str, folder: Path
) -> dict[str, str]:
    """Every check of every scenario, and what came of it."""
    suite = tools / "node_modules" / ".bin" / "conformance"
    command = [node, suite, "server", "--url", url, "--requirements", revision, "-o", folder]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    found: dict[str, str] = {}
    for file in sorted(folder.rglob("checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name)
        for number, check in enumerate(json.loads(file.read_text())):
            found[f"{revision} {scenario} {number} {check['id']}"] = check["status"]
    return found


def found_by_inspector(node: Path, tools: Path, command: list[str]) -> dict[str, str]:
    """The same requests over stdio, as the inspector shows their answers."""
    inspector = tools / "node_modules" / ".bin" / "mcp-inspector"
    asked = {
        "tools/list": [],
        "tools/call": ["--tool-name", "test_simple_text"],
        "resources/list": [],
        "prompts/get": ["--prompt-name", "test_simple_prompt"],
    }
    found = {}
    for method, options in asked.items():
        done = subprocess.run(
            [node, inspector, "--cli", *command, "--method", method, *options],
            capture_output=True,
            text=True,
            check=False,
        )
        found[f"inspector {method}"] = f"{done.returncode} {done.stdout}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--tools",
        type=Path,
        default=Path(tempfile.gettempdir()) / "effectonce-mcp-tools",
        help="where npm puts them",
    )
    tools = parser.parse_args().tools
    node = installed(tools)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = os.environ | {"PATH": f"{node.parent}:{os.environ['PATH']}", "XDG_STATE_HOME": name}
        with running([sys.executable, HERE / "reference.py"], env) as server:
            direct, port = f"http://127.0.0.1:{int(server.stdout.readline())}/mcp", free_port()
            ours = [sys.executable, "-m", "effectonce.cli", "mcp"]
            # The suite makes the same call many times and means it: for it, no call is a retry
            # once it has a result.
            (folder / "contracts.toml").write_text('name = "reference"\n[defaults]\nagain_s = 0\n')
            store = [
                "--contracts",
                str(folder / "contracts.toml"),
                "--store",
                f"sqlite:///{folder / 'effects.db'}",
            ]
            with running(
                [*ours, "http", direct, "--one-caller", "--listen", f"127.0.0.1:{port}", *store],
                env,
            ) as proxy:
                wait_for(port, proxy)
                urls = {"direct": direct, "proxied": f"http://127.0.0.1:{port}/mcp"}
                found = {
                    way: {
                        check: status
                        for revision in REVISIONS
                        for check, status in found_by_suite(
                            node, tools, url, revision, folder / way / revision
                        ).items()
                    }
                    for way, url in urls.items()
                }
        stdio = [sys.executable, "-c", "from tests.mcp_proxy.reference import server; server.run()"]
        found["direct"] |= found_by_inspector(node, tools, stdio)
        through = folder / "proxied.sh"  # one word: the inspector takes options for its own
        through.write_text(f"exec {shlex.join([*ours, 'run', *store, '--', *stdio])}\n")
        found["proxied"] |= found_by_inspector(node, tools, ["sh", str(through)])
    compare(found["direct"], found["proxied"])


def compare(direct: dict[str, str], proxied: dict[str, str]) -> None:
    different = sorted(
        check for check in direct.keys() | proxied.keys() if direct.get(check) != proxied.get(check)
    )
    for check in different:
        print(
            f"{check}: directly {str(direct.get(check))[:300]}, through the proxy"
            f" {str(proxied.get(check))[:300]}"
        )
    for way, found in (("directly", direct), ("through the proxy", proxied)):
        statuses = [status for check, status in found.items() if not check.startswith("inspector")]
        counted = ", ".join(
            f"{statuses.count(status)} {status.lower()}" for status in sorted(set(statuses))
        )
        print(
            f"{way}: {len(statuses)} checks ({counted}), and {len(found) - len(statuses)} answers"
            " to the inspector"
        )
    print(f"{len(different)} differences")
    sys.exit(1 if different or not direct else 0)


if __name__ == "__main__":
    main()
