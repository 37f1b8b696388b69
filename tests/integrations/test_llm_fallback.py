"""Another model answers when the first is down: by functions that count what they are asked."""

import asyncio

import pytest
from pydantic import BaseModel

from effectonce import (
    CircuitOpen,
    ContractViolation,
    GaveUp,
    Guard,
    Rejected,
    Retry,
    breaker,
)
from effectonce.llm import once_llm, was_cached, was_fallback

QUESTION = {"messages": ["What is the capital of France?"]}
ONCE = Retry(attempts=1)


class Message(BaseModel):
    text: str


class Models:
    """Some are down; what each was asked is counted."""

    def __init__(self, *down, error=ConnectionRefusedError):
        self.down, self.error, self.asked = set(down), error, []

    def create(self, *, model: str, messages: list) -> Message:
        self.asked.append(model)
        if model in self.down:
            raise self.error(model)
        return Message(text=f"Paris, says {model}")

    async def acreate(self, *, model: str, messages: list) -> Message:
        return self.create(model=model, messages=messages)


@pytest.fixture(params=["sync", "async"])
def asking(request, tmp_path):
    """Asks the models, each in turn until one answers."""
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0)

    def made(models, **options):
        create = models.create if request.param == "sync" else models.acreate
        ask = once_llm(
            guard,
            create,
            **{"name": "models", "retry": ONCE, "fallback": ["spare", "last"]} | options,
        )
        return (
            (lambda **given: ask(**QUESTION | given))
            if request.param == "sync"
            else lambda **given: asyncio.run(ask(**QUESTION | given))
        )

    yield made
    guard.close()


def test_the_first_model_that_is_not_down_answers_and_says_so(asking):
    models = Models("first", "spare")
    ask = asking(models)

    answer = ask(model="first")

    assert (answer.text, was_fallback(answer), was_cached(answer)) == (
        "Paris, says last",
        True,
        False,
    )
    assert models.asked == ["first", "spare", "last"]


def test_the_answer_of_another_model_is_given_again_though_the_first_is_back(asking):
    models = Models("first")
    ask = asking(models)
    ask(model="first")
    models.down.clear()

    answer = ask(model="first")

    assert (answer.text, was_fallback(answer), was_cached(answer)) == (
        "Paris, says spare",
        True,
        True,
    )
    assert models.asked == ["first", "spare"]


def test_a_model_that_answers_needs_no_other(asking):
    models = Models()
    ask = asking(models)

    answers = [ask(model="first"), ask(model="first")]

    assert [was_fallback(answer) for answer in answers] == [False, False]
    assert models.asked == ["first"]


def test_a_question_that_is_refused_is_asked_of_no_other_model(asking):
    models = Models("first", error=Rejected)

    with pytest.raises(Rejected):
        asking(models)(model="first")
    assert models.asked == ["first"]


def test_the_first_error_is_raised_if_all_are_down(asking):
    models = Models("first", "spare", "last")

    with pytest.raises((ConnectionRefusedError, GaveUp, CircuitOpen), match="first"):
        asking(models)(model="first")
    assert models.asked == ["first", "spare", "last"]


def test_a_mapping_changes_more_than_the_model(asking):
    models = Models("first")

    answer = asking(models, fallback=[{"model": "spare", "messages": ["shorter"]}])(model="first")

    assert answer.text == "Paris, says spare"


def test_a_single_text_is_no_list_of_models(asking):
    with pytest.raises(ContractViolation, match=r"fallback='spare': give a list"):
        asking(Models(), fallback="spare")


def test_a_model_that_is_down_opens_its_own_circuit_and_no_other(asking):
    models = Models("first")
    ask = asking(models, breaker=breaker("vendor", consecutive=2))

    answers = [ask(model="first", messages=[str(n)]).text for n in range(4)]

    assert answers == ["Paris, says spare"] * 4
    assert models.asked == ["first", "spare", "first", "spare", "spare", "spare"]
