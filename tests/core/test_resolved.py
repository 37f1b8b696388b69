"""msgspec looks at a type when it is first used, and crashes if two threads do that at once. So
nothing of ours leaves it to a call.
"""

import subprocess
import sys

import pytest

CALLS = """
import sys
from dataclasses import dataclass
from effectonce import Allowance, ApprovalNeeded, Guard, InDoubt, Retry
from effectonce.stores import as_store

looks = []

def watch(frame, event, _):
    # a module that is imported late looks at its types under the lock of its import
    looked = event == "call" and frame.f_code.co_name == "get_class_annotations"
    if looked and frame.f_back.f_code.co_name != "resolved":
        looks.append(frame.f_back.f_code.co_name)

@dataclass
class Order:
    id: str

guard = Guard(sys.argv[1], cache=0, reconcile=False)

@guard.tool(kind="write", approval=lambda order: order.id == "asks", retry=Retry(attempts=1),
            allowance=Allowance("orders", limit=5))
def send(order: Order) -> Order:
    if order.id == "lost":
        raise TimeoutError
    return order

sys.setprofile(watch)
for step, order in enumerate(["first", "first", "lost", "asks", "asks"]):
    try:
        with guard.step("chat", order):
            send(Order(order))
    except (ApprovalNeeded, InDoubt):
        pass
for wish in guard.approvals.waiting():
    guard.approvals.approve(wish.key, by="ada", reason="yes")
guard.dead_letters.list()
guard.sweep()
sys.setprofile(None)
guard.close()
print(looks)
"""


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres", "redis"])
def test_no_call_is_the_first_to_use_a_type(store, tmp_path, request):
    url = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'effects.db'}",
        "postgres": lambda: request.getfixturevalue("database"),
        "redis": lambda: request.getfixturevalue("redis_url"),
    }[store]()

    done = subprocess.run(
        [sys.executable, "-c", CALLS, url], capture_output=True, text=True, check=False
    )

    assert done.stdout == "[]\n", done.stdout + done.stderr


@pytest.fixture
def redis_url(tmp_path):
    from tests.servers.redis import Server

    server = Server(tmp_path / "redis")
    yield server.url
    server.stop()
