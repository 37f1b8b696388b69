"""Runs the cells of doubts.py whose fault is one of a tool server, through `effectonce mcp`, and
prints what became of each.

    python bench/_doubts_mcp.py SUBJECT PORT FOLDER FAULT...

The client writes lines and reads lines. The first call of an effect meets its fault. Then the
client is started anew, as a host restarts its servers, and makes the same call twice more. The
proxy's store stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from _doubts_bank import Bank
from _doubts_cells import CALLS, Answer, Cell, Said, ended

FAULTS = (
    "dies before",
    "dies after",
    "refuses the arguments",
    "reports an error before",
    "reports an error after",
    "breaks after",
)
SUBJECTS = ("effectonce mcp",)
DOWNSTREAMS = ("none", "key")
# no word of the server says whether it was done
UNKNOWABLE = frozenset(FAULTS) - {"refuses the arguments"}
SERVER = Path(__file__).with_name("_doubts_tool_server.py")


class Client:
    """One client with its proxy and its server."""

    def __init__(self, bank: Bank, folder: Path, contracts: Path) -> None:
        store = f"sqlite:///{folder}/effects.db"
        server = [sys.executable, str(SERVER), str(bank.port), str(folder)]
        command = [
            sys.executable,
            "-m",
            "effectonce.cli",
            "mcp",
            "--store",
            store,
            "--contracts",
            str(contracts),
            "--",
            *server,
        ]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EFFECTONCE_", "CLAUDE_"))
        }
        environment = kept | {"XDG_STATE_HOME": str(folder), "HOME": str(folder)}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment, cwd=folder
        )
        self._ids = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def call(self, who: str) -> Said:
        self._ids += 1
        params = {"name": "pay", "arguments": {"who": who}}
        message = {"jsonrpc": "2.0", "id": self._ids, "method": "tools/call", "params": params}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        return said_by(self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit("the proxy has ended")
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._ids and "method" not in answer:
                return answer


def said_by(answer: dict[str, Any]) -> Said:
    result = answer.get("result")
    if result is None:
        return Said.LATER  # its own refusal: nothing was done, and the call may be corrected
    if not result.get("isError"):
        return Said.DONE
    code = result.get("_meta", {}).get("dev.effectonce/error", {}).get("code")
    return Said.UNKNOWN if code == "OUTCOME_UNKNOWN" else Said.LATER


def run(downstream: str, faults: list[str], bank: Bank, folder: Path) -> list[dict[str, Any]]:
    """All cells of one contract: first each fault, then each call again."""
    cells = [Cell("write", downstream, fault) for fault in faults]
    contracts = folder / f"{downstream}.json"
    contracts.write_text(
        json.dumps({"name": "bank", "tools": {"pay": {"kind": "write", "downstream": downstream}}})
    )
    for cell in cells:
        bank.arm(cell.who, "", honours_keys=downstream == "key")
        (folder / cell.who).write_text(cell.fault)
    answers: dict[Cell, list[Answer]] = {cell: [] for cell in cells}
    for times in (1, CALLS - 1):
        with Client(bank, folder, contracts) as client:
            for cell in cells:
                answers[cell] += [
                    Answer(client.call(cell.who), len(bank.paid(cell.who))) for _ in range(times)
                ]
    return [
        ended(cell, said) | {"floor": downstream == "none" and cell.fault in UNKNOWABLE}
        for cell, said in answers.items()
    ]


def main() -> None:
    _, port, folder, *faults = sys.argv[1:]
    bank = Bank(int(port))
    print(
        json.dumps(
            [
                cell
                for downstream in DOWNSTREAMS
                for cell in run(downstream, faults, bank, Path(folder))
            ]
        )
    )


if __name__ == "__main__":
    main()
