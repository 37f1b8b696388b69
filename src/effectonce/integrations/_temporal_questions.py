"""A call that needs an approval, as a question of a Temporal workflow.

    ask = partial(workflow.execute_activity, refund, "pay_7", start_to_close_timeout=MINUTE)
    receipt = await until_approved(ask)

The activity fails with `APPROVAL_NEEDED`, which is not retried, and the question as its detail.
The workflow waits for an update, and starts the activity again with the answer in a header: the
worker decides, because a workflow may not ask a store. It is the same place, so the same effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from effectonce.approvals._questions import QUESTION
from effectonce.errors import ApprovalNeeded

T = TypeVar("T")
WAITING, ANSWER, DECIDED = "effectonce_waiting", "effectonce_answer", "effectonce_decided"
# of a workflow, to the activity that it starts
answer_here: ContextVar[Mapping[str, Any] | None] = ContextVar("effectonce_answer", default=None)


class _Questions:
    """What a workflow asks. Bound to its query, its update and its signal."""

    def __init__(self) -> None:
        # one for each that waits: two may wait for the same effect
        self.open: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.decided: set[str] = set()  # references of what was decided elsewhere

    def query(self) -> list[dict[str, Any]]:
        return list({asked[QUESTION]: asked for asked in self.open}.values())

    def check(self, answer: dict[str, Any]) -> None:
        if answer.get(QUESTION) not in [asked[QUESTION] for asked in self.open]:
            raise ApplicationError("this question does not wait for an answer", non_retryable=True)

    async def answer(self, answer: dict[str, Any]) -> None:
        self.answers[answer[QUESTION]] = answer

    async def signal(self, reference: str) -> None:
        self.decided.add(reference)


async def until_approved(
    start: Callable[[], Awaitable[T]], *, ask_every: timedelta = timedelta(hours=1)
) -> T:
    """In a workflow: run an activity, and if its call needs an approval, wait for the answer,
    then run it again.

    The query `effectonce_waiting` has the questions. The update `effectonce_answer` answers one:
    the question itself with `approved`, `by` and `reason`. What was decided elsewhere is looked
    for *ask_every* so often, and on the signal `effectonce_decided` with its reference.
    """
    questions, answer = _questions(), None
    while True:
        before = answer_here.set(answer)
        try:
            return await start()
        except ActivityError as error:
            asked = approval_needed(error)
            if asked is None:
                raise
        finally:
            answer_here.reset(before)
        answer = await _answer_to(questions, asked, answer, ask_every)


async def _answer_to(
    questions: _Questions,
    asked: dict[str, Any],
    before: Mapping[str, Any] | None,
    ask_every: timedelta,
) -> Mapping[str, Any] | None:
    """Another answer than the one *before*; None: it may have been decided elsewhere."""
    name, reference = asked[QUESTION], asked["reference"]

    def given() -> Mapping[str, Any] | None:
        answer = questions.answers.get(name)
        return None if answer is before else answer

    questions.open.append(asked)
    try:
        await workflow.wait_condition(
            lambda: given() is not None or reference in questions.decided, timeout=ask_every
        )
    except TimeoutError:
        return None
    finally:
        questions.open.remove(asked)
        questions.decided.discard(reference)
    return given()


def approval_needed(error: BaseException) -> dict[str, Any] | None:
    """The question that ended an activity. None: it ended otherwise."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if not isinstance(cause, ApplicationError) or cause.type != ApprovalNeeded.code:
        return None
    asked = dict(cause.details[0])
    return asked if QUESTION in asked else None


def _questions() -> _Questions:
    """Those of this workflow, found by its query."""
    known = getattr(workflow.get_query_handler(WAITING), "__self__", None)
    if isinstance(known, _Questions):
        return known
    questions = _Questions()
    workflow.set_query_handler(WAITING, questions.query)
    workflow.set_update_handler(ANSWER, questions.answer, validator=questions.check)
    workflow.set_signal_handler(DECIDED, questions.signal)
    return questions
