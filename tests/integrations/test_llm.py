"""LLM calls with the real SDKs, against a server that counts what it is asked."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import anthropic
import openai
import pytest
from pydantic import BaseModel

from effectonce import Budget, ContractViolation, GaveUp, Guard, InDoubt, ResultUnavailable, Retry
from effectonce.llm import LLMCall, once_llm, was_cached
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from effectonce.workflows import Run

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "text", "text": "Paris"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"at": [1, 2]}},
    ],
    "stop_reason": "max_tokens",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 1, "something_new": 3},
}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "length",
            "message": {"role": "assistant", "content": "Paris"},
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "o",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Paris", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
SOON = Retry(attempts=3, base_s=0.0, throttled_base_s=0.0)


@pytest.fixture
def guard(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0, spool=tmp_path / "spool")
    yield guard
    guard.close()


@pytest.fixture
def claude(wire):
    wire.says(200, MESSAGE)
    with anthropic.Anthropic(api_key="k", base_url=wire.url) as client:
        yield client


def asked(ask, **given):
    given = {"model": "m", "max_tokens": 9, "messages": QUESTION} | given
    return ask(**given)


METHODS = {
    "anthropic": (
        anthropic.Anthropic,
        lambda client: client.messages.create,
        MESSAGE,
        {"max_tokens": 9, "messages": QUESTION},
    ),
    "openai chat": (
        openai.OpenAI,
        lambda client: client.chat.completions.create,
        COMPLETION,
        {"messages": QUESTION},
    ),
    "openai responses": (
        openai.OpenAI,
        lambda client: client.responses.create,
        RESPONSE,
        {"input": "France?"},
    ),
}
COLOURED = {anthropic.Anthropic: anthropic.AsyncAnthropic, openai.OpenAI: openai.AsyncOpenAI}


def three_times(guard, wire, client_of, method, question):
    with client_of(api_key="k", base_url=wire.url) as client:
        ask = once_llm(guard, method(client))
        return (
            ask(model="m", **question),
            ask(model="m", **question),
            ask.call(model="m", **question),
        )


async def three_times_async(guard, wire, client_of, method, question):
    async with COLOURED[client_of](api_key="k", base_url=wire.url) as client:
        ask = once_llm(guard, method(client))
        return (
            await ask(model="m", **question),
            await ask(model="m", **question),
            await ask.call(model="m", **question),
        )


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_question_is_paid_for_once_and_answered_in_the_sdks_own_words(
    guard, wire, method, colour
):
    client_of, create, body, question = METHODS[method]
    wire.says(200, body)

    given = (guard, wire, client_of, create, question)
    first, again, outcome = (
        three_times(*given) if colour == "sync" else asyncio.run(three_times_async(*given))
    )

    assert wire.requests == 1
    assert type(again) is type(first)
    assert again == first
    assert again.to_dict() == first.to_dict() == body
    assert (was_cached(first), was_cached(again), was_cached(outcome), outcome.replayed) == (
        False,
        True,
        True,
        True,
    )


@pytest.mark.parametrize(
    "more",
    [{"default_headers": {"Anthropic-Beta": "longer"}}, {"default_query": {"api-version": "2"}}],
)
def test_what_a_client_says_with_every_question_is_part_of_it(guard, wire, claude, more):
    with anthropic.Anthropic(api_key="k", base_url=wire.url, **more) as other:
        for client in (claude, other, claude, other):
            asked(once_llm(guard, client.messages.create))

    assert wire.requests == 2


def test_both_colours_of_a_method_share_its_answers(guard, wire, claude):
    async def ask_again():
        async with anthropic.AsyncAnthropic(api_key="k", base_url=wire.url) as client:
            return await asked(once_llm(guard, client.messages.create))

    first, again = asked(once_llm(guard, claude.messages.create)), asyncio.run(ask_again())

    assert wire.requests == 1
    assert again == first
    assert was_cached(again)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "n"},
        {"max_tokens": 10},
        {"messages": [{"role": "user", "content": "And of Spain?"}]},
        {"system": "Be brief."},
        {"stop_sequences": ["."]},
        {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
        {"extra_body": {"seed": 1}},
        {"extra_headers": {"Anthropic-Beta": "longer-answers"}},
        {"sample": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_changes_the_answer_is_another_question(guard, wire, claude, other):
    ask = once_llm(guard, claude.messages.create)

    for _ in range(2):
        asked(ask)
        asked(ask, **other)

    assert wire.requests == 2


def test_what_does_not_change_the_answer_does_not_count(guard, wire, claude):
    ask = once_llm(guard, claude.messages.create, volatile=["extra_query"])

    asked(ask)
    asked(
        ask,
        timeout=5.0,
        metadata={"user_id": "u"},
        extra_headers={"x-trace": "1"},
        extra_query={"trace": "1"},
    )
    asked(ask, stop_sequences=anthropic.omit, service_tier=anthropic.NOT_GIVEN)

    assert wire.requests == 1


def test_an_answer_that_is_sent_back_is_the_same_as_a_model_and_as_data(guard, wire, claude):
    ask = once_llm(guard, claude.messages.create)
    answer = asked(ask)

    for content in (answer.content, asked(ask).content, MESSAGE["content"]):
        asked(ask, messages=iter([*QUESTION, {"role": "assistant", "content": content}]))

    assert wire.requests == 2


def test_the_same_words_to_another_server_are_another_question(guard, wire, claude):
    with anthropic.Anthropic(api_key="k", base_url=f"{wire.url}/elsewhere") as elsewhere:
        for client in (claude, elsewhere, claude, elsewhere):
            asked(once_llm(guard, client.messages.create))

    assert wire.requests == 2


def test_after_the_window_it_is_asked_anew(tmp_path, wire, claude):
    clock = FakeClock()
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), cache=0)
    ask = once_llm(guard, claude.messages.create)

    asked(ask)
    clock.advance(3599)
    asked(ask)
    assert wire.requests == 1
    clock.advance(2)
    asked(ask)
    assert wire.requests == 2


def test_answers_are_shared_in_a_tenant_or_belong_to_a_conversation(guard, wire, claude):
    shared, mine = (
        once_llm(guard, claude.messages.create),
        once_llm(guard, claude.messages.create, shared=False),
    )

    for chat in ("chat-1", "chat-2", "chat-1"):
        with guard.step(chat, "a"):
            asked(shared)
    assert wire.requests == 1
    with guard.step("chat-1", "a", tenant="other"):
        asked(shared)
    assert wire.requests == 2
    for chat in ("chat-1", "chat-2", "chat-1"):
        with guard.step(chat, "b"):
            asked(mine)
    assert wire.requests == 4
    with pytest.raises(ContractViolation, match="outside a conversation"):
        asked(mine)


def test_an_attempt_is_one_request_and_the_policy_counts_them(guard, wire, claude):
    wire.says(529, {"error": {"type": "overloaded_error", "message": "no"}})
    ask = once_llm(
        guard, claude.messages.create, retry=Retry(attempts=2, base_s=0.0, throttled_base_s=0.0)
    )

    with pytest.raises(GaveUp, match="OverloadedError"):
        asked(ask)

    assert wire.requests == 2
    assert claude.max_retries == 2  # the client itself is as it was
    wire.says(200, MESSAGE)
    assert not was_cached(asked(ask))


def test_a_delay_that_does_not_fit_is_handed_back(guard, wire, claude):
    wire.says(429, {"error": {"type": "rate_limit_error", "message": "no"}}, {"retry-after": "30"})
    ask = once_llm(guard, claude.messages.create, retry=Retry(attempts=3, deadline_s=10))

    with pytest.raises(GaveUp) as caught:
        asked(ask)

    assert wire.requests == 1
    assert caught.value.retry_after_s == 30


def test_an_error_is_no_answer_and_the_next_call_asks_again(guard, wire, claude):
    wire.says(400, {"error": {"type": "invalid_request_error", "message": "max_tokens: too many"}})
    ask = once_llm(guard, claude.messages.create, retry=SOON)

    for _ in range(2):
        with pytest.raises(anthropic.BadRequestError):
            asked(ask)
    assert wire.requests == 2
    wire.says(401, {"error": {"type": "authentication_error", "message": "no"}})
    with pytest.raises(anthropic.AuthenticationError):
        asked(ask)
    wire.says(200, MESSAGE)

    assert not was_cached(asked(ask))
    assert was_cached(asked(ask))
    assert guard.in_doubt() == ()


def test_a_refusal_after_a_lost_connection_leaves_no_doubt(guard, wire, claude):
    def reset_once(handler):
        wire.says(400, {"error": {"type": "invalid_request_error", "message": "no"}})
        handler.close_connection = True

    wire.breaks = reset_once
    ask = once_llm(guard, claude.messages.create, retry=SOON)

    with pytest.raises(GaveUp):
        asked(ask)

    assert wire.requests == 2
    assert guard.in_doubt() == ()


def test_an_error_of_a_question_says_nothing_about_the_tool_that_asks(guard, wire, claude):
    wire.says(400, {"error": {"type": "invalid_request_error", "message": "no"}})
    ask = once_llm(guard, claude.messages.create)

    @guard.tool(kind="write", rejected=[anthropic.BadRequestError])
    def send_letter(to: str) -> str:
        return asked(ask).content[0].text

    with guard.step("chat-1", "letter"), pytest.raises(InDoubt):
        send_letter("ada")


def test_whoever_asks_while_it_is_under_way_gets_the_same_answer(guard, wire, claude):
    entered, may_answer, answers = threading.Event(), threading.Event(), []
    body = wire.body

    def slowly(handler):
        entered.set()
        may_answer.wait(30)
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    wire.breaks = slowly
    ask = once_llm(guard, claude.messages.create)
    threads = [threading.Thread(target=lambda: answers.append(asked(ask))) for _ in range(3)]
    threads[0].start()
    assert entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    may_answer.set()
    for thread in threads:
        thread.join()

    assert wire.requests == 1
    assert sorted(map(was_cached, answers)) == [False, True, True]


@pytest.mark.parametrize("flag", ["stream", "background"])
def test_an_answer_that_is_not_there_at_once_is_refused(guard, wire, claude, flag):
    with pytest.raises(ContractViolation, match="Nothing was sent"):
        asked(once_llm(guard, claude.messages.create), **{flag: True})
    with pytest.raises(ContractViolation, match="stream"):
        once_llm(guard, claude.messages.stream)

    assert wire.requests == 0


# ---------------------------------------------------------------- budgets


def test_questions_of_a_turn_spend_its_steps_and_known_answers_nothing(guard, wire, claude):
    ask = once_llm(guard, claude.messages.create)
    with guard.turn("chat-1", "turn-1", budget=Budget(steps=2)):
        for _ in range(3):
            asked(ask)
            asked(ask, model="n")
        with pytest.raises(GaveUp, match="2 steps"):
            asked(ask, model="o")
        asked(ask)

    assert wire.requests == 2


def test_retries_of_a_question_spend_the_turns_attempts(guard, wire, claude):
    wire.says(529, {"error": {"type": "overloaded_error", "message": "no"}})
    ask = once_llm(
        guard, claude.messages.create, retry=Retry(attempts=9, base_s=0.0, throttled_base_s=0.0)
    )

    with guard.turn("chat-1", "turn-1", budget=Budget(attempts=2)):
        with pytest.raises(GaveUp):
            asked(ask)
        with pytest.raises(GaveUp, match="2 attempt"):
            asked(ask)

    assert wire.requests == 2


def test_no_request_outlives_its_turn(guard):
    given = []

    def create(model: str, timeout: float | None = None) -> dict:
        given.append(timeout)
        return {}

    ask = once_llm(guard, create)
    with guard.turn("chat-1", "turn-1", budget=Budget(wall_s=50)):
        ask(model="m")
        ask(model="n", timeout=70)
    ask(model="o")

    assert 0 < given[0] <= 50
    assert given[1:] == [70, None]


# ---------------------------------------------------------------- any function


def test_any_function_of_keyword_arguments_is_asked_once(guard):
    calls = []

    def complete(prompt: str) -> dict:
        calls.append(prompt)
        return {"text": "Paris"}

    ask = once_llm(guard, complete)

    assert [ask(prompt="France?"), ask(prompt="France?")] == [{"text": "Paris"}] * 2
    assert ask.call(prompt="France?").replayed
    assert calls == ["France?"]
    with pytest.raises(TypeError, match=r"ask\.call"):
        was_cached(ask(prompt="France?"))


def test_a_mistake_of_the_caller_is_told_before_anything_is_kept(guard, claude):
    ask = once_llm(guard, claude.messages.create)

    with pytest.raises(ContractViolation, match=r"'temperatur'.*Nothing was sent"):
        asked(ask, temperatur=1)
    assert not any(guard.counts().values())


def test_an_error_that_would_come_again_is_raised_as_it_is(guard):
    calls = []

    def complete(prompt: str) -> str:
        calls.append(prompt)
        raise ValueError("no such prompt")

    ask = once_llm(guard, complete)

    for _ in range(2):
        with pytest.raises(ValueError, match="no such prompt"):
            ask(prompt="?")
    assert calls == ["?", "?"]


class Answer(BaseModel):
    text: str
    at: tuple[int, int]


def test_a_model_that_nobody_declares_is_rebuilt_if_it_is_told(tmp_path):
    def restarted(**options):
        def complete(prompt):
            return Answer(text="Paris", at=(48, 2))

        return once_llm(Guard(SqliteStore(tmp_path / "effects.db")), complete, **options)

    first = restarted()
    assert first(prompt="France?") == first(prompt="France?") == Answer(text="Paris", at=(48, 2))
    with pytest.raises(ResultUnavailable, match="returns="):
        restarted()(prompt="France?")
    again = restarted(returns=Answer)(prompt="France?")
    assert again == Answer(text="Paris", at=(48, 2))
    assert was_cached(again)


def test_a_function_without_a_name_needs_one(guard):
    with pytest.raises(ContractViolation, match="name="):
        once_llm(guard, lambda prompt: prompt)
    assert isinstance(once_llm(guard, lambda prompt: prompt, name="echo"), LLMCall)


def test_what_is_asked_is_not_in_the_store_and_the_answer_is(guard, claude):
    outcome = once_llm(guard, claude.messages.create).call(
        model="m", max_tokens=9, messages=QUESTION
    )

    record = guard.find(outcome.effect.key)

    assert outcome.effect.tool == "anthropic.messages.create"
    assert b"France" not in record.request.arguments
    assert b'"m"' in record.request.arguments
    assert b"Paris" in record.outcome


# ---------------------------------------------------------------- killed between the answer and
# its use

PIPELINE = """
import os, signal, sys
import anthropic
from effectonce import Guard
from effectonce.llm import once_llm, was_cached

url, store, end = sys.argv[1:]
ask = once_llm(Guard(store), anthropic.Anthropic(api_key="k", base_url=url).messages.create)
answer = ask(model="m", max_tokens=9, messages=[{"role": "user", "content": "France?"}])
if end == "die":
    os.kill(os.getpid(), signal.SIGKILL)
print(answer.content[0].text, was_cached(answer))
"""


def test_a_run_that_was_killed_with_the_answer_in_its_hands_is_not_charged_again(tmp_path, wire):
    wire.says(200, MESSAGE)

    def run(end):
        command = [
            sys.executable,
            "-c",
            PIPELINE,
            wire.url,
            f"sqlite:///{tmp_path}/effects.db",
            end,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)

    killed, resumed = run("die"), run("live")

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert resumed.stdout.split() == ["Paris", "True"], resumed.stderr
    assert wire.requests == 1


class Blob(BaseModel):
    raw: bytes


class Stubborn(BaseModel):
    def model_dump(self, **_):
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    "answer",
    [lambda: object(), lambda: [Blob(raw=b"x")], lambda: Blob(raw=b"\xff"), lambda: Stubborn()],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_that_cannot_be_kept_is_given_and_the_model_is_asked_anew(
    answer, is_async, caplog
):
    asked = []

    def complete(prompt: str):
        asked.append(answer())
        return asked[-1]

    async def acomplete(prompt: str):
        return complete(prompt)

    guard = Guard("memory://")
    ask = once_llm(guard, acomplete if is_async else complete)
    given = [
        asyncio.run(ask.call(prompt="x")) if is_async else ask.call(prompt="x") for _ in range(2)
    ]

    assert [outcome.value for outcome in given] == asked
    assert [outcome.replayed or outcome.recorded for outcome in given] == [False, False]
    assert "cannot be kept" in caplog.text
    assert guard.in_doubt() == ()


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_question_is_a_step_of_a_workflow_in_its_own_colour(guard, colour):
    asked = []

    def complete(model: str, prompt: str) -> dict:
        asked.append(prompt)
        return {"text": "Paris"}

    async def acomplete(model: str, prompt: str) -> dict:
        return complete(model, prompt)

    ask = once_llm(guard, complete if colour == "def" else acomplete, name="complete")

    @guard.workflow
    def travel(run: Run, n: int) -> str:
        return run.ask("where", ask, model="m", prompt="The capital of France?")["text"]

    @guard.workflow
    async def atravel(run: Run, n: int) -> str:
        return (await run.ask("where", ask, model="m", prompt="The capital of France?"))["text"]

    for n in range(2):
        assert (travel(n) if colour == "def" else asyncio.run(atravel(n))) == "Paris"
    assert asked == ["The capital of France?"]
