"""The agent of naive_agent.py with effectonce: one decorator, and the key goes along."""

import json
import os
import urllib.request

from effectonce import Guard, current_effect

URL = os.environ["ONCEBENCH_URL"]
guard = Guard("sqlite:///effects.db")


@guard.tool(kind="irreversible", downstream="key", lease_s=1)
def refund(order: str, amount: int) -> str:
    body = json.dumps({"order": order, "amount": amount}).encode()
    headers = {
        "content-type": "application/json",
        "Idempotency-Key": current_effect().downstream_key,
    }
    request = urllib.request.Request(f"{URL}/refunds", body, headers)
    with urllib.request.urlopen(request, timeout=2) as response:
        return json.load(response)["receipt"]


with guard.step("refunds of today", "refund"):
    for order in ("o1", "o2", "o3"):
        refund(order, 100)
