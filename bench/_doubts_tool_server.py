"""A tool server over stdio for doubts.py: its one tool pays at the bank, and goes wrong once if
its customer has a fault in the folder.

python bench/_doubts_tool_server.py PORT FOLDER
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from pathlib import Path
from typing import Any

KEY = "dev.effectonce/idempotency-key"


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def fault_for(folder: Path, who: str) -> str:
    """The fault of this call. It is over then."""
    armed = folder / who
    fault = armed.read_text() if armed.exists() else ""
    armed.unlink(missing_ok=True)
    return fault


def pay(port: int, who: str, key: str | None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(
        "POST", "/pay", json.dumps({"who": who}), {} if key is None else {"Idempotency-Key": key}
    )
    receipt: str = json.loads(connection.getresponse().read())["receipt"]
    connection.close()
    return receipt


def call(message: dict[str, Any], port: int, folder: Path) -> None:
    params, called = message["params"], {"id": message["id"]}
    who = params["arguments"]["who"]
    fault = fault_for(folder, who)
    if fault == "dies before":
        os._exit(3)
    if fault == "refuses the arguments":
        return say({**called, "error": {"code": -32602, "message": "no such argument"}})
    if fault == "reports an error before":
        return say({**called, "result": text("my own bug", isError=True)})
    receipt = pay(port, who, params.get("_meta", {}).get(KEY))
    if fault == "dies after":
        os._exit(3)
    if fault == "reports an error after":
        return say({**called, "result": text("my own bug", isError=True)})
    if fault == "breaks after":
        return say({**called, "error": {"code": -32603, "message": "the handler failed"}})
    return say({**called, "result": text(receipt)})


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def main() -> None:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "tools/call":
                call(message, port, folder)
            case "tools/list":
                say(
                    {
                        "id": message["id"],
                        "result": {"tools": [{"name": "pay", "inputSchema": schema}]},
                    }
                )
            case _ if "id" in message:
                say({"id": message["id"], "result": {}})


if __name__ == "__main__":
    main()
