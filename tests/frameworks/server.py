"""An MCP server over stdio without any SDK, because each framework brings another one. Run as a
file: `server.py PORT ENDS`.

Its one tool refunds at the bank, and then *ENDS* says how: it `answers`, `fails` as tools do,
`breaks` as the protocol does, or `dies`.
"""

import json
import os
import sys

from effectonce.testing.bank import pay

PORT, ENDS = int(sys.argv[1]), sys.argv[2]
SCHEMA = {
    "type": "object",
    "properties": {"payment_id": {"type": "string"}, "reason": {"type": "string"}},
    "required": ["payment_id"],
}


def refund(arguments):
    receipt = pay(PORT, arguments["payment_id"], 100)["receipt"]
    if ENDS == "dies":
        os._exit(3)
    if ENDS == "breaks":
        return {"error": {"code": -32603, "message": "the bank's answer was lost"}}
    told = receipt if ENDS == "answers" else "the bank's answer was lost"
    return {"result": {"content": [{"type": "text", "text": told}], "isError": ENDS == "fails"}}


def heard(method, params):
    if method == "initialize":
        server = {"name": "bank", "version": "1"}
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
        }
    if method == "tools/list":
        return {
            "result": {
                "tools": [
                    {"name": "refund", "description": "Refund a payment.", "inputSchema": SCHEMA}
                ]
            }
        }
    if method == "tools/call":
        return refund(params["arguments"])
    return {"result": {}} if method == "ping" else {"error": {"code": -32601, "message": method}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = {
            "jsonrpc": "2.0",
            "id": message["id"],
            **heard(message["method"], message.get("params") or {}),
        }
        print(json.dumps(answer), flush=True)
