"""The proxy between a client that speaks in lines and a server that writes down every byte."""

import asyncio
import json
import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from effectonce import Guard
from effectonce._core.ops import Search
from effectonce._core.record import State
from effectonce._core.rules import outcome_pending
from effectonce.mcp._contracts import Contracts
from effectonce.mcp._stdio import ClientPipes
from effectonce.mcp.proxy import Proxy
from tests.mcp_proxy.conftest import Client, environment, proxied
from tests.servers._process import until

CONVERSATION = "dev.effectonce/conversation"
KEY = "dev.effectonce/idempotency-key"


def text(result):
    return result["content"][0]["text"]


def told(result):
    assert result["isError"] is True
    return result["_meta"]["dev.effectonce/error"]


# ---------------------------------------------------------------- everything else passes


ODD = [
    b'{"method" : "x/unknown","id": 7,"jsonrpc":"2.0", "params":{"b":[1.0,1e3],"a":"\\u00e9"}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/odd",  "params":{"x":1}}\r\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}\n',
    b'{"jsonrpc":"2.0","id":"s-9","result":{"roots":[ ]}}\n',
    b"this is not JSON\n",
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"n"}]\n',
    b'{"jsonrpc":"2.0","id":8,"method":"server/discover","params":{"_meta":{"a/b":null}}}\n',
]


def test_what_is_no_call_passes_byte_for_byte_in_both_directions(stage):
    seen = []
    # one after the other: both servers write to one file
    for start in (stage.direct, stage.client):
        client = start()
        for line in ODD:
            client.send(line)
        client.answer(client.request("x/last"))
        code, rest = client.close()
        seen.append((code, stage.log.read_bytes(), b"".join(client.said) + rest))
        stage.log.unlink()

    assert seen[1] == seen[0]
    assert seen[1][1].startswith(b"".join(ODD))


def test_a_line_may_be_of_any_length(stage):
    client = stage.client()
    line = b'{"jsonrpc":"2.0","method":"n","params":{"x":"' + b"y" * 3_000_000 + b'"}}\n'

    client.send(line)
    client.barrier()

    assert stage.log.read_bytes().startswith(line)


@pytest.mark.parametrize("batches", [[["b1", "b2"]], [["b1"], ["b2"]]])
def test_a_call_in_a_batch_is_an_effect_as_well(stage, batches):
    client = stage.client()

    for names in batches:
        params = {"name": "pay", "arguments": {}}
        batch = [
            {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}
            for name in names
        ]
        client.send(json.dumps(batch).encode() + b"\n")
    first, second = client.answer("b1"), client.answer("b2")

    assert text(first["result"]) == text(second["result"]) == "rcpt_1"
    assert stage.effects() == 1


def test_the_first_answer_is_what_the_server_wrote(stage):
    direct, client = stage.direct(), stage.client()

    direct.answer(direct.call("pay", {"id": "p"}))
    client.answer(client.call("pay", {"id": "q"}))

    assert client.said[-1] == direct.said[-1].replace(b"rcpt_1", b"rcpt_2")


def test_a_call_that_readers_may_disagree_about_is_not_sent(stage):
    client = stage.client()

    client.send(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"id":"a","id":"b"}}}\n'
    )

    assert "comes twice" in client.answer(1)["error"]["message"]
    assert stage.bank.ledger() == []


LENIENT = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":NaN}}}\n',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":-Infinity}}}]\n',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{}}}\n',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":"\xff"}}}\n',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}\n",
]


@pytest.mark.parametrize("line", LENIENT, ids=["NaN", "batch", "BOM", "encoding", "depth"])
def test_a_call_that_only_some_readers_can_read_is_not_sent(stage, line):
    client = stage.client()

    client.send(line)
    answer = json.loads(client.line())
    client.barrier()

    assert "cannot be protected" in answer["error"]["message"]
    assert stage.heard() == []


def test_odd_words_of_either_side_do_not_end_the_conversation(stage):
    client = stage.client({"tools": {"odd": {"key_argument": "id"}}, "trust_annotations": True})

    client.send(
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e999}}\n'
    )
    client.send(
        b'{"jsonrpc":"2.0","method":"n","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    )
    client.answer(client.request("x/odd-tools"))
    tools = client.answer(client.request("tools/list"))["result"]["tools"]

    assert {"odd", "said"} <= {tool["name"] for tool in tools}
    assert "no such kind" in client.answer(client.call("said"))["error"]["message"]
    assert text(client.result("pay")) == "rcpt_1"


def test_no_digit_of_an_argument_is_lost(stage):
    client = stage.client()

    client.send(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":0.12345678901234567890,"m":123456789012345678901234567890}}}\n'
    )
    client.answer(1)

    assert (
        b'"n":0.12345678901234567890,"m":123456789012345678901234567890' in stage.log.read_bytes()
    )


@pytest.mark.parametrize("odd", ["NaN", '"\xff"', "1e999"])
def test_an_answer_that_only_some_readers_can_read_is_one(stage, odd):
    words = '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"n":' + odd + "}}"
    client = stage.client()

    first = client.call("says", {"words": words})
    assert client.line() == words.replace("ID", str(first)).encode("latin-1") + b"\n"

    assert client.result("says", {"words": words})["_meta"]["dev.effectonce/replayed"] is True
    assert stage.effects() == 1


# ---------------------------------------------------------------- giving up, late results


def test_what_the_client_gave_up_goes_on_and_its_result_waits_for_the_next(stage):
    client, gate = stage.client(), stage.folder / "gate"
    arguments = {"gate": str(gate)}

    given_up = client.call("wait", arguments)
    client.barrier()
    client.cancel(given_up)
    client.barrier()
    gate.touch()
    again = client.result("wait", arguments)
    client.close()

    assert text(again) == "rcpt_1"
    assert again["_meta"]["dev.effectonce/replayed"] is True
    assert "nothing was done again" in again["content"][-1]["text"]
    assert stage.effects() == 1
    assert stage.heard("notifications/cancelled") == []
    assert not any(json.loads(line).get("id") == given_up for line in client.said)


# ---------------------------------------------------------------- which effect is it?


def test_without_a_conversation_the_same_call_is_a_retry_for_a_while(stage):
    client = stage.client({"tools": {"set": {"again_s": 0}}})

    twice = [client.result("pay", {"id": "p"}) for _ in range(2)]
    other = client.result("pay", {"id": "q"})
    later = [text(client.result("set", {"id": "s"})) for _ in range(2)]

    assert twice[1]["_meta"]["dev.effectonce/replayed"] is True
    assert "120 s after this" in twice[1]["content"][-1]["text"]
    assert text(other) == "rcpt_2"
    assert later == ["rcpt_3", "rcpt_4"]


def test_in_a_conversation_what_was_shown_may_be_wished_again(stage):
    client, mine, other = (
        stage.client(),
        {CONVERSATION: "chat-1"},
        {"vscode.conversationId": "chat-2"},
    )

    receipts = [
        text(client.result("pay", {"id": "p"}, meta)) for meta in (mine, other, mine, other)
    ]

    assert receipts == ["rcpt_1", "rcpt_2", "rcpt_3", "rcpt_4"]


def test_a_result_that_the_client_gave_up_on_was_not_shown(stage):
    client, mine = stage.client(), {CONVERSATION: "chat-1"}

    first = client.call("pay", {"id": "p"}, mine)
    client.answer(first)
    client.cancel(first)  # its answer and this crossed
    again = client.result("pay", {"id": "p"}, mine)
    wished = client.result("pay", {"id": "p"}, mine)

    assert text(again) == "rcpt_1"
    assert text(wished) == "rcpt_2"


def test_what_was_shown_is_known_to_the_next_proxy(stage):
    mine = {CONVERSATION: "chat-1"}
    client = stage.client()
    client.result("pay", {"id": "p"}, mine)
    client.barrier()
    client.kill()

    client = stage.client()

    assert text(client.result("pay", {"id": "p"}, mine)) == "rcpt_2"


def test_what_nobody_lived_to_see_was_not_shown(stage):
    mine = {CONVERSATION: "chat-1"}
    client = stage.client()
    client.result("pay", {"id": "p"}, mine)
    client.kill()

    client = stage.client()

    assert text(client.result("pay", {"id": "p"}, mine)) == "rcpt_1"
    assert stage.effects("p") == 1


def test_the_hosts_own_id_of_a_call_proves_a_retry_and_nothing_else(stage):
    client = stage.client()

    def paid(call, conversation="chat-1"):
        return text(
            client.result(
                "pay", {"id": "p"}, {CONVERSATION: conversation, "claudecode/toolUseId": call}
            )
        )

    assert [paid("toolu_1"), paid("toolu_1"), paid("toolu_2")] == ["rcpt_1", "rcpt_1", "rcpt_2"]


def test_the_hosts_session_in_the_environment_is_the_conversation(stage):
    command = proxied(
        stage.command,
        "--store",
        f"sqlite:///{stage.folder / 'effects.db'}",
        "--conversation",
        "chat-1",
    )
    client = Client(command, stage.folder)

    receipts = [text(client.result("pay", {"id": "p"})) for _ in range(2)]
    client.close()

    assert receipts == ["rcpt_1", "rcpt_2"]


def test_a_key_of_the_clients_says_what_is_the_same(stage):
    client = stage.client()

    same = [text(client.result("pay", {"id": "p"}, {KEY: key})) for key in ("k1", "k1", "k2")]
    other = client.result("pay", {"id": "q"}, {KEY: "k1"})

    assert same == ["rcpt_1", "rcpt_1", "rcpt_2"]
    assert told(other)["code"] == "KEY_CONFLICT"
    assert stage.effects("q") == 0


def test_a_step_of_the_clients_says_where_it_is(stage):
    client = stage.client()

    steps = [
        text(client.result("pay", {}, {"dev.effectonce/step": step}))
        for step in ("one", "one", "two")
    ]

    assert steps == ["rcpt_1", "rcpt_1", "rcpt_2"]


def test_a_key_that_is_no_text_is_refused(stage):
    client = stage.client()

    assert told(client.result("pay", {}, {KEY: 7}))["code"] == "CONTRACT_VIOLATION"
    assert stage.bank.ledger() == []


def test_identity_and_volatile_arguments_are_what_the_contract_says(stage):
    client = stage.client({"tools": {"pay": {"identity": ["id"], "volatile": ["reason"]}}})

    first = client.result("pay", {"id": "p", "reason": "late", "note": "a"})
    reworded = client.result("pay", {"id": "p", "reason": "too late", "note": "a"})
    changed = client.result("pay", {"id": "p", "reason": "late", "note": "b"})

    assert text(first) == text(reworded) == "rcpt_1"
    assert told(changed)["code"] == "KEY_CONFLICT"


def test_a_field_that_the_tool_does_not_have_is_told_once_the_server_has_said_which_it_has(stage):
    client = stage.client({"tools": {"pay": {"identity": ["payment"]}}})
    client.answer(client.request("tools/list"))

    error = client.answer(client.call("pay", {"id": "p"}))["error"]

    assert (
        "pay has no argument 'payment', which its contract names; it has id. Nothing was sent."
        in error["message"]
    )
    assert stage.bank.ledger() == []


def test_two_servers_of_different_names_do_not_share_effects(stage):
    receipts = [
        text(stage.client(None, "--name", name).result("pay", {"id": "p"}))
        for name in ("one", "two", "one")
    ]

    assert receipts == ["rcpt_1", "rcpt_2", "rcpt_1"]


# ---------------------------------------------------------------- the key, on its way


def test_the_server_gets_a_key_and_the_client_never_sees_one(honest_stage):
    client = honest_stage.client()

    client.result("pay", {"id": "p"}, {"their/own": 1})
    client.close()

    (heard,) = honest_stage.heard()
    key = heard["params"]["_meta"][KEY]
    assert key.startswith("eo_")
    assert heard["params"]["_meta"]["their/own"] == 1
    assert key.encode() not in b"".join(client.said)


def test_an_argument_that_takes_a_key_is_filled_and_not_shown(honest_stage):
    client = honest_stage.client({"tools": {"pay_with_key": {"key_argument": "idempotency_key"}}})

    tools = client.answer(client.request("tools/list"))["result"]["tools"]
    results = [
        client.result("pay_with_key", {"id": "p", "idempotency_key": made_up})
        for made_up in ("a", "b")
    ]

    (shown,) = [tool["inputSchema"] for tool in tools if tool["name"] == "pay_with_key"]
    assert shown == {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    assert [text(result) for result in results] == ["rcpt_1", "rcpt_1"]
    assert honest_stage.bank.ledger()[0]["key"].startswith("eo_")


def test_a_list_without_such_an_argument_passes_byte_for_byte(stage):
    direct, client = stage.direct(), stage.client()

    for each in (direct, client):
        each.answer(each.request("tools/list"))

    assert client.said == direct.said


# ---------------------------------------------------------------- the server dies


def test_a_server_that_dies_leaves_a_doubt_and_is_started_again(stage):
    client = stage.client({"tools": {"pay_and_die": {"verify": "look"}, "look": {"kind": "read"}}})
    before = client.barrier()

    first = client.result("pay_and_die")
    after = client.barrier()
    again = client.result("pay_and_die")

    assert told(first)["code"] == told(again)["code"] == "OUTCOME_UNKNOWN"
    assert told(first)["corrective_action"].startswith("Call look to see")
    assert told(first)["operation"].startswith("eff_")
    assert json.loads(text(first))["retriable"] is False
    assert before != after
    assert stage.effects() == 1


def test_a_server_killed_from_outside_is_the_same(stage):
    client, gate = stage.client(), stage.folder / "gate"
    pid = client.barrier()
    silent = client.request("x/silent")
    client.barrier()
    call = client.call("wait", {"gate": str(gate)})
    while stage.effects() == 0:  # then the server has it
        pass

    os.kill(pid, 9)
    answers = client.answers(call, silent)

    assert "ended before it answered x/silent" in answers[silent]["error"]["message"]
    assert told(answers[call]["result"])["code"] == "OUTCOME_UNKNOWN"
    assert client.barrier() != pid


def test_a_server_that_takes_long_to_end_does_not_end_the_calls_of_its_successor(stage):
    client, ended, gate = stage.client(), stage.folder / "ended", stage.folder / "gate"
    first = client.barrier()

    client.request("x/linger", {"gate": str(ended)})
    # until a successor is there to be asked
    while not select.select([client.process.stdout], [], [], 0.05)[0]:
        client.request("x/pid")
    second = json.loads(client.line())["result"]
    call = client.call("wait", {"id": "p", "gate": str(gate)})
    until(lambda: stage.effects("p") == 1, "the effect")
    ended.touch()
    until(lambda: not Path(f"/proc/{first}").exists(), "the end of the first server")
    client.barrier()
    gate.touch()

    assert second != first
    assert text(client.answer(call)["result"]) == "rcpt_1"


def test_a_server_that_is_started_again_is_greeted_as_the_client_greeted_it(stage):
    client = stage.client()
    greeting = b'{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
    greeted = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    client.send(greeting)
    client.answer("hello")
    client.send(greeted)

    client.result("pay_and_die")
    client.barrier()
    client.close()

    lines = stage.log.read_bytes().splitlines(keepends=True)
    assert lines.count(greeting) == lines.count(greeted) == 2
    assert sum(json.loads(line).get("id") == "hello" for line in client.said) == 1


def test_an_answer_to_a_dead_server_does_not_reach_its_successor(stage):
    client = stage.client()
    client.request("x/ask-client")
    assert json.loads(client.line())["method"] == "roots/list"

    client.result("pay_and_die")
    client.send(b'{"jsonrpc":"2.0","id":"s-1","result":{"roots":[]}}\n')
    client.barrier()

    assert b'"s-1"' not in stage.log.read_bytes()


def test_a_server_that_honours_our_key_is_asked_again_under_it(honest_stage):
    client = honest_stage.client({"tools": {"pay_by_meta": {"downstream": "key"}}})

    result = client.result("pay_by_meta", {"gate": str(honest_stage.folder / "gate")})

    keys = {message["params"]["_meta"][KEY] for message in honest_stage.heard()}
    assert text(result) == "rcpt_1"
    assert len(honest_stage.heard()) == 2
    assert len(keys) == honest_stage.effects() == 1


def test_a_server_that_cannot_start_ends_the_proxy_as_it_would_end_the_client(stage):
    absent = Client(proxied([str(stage.folder / "nowhere")]), stage.folder)
    broken = Client(proxied([sys.executable, "-c", "raise SystemExit(7)"]), stage.folder)

    assert absent.process.wait() == 1
    assert broken.process.wait() == 7
    for client in (absent, broken):
        client.close()


# ---------------------------------------------------------------- the proxy dies, the client dies


def test_a_proxy_that_is_killed_leaves_a_doubt(stage):
    contracts = {"defaults": {"lease_s": 0.3}}
    client, gate = stage.client(contracts), stage.folder / "gate"
    client.call("wait", {"gate": str(gate)})
    client.barrier()
    while stage.effects() == 0:
        pass
    client.kill()

    again = stage.client(contracts).result("wait", {"gate": str(gate)})

    assert told(again)["code"] == "OUTCOME_UNKNOWN"
    assert stage.effects() == 1


CLIENT = """
import json, subprocess, sys
proxy = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
sys.stdout.write(str(proxy.pid) + chr(10)); sys.stdout.flush()
proxy.stdin.write(sys.stdin.buffer.readline()); proxy.stdin.flush()
proxy.wait()
"""


def test_a_client_that_is_killed_loses_nothing(stage):
    gate, pipe = stage.folder / "gate", subprocess.PIPE
    command = proxied(stage.command, "--store", f"sqlite:///{stage.folder / 'effects.db'}")
    host = subprocess.Popen(
        [sys.executable, "-c", CLIENT, *command],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment(stage.folder),
    )
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "wait", "arguments": {"gate": str(gate)}},
    }
    host.stdin.write(json.dumps(message).encode() + b"\n")
    host.stdin.flush()
    while stage.effects() == 0:
        pass

    host.kill()
    gate.touch()
    host.stderr.read()  # until the proxy has ended, too: it has the other end
    host.communicate()
    again = stage.client().result("wait", {"gate": str(gate)})

    assert text(again) == "rcpt_1"
    assert again["_meta"]["dev.effectonce/replayed"] is True
    assert stage.effects() == 1


@pytest.mark.parametrize("downstream", ["none", "key"])
def test_a_server_that_never_answers_does_not_keep_a_proxy_without_a_client(stage, downstream):
    (reading, writing), (heard, saying) = os.pipe(), os.pipe()
    guard = Guard("memory://")
    contracts = Contracts(tools={"wait": {"downstream": downstream}})
    proxy = Proxy(
        guard, contracts, stage.command, client=ClientPipes(reading, saying), linger_s=0.0
    )
    call = {"name": "wait", "arguments": {"id": "p", "gate": str(stage.folder / "never")}}

    def client():
        os.write(
            writing,
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
            + b"\n",
        )
        until(lambda: stage.effects("p") == 1, "the effect")
        os.close(writing)

    with ThreadPoolExecutor(1) as threads:
        left = threads.submit(client)
        asyncio.run(proxy.run())
        left.result()
    for end in (reading, heard, saying):
        os.close(end)

    (record,) = guard.store.apply(Search(limit=10))
    assert stage.effects("p") == 1
    assert record.state is State.IN_DOUBT if downstream == "none" else outcome_pending(record)


def test_a_proxy_that_is_asked_to_end_waits_for_what_was_sent(stage):
    client, gate = stage.client(), stage.folder / "gate"
    client.call("wait", {"gate": str(gate)})
    client.barrier()

    client.process.terminate()
    gate.touch()
    client.process.wait()

    assert text(stage.client().result("wait", {"gate": str(gate)})) == "rcpt_1"
    assert stage.effects() == 1


# ---------------------------------------------------------------- errors


def test_a_call_that_the_server_refuses_is_answered_as_it_answered_and_may_be_repeated(stage):
    client = stage.client()

    answers = [client.answer(client.call("invalid"))["error"] for _ in range(2)]

    assert answers == [{"code": -32602, "message": "no such argument"}] * 2
    assert len(stage.heard()) == 2


@pytest.mark.parametrize(
    ("tool", "words"), [("broken", "the handler failed"), ("fail", "answer was lost")]
)
def test_an_error_of_which_nobody_knows_what_it_left_is_a_doubt(stage, tool, words):
    client = stage.client()

    first, again = client.result(tool), client.result(tool)

    assert words in json.dumps(first)
    assert told(first)["code"] == told(again)["code"] == "OUTCOME_UNKNOWN"
    assert stage.effects() == 1


def test_an_error_that_means_that_nothing_was_done_is_the_servers_own(stage):
    client = stage.client({"tools": {"fail": {"errors": "nothing_done"}}})

    results = [client.result("fail") for _ in range(2)]

    assert (
        results
        == [{"content": [{"type": "text", "text": "the bank's answer was lost"}], "isError": True}]
        * 2
    )
    assert len(stage.heard()) == 2


def test_without_the_store_no_write_is_sent_and_reads_pass(stage):
    client = stage.client({"tools": {"look": {"kind": "read"}}}, store="redis://127.0.0.1:1/0")

    refused, seen = client.result("pay"), client.result("look")

    assert told(refused)["code"] == "STORE_UNAVAILABLE"
    assert text(seen) == "seen"
    assert [message["params"]["name"] for message in stage.heard()] == ["look"]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("receipt 7, says the bank",) * 2,
        ({"receipt": 7}, '{"receipt":7}'),
        ({"content": "x"}, '{"content":"x"}'),
    ],
)
def test_a_person_may_settle_a_doubt_and_the_next_call_is_told(stage, result, told):
    client = stage.client()
    client.result("pay_and_die")
    guard = Guard(f"sqlite:///{stage.folder / 'effects.db'}", spool=stage.folder / "spool")
    (record,) = guard.in_doubt()

    guard.confirm(record.request.key, result=result, by="ada", reason="seen in the ledger")
    guard.close()

    assert text(client.result("pay_and_die")) == told
    assert (record.request.terms.tool, stage.effects()) == ("mcp/pay_and_die", 1)


# ---------------------------------------------------------------- several rounds, tasks


def test_a_call_that_asks_for_input_is_one_effect_in_two_rounds(stage):
    client = stage.client()

    asked = client.result("ask", {"id": "p"})
    given = client.result(
        "ask", {"id": "p"}, inputResponses={"sure": {"action": "accept"}}, requestState="s"
    )
    again = client.result("ask", {"id": "p"})

    assert asked["resultType"] == "input_required"
    assert text(given) == text(again) == "rcpt_1"
    assert "dev.effectonce/replayed" not in given.get("_meta", {})
    assert [set(message["params"]["_meta"]) for message in stage.heard()] == [{KEY}, {KEY}]
    assert len({message["params"]["_meta"][KEY] for message in stage.heard()}) == 1


def test_input_that_nobody_brings_leaves_the_key_as_good_as_new(stage):
    contracts = {"tools": {"ask": {"input_s": 0.05}}}
    client = stage.client(contracts)
    client.result("ask", {"id": "p"})
    client.close()

    client = stage.client(contracts)
    client.result("ask", {"id": "p"})
    given = client.result("ask", {"id": "p"}, inputResponses={"sure": {}})

    assert given.get("resultType") == "input_required" or text(given) == "rcpt_1"
    assert (
        Guard(f"sqlite:///{stage.folder / 'effects.db'}", spool=stage.folder / "spool").in_doubt()
        == ()
    )


def test_a_task_is_a_result_and_the_same_one_is_replayed(stage):
    client = stage.client()

    first, again = client.result("task"), client.result("task")

    assert first == {"resultType": "task", "task": {"taskId": "task_rcpt_1"}}
    assert again["task"] == first["task"]
    assert again["_meta"]["dev.effectonce/replayed"] is True
    assert stage.effects() == 1


# ---------------------------------------------------------------- what the server says about itself


@pytest.mark.parametrize("trusted", [True, False])
def test_what_a_server_says_about_its_tools_counts_only_if_it_is_trusted(stage, trusted):
    client = stage.client(None, *["--trust-annotations"] * trusted)
    client.answer(client.request("tools/list"))

    for _ in range(2):
        client.result("look")

    assert len(stage.heard()) == (2 if trusted else 1)


def test_the_contract_file_is_above_what_the_server_says(stage):
    client = stage.client({"tools": {"look": {"kind": "write"}}}, "--trust-annotations")
    client.answer(client.request("tools/list"))

    for _ in range(2):
        client.result("look")

    assert len(stage.heard()) == 1


@pytest.mark.parametrize("name", ["contracts.toml", "contracts.json"])
def test_a_contract_file_that_is_no_text_is_refused_in_a_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\xfe{")
    command = proxied([sys.executable, "-c", ""], "--contracts", str(tmp_path / name))

    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(tmp_path), check=False
    )

    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("contracts", "words"),
    [
        ({"tools": {"pay": {"kind": "wrte"}}}, "choose one of"),
        ({"tools": {"pay": {"knd": "write"}}}, "knd"),
        ({"tols": {}}, "tols"),
        ({"tools": {"pay": {"identity": ["a"], "volatile": ["a"]}}}, "both identity and volatile"),
        ({"defaults": {"lease_s": 0}}, "more than 0"),
        ({"tools": {"pay": {"window_s": -1}}}, "must be positive"),
    ],
)
def test_a_contract_file_that_cannot_be_used_is_refused_before_anything_starts(
    tmp_path, contracts, words
):
    file = tmp_path / "contracts.json"
    file.write_text(json.dumps(contracts))
    command = proxied([sys.executable, "-c", ""], "--contracts", str(file))

    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(tmp_path), check=False
    )

    assert done.returncode != 0
    assert words in done.stderr


def test_without_a_store_effects_are_in_a_file_of_the_user(stage):
    for _ in range(2):
        client = Client(proxied(stage.command), stage.folder)
        assert text(client.result("pay")) == "rcpt_1"
        client.close()

    assert Path(stage.folder / "state" / "effectonce" / "mcp.db").exists()
