"""The world only counts, and does to each request what it was told to."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import sys
from contextlib import closing

import pytest

from oncebench.world import WorldDied, world


def asked(here, method, path, body=None, headers=(), timeout=2):
    with closing(http.client.HTTPConnection("127.0.0.1", here.port, timeout=timeout)) as wire:
        wire.request(method, path, body, dict(headers))
        with wire.getresponse() as response:
            return response.status, json.loads(response.read())


def post(here, body, key=None, path="/pay", timeout=2):
    headers = {} if key is None else {"Idempotency-Key": key}
    return asked(here, "POST", path, json.dumps(body), headers, timeout)


def get(here, path):
    return asked(here, "GET", path)


@pytest.fixture
def deaf(tmp_path):
    with world(tmp_path / "ledger") as here:
        yield here


def test_each_request_is_an_effect_on_the_disk(deaf, tmp_path):
    for _ in range(2):
        post(deaf, {"order": "o1"}, key="k")

    lines = (tmp_path / "ledger").read_text().splitlines()
    assert [json.loads(line)["body"] for line in lines] == [{"order": "o1"}] * 2


def test_a_key_counts_within_its_window(tmp_path):
    with world(tmp_path / "ledger", window_s=3600) as here:
        first = post(here, {"order": "o1"}, key="k")
        again = post(here, {"order": "o1"}, key="k")
        other = post(here, {"order": "o2"}, key="k")

        assert first == again
        assert other[0] == 422
        assert len(here.effects()) == 1


def test_a_world_that_forgets_early_lands_it_again(tmp_path):
    with world(tmp_path / "ledger", window_s=0) as here:
        post(here, {"order": "o1"}, key="k")
        post(here, {"order": "o1"}, key="k")

        assert len(here.effects()) == 2


def test_it_can_be_asked_only_where_it_says_so(tmp_path, deaf):
    with world(tmp_path / "ledger2", can_be_asked=True) as here:
        post(here, {"order": "o1"})

        assert get(here, "/effects?order=o1")[1][0]["receipt"] == "receipt-1"
        assert get(here, "/effects?order=o2") == (200, [])
    assert get(deaf, "/effects?order=o1")[0] == 404


@pytest.mark.parametrize("kind", ["reset after", "truncated", "no answer"])
def test_a_lost_answer_is_an_effect_all_the_same(deaf, kind):
    deaf.arm(kind, matches="o1")

    with pytest.raises((OSError, http.client.HTTPException)):
        post(deaf, {"order": "o1"}, timeout=0.3)

    assert len(deaf.effects()) == 1


@pytest.mark.parametrize(("kind", "status"), [("429 before", 429), ("400 before", 400)])
def test_a_refusal_is_no_effect(deaf, kind, status):
    deaf.arm(kind, matches="o1")

    assert post(deaf, {"order": "o1"})[0] == status
    assert deaf.effects() == []
    assert post(deaf, {"order": "o1"})[0] == 200


def test_a_late_effect_lands_when_it_is_let_go(deaf):
    deaf.arm("late", matches="o1", late_s=60)

    with pytest.raises(ConnectionResetError):
        post(deaf, {"order": "o1"})

    deaf.release()
    assert len(deaf.effects()) == 1


def test_a_request_can_be_delivered_twice(deaf):
    deaf.arm("twice", nth=1)

    post(deaf, {"order": "o1"})

    assert len(deaf.effects()) == 2


def test_half_a_request_is_none(deaf):
    connection = http.client.HTTPConnection("127.0.0.1", deaf.port)
    connection.putrequest("POST", "/pay")
    connection.putheader("content-length", "100")
    connection.endheaders(b'{"order"')
    connection.close()

    assert post(deaf, {"order": "o2"})[0] == 200
    assert [effect.body for effect in deaf.effects()] == [{"order": "o2"}]


def test_who_asks_can_be_killed_when_it_has_happened(deaf):
    code = "import http.client; c = http.client.HTTPConnection('127.0.0.1', {}); c.request('POST', '/pay', '{{\"order\": \"o1\"}}'); c.getresponse()"
    program = subprocess.Popen(
        [sys.executable, "-c", "input();" + code.format(deaf.port)], stdin=subprocess.PIPE
    )
    deaf.arm("kill after", matches="o1", pid=program.pid)

    program.communicate(b"\n", timeout=30)

    assert program.returncode == -9
    assert len(deaf.effects()) == 1


def test_it_is_an_mcp_server_too(deaf):
    def ask(method, params, identity=1):
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        return post(deaf, message, path="/mcp")[1]

    assert ask("initialize", {"protocolVersion": "2025-06-18"})["result"]["serverInfo"]["name"]
    assert [tool["name"] for tool in ask("tools/list", {})["result"]["tools"]] == ["pay"]
    call = {"name": "pay", "arguments": {"order": "o1", "amount": 5}}
    assert ask("tools/call", call)["result"]["structuredContent"]["receipt"] == "receipt-1"
    assert ask("no/such", {})["error"]["code"] == -32601
    assert len(deaf.effects()) == 1


def test_a_world_ends_with_the_kit_that_started_it(tmp_path):
    code = "import os, sys, pathlib; from oncebench.world import world; w = world(pathlib.Path(sys.argv[1])).__enter__(); print(w.process.pid, flush=True); os.kill(os.getpid(), 9)"
    kit = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ledger")], capture_output=True, check=False
    )

    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(int(kit.stdout))
        assert select.select([ended], [], [], 20)[0], "it still runs"
        os.close(ended)


def test_a_world_that_dies_voids_the_run(deaf):
    deaf.process.kill()
    deaf.process.wait()

    with pytest.raises(WorldDied, match="exit code: -9"):
        deaf.effects()
