"""An agent that refunds three orders, writes down which are done, and goes on where it stopped.

It does what most do: it sends, then notes. `oncebench run -- python naive_agent.py` finds what
happens when it dies between the two.
"""

import json
import os
import urllib.request
from pathlib import Path

URL = os.environ["ONCEBENCH_URL"]
NOTES = Path("done.txt")


def refund(order: str, amount: int) -> None:
    body = json.dumps({"order": order, "amount": amount}).encode()
    request = urllib.request.Request(f"{URL}/refunds", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=2) as response:
        json.load(response)


done = NOTES.read_text().split() if NOTES.exists() else []
for order in ("o1", "o2", "o3"):
    if order not in done:
        refund(order, 100)
        with NOTES.open("a") as notes:
            notes.write(f"{order}\n")
