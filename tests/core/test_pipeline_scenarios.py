"""The four scenarios by which a pipeline's idempotency is tested: a re-run, a crash in the
middle, two workers, a result that is too old.
"""

import threading

import pytest

from effectonce import GaveUp, Guard, Retry, TimeWindow, content_key
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from effectonce.workflows import Run

PROMPT = {
    "model": "small",
    "messages": [{"role": "user", "content": "List the entities of this document."}],
}


class Client:
    """A model's API: counts what it is asked, and fails on the calls that it is told to fail on."""

    def __init__(self, *failing):
        self.calls, self.failing = 0, set(failing)
        self.entered, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def create(self, prompt: str) -> str:
        self.calls += 1
        self.entered.set()
        self.may_answer.wait()
        if self.calls in self.failing:
            raise ConnectionError("the connection was reset")
        return f"answer to {prompt}"


def test_1_a_re_run_is_answered_from_the_record_without_another_call(tmp_path):
    client = Client()
    guard = Guard(SqliteStore(tmp_path / "effects.db"), cache=0)
    ask = guard.tool(kind="idempotent_write", name="ask")(lambda prompt: client.create(prompt))

    first = guard.call(ask, {"prompt": "entities?"}, key=content_key(**PROMPT))
    again = guard.call(ask, {"prompt": "entities?"}, key=content_key(**PROMPT))

    assert (first.replayed, again.replayed) == (False, True)
    assert again.value == first.value
    assert client.calls == 1


def test_2_a_pipeline_that_fails_in_its_second_step_skips_the_first_and_retries_the_second(
    tmp_path,
):
    client = Client(2)
    guard = Guard(SqliteStore(tmp_path / "effects.db"), cache=0)
    ask = guard.tool(kind="idempotent_write", name="ask", retry=Retry(attempts=1))(
        lambda prompt: client.create(prompt)
    )

    @guard.workflow(identity=["document_id"])
    def analyse(run: Run, document_id: str) -> list[str]:
        return [run.step(name, ask, name) for name in ("extract", "classify", "report")]

    with pytest.raises(GaveUp, match="the connection was reset"):
        analyse("doc-1")
    (open_run,) = guard.workflows.runs()
    before = guard.workflows.summary(open_run.request.key)
    result = analyse("doc-1")
    after = guard.workflows.summary(open_run.request.key)

    assert [(step.name, step.state) for step in before.steps] == [
        ("extract", "completed"),
        ("classify", "dispatched"),
    ]
    assert "the connection was reset" in before.error
    assert "the connection was reset" in before.steps[1].error
    assert [attempt.error for attempt in before.steps[1].attempts] == ["ConnectionError"]
    assert (before.totals.steps, before.totals.completed, before.totals.failed_attempts) == (
        2,
        1,
        1,
    )
    assert (after.error, after.steps[1].error, after.totals.completed, after.totals.sends) == (
        "",
        "",
        3,
        4,
    )
    assert len(after.steps[1].attempts) == 1
    assert result == ["answer to extract", "answer to classify", "answer to report"]
    assert [step.state for step in after.steps] == ["completed"] * 3
    assert client.calls == 4  # the first answer was not asked for again


def test_3_two_workers_on_one_item_make_one_call_and_get_one_result(tmp_path):
    client, results = Client(), []
    client.may_answer.clear()
    guards = [Guard(SqliteStore(tmp_path / "effects.db"), cache=0) for _ in range(2)]

    def work(guard):
        ask = guard.tool(kind="idempotent_write", name="ask")(lambda prompt: client.create(prompt))
        results.append(guard.call(ask, {"prompt": "entities?"}, key="doc-1"))

    workers = [threading.Thread(target=work, args=(guard,)) for guard in guards]
    workers[0].start()
    client.entered.wait()
    workers[1].start()
    client.may_answer.set()
    for worker in workers:
        worker.join()

    assert client.calls == 1
    assert [outcome.value for outcome in results] == ["answer to entities?"] * 2
    assert sorted(outcome.replayed for outcome in results) == [False, True]


def test_4_a_result_that_is_too_old_is_asked_for_again(tmp_path):
    client, clock = Client(), FakeClock()
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), cache=0)
    ask = guard.tool(kind="read", name="ask", dedup=TimeWindow(seconds=1))(
        lambda prompt: client.create(prompt)
    )

    ask("entities?")
    ask("entities?")
    assert client.calls == 1
    clock.advance(2)
    ask("entities?")
    assert client.calls == 2
