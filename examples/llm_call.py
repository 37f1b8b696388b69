"""A pipeline asks a model, and is run again because its first run was lost. The question is paid
for once.

    pip install 'effectonce[anthropic]'
    python examples/llm_call.py

The other side of the wire is a script, so this needs no network. It counts what it is asked, and
is overloaded at first.
"""

import tempfile
from pathlib import Path

import httpx2
from anthropic import Anthropic

from effectonce import Guard, Retry
from effectonce.llm import once_llm, was_cached

requests: list[httpx2.Request] = []


def answer(request: httpx2.Request) -> httpx2.Response:
    requests.append(request)
    if len(requests) == 1:
        return httpx2.Response(
            529, json={"error": {"type": "overloaded_error", "message": "try later"}}
        )
    message = {
        "id": f"msg_{len(requests)}",
        "type": "message",
        "role": "assistant",
        "model": "script",
        "stop_reason": "end_turn",
    }
    text = {"type": "text", "text": f"Paris, says answer {len(requests)}"}
    return httpx2.Response(
        200, json=message | {"content": [text], "usage": {"input_tokens": 7, "output_tokens": 4}}
    )


with tempfile.TemporaryDirectory() as folder:
    for run in ("the first run", "run again"):
        guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))
        client = Anthropic(
            api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
        )
        ask = once_llm(guard, client.messages.create, retry=Retry(throttled_base_s=0.0))
        for sample in (0, 1):
            message = ask(
                model="script",
                max_tokens=100,
                messages=[{"role": "user", "content": "What is the capital of France?"}],
                sample=sample,
            )
            print(
                f"{run}, sample {sample}: {message.content[0].text} (cached: {was_cached(message)})"
            )
        guard.close()
    print("requests at the server:", len(requests))
