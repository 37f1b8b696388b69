"""What is told where calls do not begin with a decorated function: HTTP, workflows; and what it
costs nobody.
"""

import asyncio
import subprocess
import sys

from effectonce.observe import Audit
from tests.http.helpers import Shop, ask, guarded
from tests.observe.helpers import names, only, watched


def test_requests_of_the_middleware_are_told_and_audited():
    guard, seen = watched(secret=b"s" * 32, cache=0)
    audit = Audit(guard)
    guard.observe(audit)
    app = guarded(Shop(), guard)

    async def twice():
        return [await ask(app), await ask(app)]

    first, again = asyncio.run(twice())

    assert (first.status, again.replayed) == (201, True)
    calls = [event for event in seen if event.name == "call"]
    assert [event.outcome for event in calls] == ["executed", "replayed"]
    assert names(seen) == [
        "reserved",
        "dispatched",
        "attempt",
        "completed",
        "call",
        "dedup_hit",
        "call",
    ]
    assert only(seen, "reserved").arguments == {}
    assert [entry.event for entry in audit.entries()][-1] == "dedup_hit"
    assert audit.scan() == []
    audit.close()


def test_digests_of_arguments_need_a_secret_and_somebody_who_asks():
    for secret, asks in ((b"", True), (b"s" * 32, False), (b"s" * 32, True)):
        guard, seen = watched(secret=secret)
        if asks:
            guard.observe(Audit(guard))

        @guard.tool(kind="write", volatile=["note"])
        def pay(card: str, amount: int, note: str = ""):
            return 1

        with guard.step("chat", "pay"):
            pay("card-number", 1, "a note")
        told = only(seen, "reserved").arguments
        assert set(told) == ({"card", "amount"} if secret and asks else set())
        guard.close()


def test_importing_effectonce_observe_imports_no_optional_library():
    code = (
        "import effectonce.observe, sys; print([m for m in sys.modules if m.split('.')[0] in"
        " ('prometheus_client', 'opentelemetry', 'structlog', 'cryptography')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
