"""A call without a record: a read of a guard, or any function under `retry`. Only retries."""

from __future__ import annotations

from effectonce._core.endings import Ending, Fresh, NothingSent
from effectonce._core.ops import Flow, Invoke, Ok, Sleep
from effectonce._core.patience import Next, Patience
from effectonce._core.verdicts import Verdict


def plain_call(patience: Patience, error: BaseException, *, repeatable: bool) -> Flow[Ending]:
    """Go on after the first attempt, which ended with *error*. Whoever made it has told the circuit."""
    how = patience.how
    while True:
        verdict = how.classify(error)
        then = yield from patience.after(error, verdict, repeatable=repeatable)
        if then.delay_s is None:
            return over(patience, error, verdict, then)
        yield from Sleep(then.delay_s)
        permit = None if how.circuit is None else how.circuit.try_admit()
        if isinstance(permit, Exception):
            return NothingSent(permit, patience.attempt, exhausted=False)
        patience.attempt += 1
        answer = yield from Invoke("", "", 0, patience.attempt, patience.give_up_at)
        if isinstance(answer, Ok):
            if permit is not None:
                permit.succeeded()
            if how.tokens is not None:
                how.tokens.succeeded()
            return Fresh(answer.value)
        error = answer.error
        if permit is not None:
            permit.failed(how.classify(error))


def over(patience: Patience, error: BaseException, verdict: Verdict, then: Next) -> NothingSent:
    """There is no other attempt."""
    exhausted = then.gave_up and patience.how.attempts > 1
    return NothingSent(error, patience.attempt, exhausted=exhausted, retry_after_s=verdict.retry_after_s, why=then.why)
