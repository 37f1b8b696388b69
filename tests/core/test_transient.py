"""`transient(503)`: a service of your own says so when it did nothing."""

import pytest

from effectonce import Certainty, Guard, Retry, classify, retry, transient


class Refused(Exception):
    def __init__(self, status):
        super().__init__(f"HTTP {status}")
        self.status_code = status


def test_a_503_of_an_internal_service_is_tried_again_also_by_a_write_without_help():
    guard, asked = Guard("memory://"), []

    @guard.tool(
        kind="write",
        downstream="none",
        retry=Retry(attempts=3, base_s=0.001, throttled_base_s=0.001),
        rules=transient(503),
    )
    def book(room: str) -> str:
        asked.append(room)
        if len(asked) < 3:
            raise Refused(503)
        return "booked"

    with guard.step("chat-1", "book"):
        assert book("101") == "booked"
    assert asked == ["101"] * 3


def test_plain_functions_take_it_too():
    asked = []

    @retry(Retry(attempts=3, base_s=0.001, throttled_base_s=0.001), rules=transient(502, 503))
    def book() -> str:
        asked.append(1)
        if len(asked) < 3:
            raise Refused(502)
        return "booked"

    assert book() == "booked"


def test_it_says_that_nothing_was_done_and_that_another_attempt_may_go_better():
    verdict = classify({"status": 503}, rules=transient(503))

    assert (verdict.bucket, verdict.certainty, verdict.retryable) == (
        "overloaded",
        Certainty.REJECTED,
        True,
    )
    assert verdict.matched == "rule: 503"


def test_it_takes_what_a_rule_takes_and_leaves_the_rest_as_it_is():
    class QueueFull(Exception):
        pass

    rules = [*transient(QueueFull, "BUSY")]

    assert classify(QueueFull(), rules=rules).retryable
    assert classify({"status": 400, "body": '{"code": "BUSY"}'}, rules=rules).retryable
    assert classify({"status": 503}, rules=rules).certainty is Certainty.AMBIGUOUS


def test_without_anything_named_it_is_refused():
    with pytest.raises(TypeError, match="name at least one"):
        transient()
