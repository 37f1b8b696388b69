"""What agent frameworks and breakers already know, taken over; and what is no error at all."""

from datetime import timedelta

import pytest

from effectonce import classify
from tests.vendors.helpers import raised, rows, says

pytestmark = pytest.mark.filterwarnings("ignore")


PYDANTIC_AI = {
    "rate_limit R": "ModelRateLimitError",
    "quota R": "ModelQuotaExceededError",
    "overloaded R": "ModelOverloadedError",
    "server_error M": "ModelUnavailableError ModelServerError",
    "no_answer M": "ModelConnectionError ModelTimeoutError",
    "schema R": "ModelRequestRejectedError",
    "context_length R": "ModelContextWindowExceededError",
    "auth R": "ModelAuthenticationError",
    "not_found R": "ModelNotFoundError",
}


@pytest.mark.parametrize(("name", "expected"), rows(PYDANTIC_AI))
def test_pydantic_ai(name, expected):
    from pydantic_ai import exceptions

    assert says(getattr(exceptions, name)(model_name="m", message="no")) == expected


def test_pydantic_ai_tells_the_phase_the_delay_and_the_stream():
    from pydantic_ai import exceptions as e

    assert (
        says(e.ModelConnectionError(model_name="m", message="no", phase="connect"))
        == "unreachable N"
    )
    assert (
        says(e.ModelConnectionError(model_name="m", message="no", phase="pool")) == "unreachable N"
    )
    assert says(e.ModelConnectionError(model_name="m", message="no", phase="read")) == "no_answer M"
    assert (
        says(e.ModelRateLimitError(model_name="m", message="no", retry_after=7.5))
        == "rate_limit R 7.5 s"
    )
    assert (
        says(e.ModelOverloadedError(model_name="m", message="no", in_stream=True)) == "overloaded M"
    )
    body = {"error": {"code": "insufficient_quota", "message": "no"}}
    assert says(e.ModelHTTPError(status_code=429, model_name="m", body=body)) == "quota R"


def test_pydantic_ai_outside_the_model():
    from pydantic_ai import exceptions as e

    assert says(e.ContentFilterError("no")) == "content_policy A"
    assert says(e.UsageLimitExceeded("no")) == "quota M"
    assert says(e.ToolFailed("no")) == "tool_error M"
    assert says(e.ModelRetry("no")) == "tool_error M"
    assert says(e.CallDeferred()) == "control_flow M"
    assert says(e.ApprovalRequired()) == "control_flow M"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ModelRateLimitError", "rate_limit R"),
        ("ModelAPIError", "server_error M"),
        ("ModelConnectionError", "no_answer M"),
        ("ModelTimeoutError", "no_answer M"),
        ("ModelAuthenticationError", "auth R"),
        ("ModelPermissionDeniedError", "auth R"),
        ("ModelInvalidRequestError", "schema R"),
        ("ModelNotFoundError", "not_found R"),
        ("ContextOverflowError", "context_length R"),
        ("OutputParserException", "parse A"),
    ],
)
def test_langchain(name, expected):
    from langchain_core import exceptions

    assert says(getattr(exceptions, name)("no")) == expected


def test_langchain_calls_a_quota_a_rate_limit_and_what_it_wraps_corrects_that():
    import httpx
    import openai
    from langchain_core.exceptions import ModelRateLimitError

    response = httpx.Response(429, request=httpx.Request("POST", "http://x"))
    inner = openai.RateLimitError("no", response=response, body={"code": "insufficient_quota"})

    def wrap():
        raise ModelRateLimitError("no") from inner

    assert says(raised(wrap)) == "quota R"


def test_control_flow_is_no_error():
    from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
    from langgraph.types import Command

    for flow in (GraphBubbleUp(), GraphInterrupt(()), ParentCommand(Command())):
        assert says(flow) == "control_flow M"
        assert not classify(flow).retryable


def test_instructor():
    from instructor.core.exceptions import (
        AsyncValidationError,
        IncompleteOutputException,
        ResponseParsingError,
    )

    assert says(ResponseParsingError("no", mode="m")) == "parse A"
    assert says(AsyncValidationError("no")) == "parse A"
    assert says(IncompleteOutputException()) == "parse A"


def test_temporal():
    from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

    assert says(CancelledError("no")) == "cancelled M"
    given = classify(ApplicationError("no", next_retry_delay=timedelta(seconds=90)))
    assert given.retry_after_s == 90
    settings = {
        "scheduled_event_id": 1,
        "started_event_id": 1,
        "identity": "",
        "activity_type": "",
        "activity_id": "1",
    }
    outer = ActivityError("no", retry_state=None, **settings)
    outer.__cause__ = TimeoutError()
    assert says(outer) == "no_answer M"
    outer.__cause__ = ApplicationError("no", non_retryable=True)
    outer.__cause__.__cause__ = TimeoutError()
    assert (says(outer), classify(outer).retryable) == ("no_answer M", False)


def test_breakers_kept_it_from_being_sent():
    import circuitbreaker
    import purgatory.domain.model

    for opened in (
        circuitbreaker.CircuitBreakerError(circuitbreaker.CircuitBreaker(name="b")),
        purgatory.domain.model.OpenedState("b"),
    ):
        assert says(opened) == "circuit_open N"
        assert not classify(opened).retryable


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("RateLimitError", 429, "rate_limit R"),
        ("ContextWindowExceededError", 400, "context_length R"),
        ("ContentPolicyViolationError", 400, "content_policy R"),
        ("PaymentRequiredError", 402, "quota R"),
        ("ServiceUnavailableError", 503, "server_error M"),
        ("BadGatewayError", 502, "no_answer M"),
        ("Timeout", 408, "no_answer M"),
        ("MidStreamFallbackError", 503, "server_error M"),
        ("JSONSchemaValidationError", 500, "parse A"),
        ("BudgetExceededError", None, "quota M"),
        ("GuardrailRaisedException", None, "content_policy R"),
    ],
)
def test_litellm_by_name(name, status, expected):
    """A stand-in: litellm wants older versions of its neighbours than they are tested in here."""
    cls = type(name, (Exception,), {"__module__": "litellm.exceptions"})
    error = cls("no")
    if status is not None:
        error.status_code = status

    assert says(error) == expected


def test_pybreaker_also_raises_for_the_call_that_opened_it():
    import pybreaker

    breaker, calls = pybreaker.CircuitBreaker(fail_max=1), []

    def pay():
        calls.append(1)
        raise TimeoutError

    opening, opened = raised(lambda: breaker.call(pay)), raised(lambda: breaker.call(pay))
    assert len(calls) == 1  # the first was sent, the second was not, and both say the same
    assert type(opening) is type(opened) is pybreaker.CircuitBreakerError
    assert says(opening) == says(opened) == "circuit_open M"
