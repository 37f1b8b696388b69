"""Three callables for tenacity, sync and async: is another attempt safe, how long to wait, when
to stop.

    @tenacity.retry(
        retry=retry_if_safe(kind="read"),
        wait=wait_full_jitter(base_s=0.5, cap_s=20),
        stop=tenacity.stop_after_attempt(3) | stop_at_deadline(90),
    )

tenacity is not imported: each callable takes its `RetryCallState`. What an error means is what
it means to a guarded tool.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from effectonce import ContractViolation, Kind
from effectonce._core.backoff import full_jitter
from effectonce._core.classification.classify import Classifier, Rules, as_rules, classifier
from effectonce._core.decisions import GOES_ON, gate
from effectonce._random import rng
from effectonce._validate import seconds
from effectonce.policy import kind_of
from effectonce.retries.retry import REPEATABLE


def retry_if_safe(
    kind: Kind | str = "write", *, rules: Rules = (), one_request: bool = False
) -> Callable[[Any], bool]:
    """Try again if that is safe and could go better: for `retry=`.

    What is final is never tried again. What may have happened is, if *kind* is `read` or
    `idempotent_write`. For other kinds an error must prove that nothing happened; what it says
    about its request counts only if the function makes no other: `one_request=True`.
    """
    repeatable = kind_of(kind) in REPEATABLE
    verdict_of = _classifier(rules, one_request=one_request)

    def safe(state: Any) -> bool:
        error = _error(state)
        if error is None:
            return False
        return gate(verdict_of(error), repeatable=repeatable).action in GOES_ON

    return safe


def wait_full_jitter(
    base_s: float = 0.5, cap_s: float = 20.0, *, rules: Rules = (), rng: Callable[[], float] = rng
) -> Callable[[Any], float]:
    """For `wait=`: evenly in [0, ceiling], even at the cap; a bit more than downstream asks for."""
    if not 0 <= base_s <= cap_s:
        raise ContractViolation(f"base_s={base_s} and cap_s={cap_s}: need 0 <= base_s <= cap_s")
    verdict_of = _classifier(rules, one_request=True)

    def delay_s(state: Any) -> float:
        error = _error(state)
        asked_s = None if error is None else verdict_of(error).retry_after_s
        delay_s = full_jitter(state.attempt_number, base_s, cap_s, rng)
        return delay_s if asked_s is None else max(delay_s, asked_s + base_s * rng())

    return delay_s


def stop_at_deadline(
    deadline_s: float | timedelta, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[Any], bool]:
    """Stop when the time is over, or would be after the next sleep: for `stop=`. Counted from
    the first attempt.

    Combine it to the right of tenacity's own: `stop_after_attempt(3) | stop_at_deadline(90)`.
    *clock* must be the one that tenacity starts with, which is `time.monotonic`; only tests pass
    another.
    """
    limit_s = seconds(deadline_s, "deadline_s")
    if not limit_s > 0:
        raise ContractViolation(f"deadline_s={deadline_s}: a call needs some time")
    return lambda state: bool(clock() - state.start_time + state.upcoming_sleep >= limit_s)


def _error(state: Any) -> BaseException | None:
    return state.outcome.exception() if state.outcome.failed else None


def _classifier(rules: Rules, *, one_request: bool) -> Classifier:
    return classifier((), (), rules=as_rules(rules), one_request=one_request, wall_clock=time.time)
