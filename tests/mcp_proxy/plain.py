"""A server over stdio without any SDK: it writes down every byte that it gets, and answers in
odd spacing. `plain.py PORT LOG`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from effectonce.testing.bank import pay

PORT, LOG = int(sys.argv[1]), sys.argv[2]
OUT = threading.Lock()
KEY = "dev.effectonce/idempotency-key"
TOOLS = [
    {"name": "pay", "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}}},
    {"name": "look", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
    {"name": "set", "annotations": {"idempotentHint": True}, "inputSchema": {"type": "object"}},
    {
        "name": "typed",
        "inputSchema": {"properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    },
    {
        "name": "pay_with_key",
        "inputSchema": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "idempotency_key": {"type": "string"}},
            "required": ["id", "idempotency_key"],
        },
    },
]


def say(line):
    with OUT:
        sys.stdout.buffer.write(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        )
        sys.stdout.buffer.flush()


def answer(message, **content):
    say({"jsonrpc": "2.0", "id": message["id"], **content})


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(message):
    params = message["params"]
    name, arguments, meta = params["name"], params.get("arguments", {}), params.get("_meta", {})
    if name == "look":
        return answer(message, result=text("seen"))
    if name == "typed" and not isinstance(arguments.get("amount"), int):
        return answer(message, result=text(arguments["words"], isError=True))
    if name == "hidden":
        return answer(message, result=text(arguments["words"], isError=True))
    if name == "invalid":
        return answer(message, error={"code": -32602, "message": "no such argument"})
    if name == "ask" and "inputResponses" not in params:
        return answer(
            message,
            result={
                "resultType": "input_required",
                "inputRequests": {"sure": {"method": "elicitation/create"}},
            },
        )
    key = arguments.get("idempotency_key") or (meta.get(KEY) if name == "pay_by_meta" else None)
    receipt = pay(PORT, arguments.get("id", "x"), 1, key=key)["receipt"]
    if name == "pay_and_die" or (name == "pay_by_meta" and not Path(arguments["gate"]).exists()):
        if "gate" in arguments:
            Path(arguments["gate"]).touch()
        os._exit(3)
    if name == "wait":
        while not Path(arguments["gate"]).exists():
            # a tool that takes as long as the test wants: the test makes the file
            time.sleep(0.005)
    if name == "says":  # these very words
        return say(
            arguments["words"].encode("latin-1").replace(b"ID", json.dumps(message["id"]).encode())
            + b"\n"
        )
    if name == "large":
        return answer(message, result=text("x" * arguments["bytes"]))
    if name == "broken":
        return answer(message, error={"code": -32603, "message": "the handler failed"})
    # paid, and then words that look like a refusal
    if name in ("typed", "set") and "words" in arguments:
        return answer(message, result=text(arguments["words"], isError=True))
    if name == "fail":
        return answer(message, result=text("the bank's answer was lost", isError=True))
    if name == "task":
        return answer(message, result={"resultType": "task", "task": {"taskId": f"task_{receipt}"}})
    return answer(message, result=text(receipt))


def hear(line):
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(message, list) or "method" not in message:
        return
    if message["method"] == "tools/call":
        threading.Thread(target=call, args=(message,), daemon=True).start()
    elif message["method"] == "tools/list":
        answer(message, result={"tools": TOOLS} if TOOLS else {})
    elif message["method"] == "x/no-list":
        TOOLS.clear()
        answer(message, result=1)
    elif message["method"] == "x/pid":
        answer(message, result=os.getpid())
    elif message["method"] == "x/ask-client":
        say(b'{"jsonrpc":"2.0" , "id" : "s-1","method":"roots/list"}\n')
    elif message["method"] == "x/silent":
        pass
    elif message["method"] == "x/linger":  # nothing more is said, but it takes a while to end
        os.close(1)
        while not Path(message["params"]["gate"]).exists():
            time.sleep(0.005)  # the test makes it
        os._exit(0)
    elif message["method"] == "x/odd-tools":
        answer(message, result={"tools": []})
        TOOLS.append({"name": "odd", "inputSchema": {"properties": ["id"], "required": None}})
        TOOLS.append(
            {"name": "said", "_meta": {"dev.effectonce/contract": {"kind": "no such kind"}}}
        )
    elif "id" in message:
        raw = json.dumps(message["id"]).encode()
        say(
            b'{ "unknown" : [1.0, 1e2],"id":'
            + raw
            + b' ,"result":{"b":1,"a":"\\u00e9"},  "jsonrpc":"2.0"}\r\n'
        )
        say(b'{"method" :"notifications/odd","jsonrpc":"2.0"}\n')


with Path(LOG).open("ab", buffering=0) as log:
    for heard in sys.stdin.buffer:
        log.write(heard)
        hear(heard)
os._exit(0)
