"""What OpenAI says, through the real SDK with its retries off."""

import pytest

from effectonce import classify
from tests.vendors.helpers import raised, rows, says

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client(server):
    import openai

    return openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0, timeout=30)


@pytest.fixture(scope="module")
def plain():
    import httpx

    with httpx.Client() as client:
        yield client


def ask(client, **more):
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], **more
    )


def error(code=None, kind=None, message="no"):
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, error("rate_limit_exceeded", "requests"), "rate_limit R"),
        (429, error(None, "rate_limit_error"), "rate_limit R"),
        (429, error(None, "tokens"), "rate_limit R"),
        (429, error("too_many_requests"), "rate_limit R"),
        (429, error("slow_down"), "rate_limit R"),
        (503, error("slow_down"), "rate_limit R"),
        (429, error("insufficient_quota", "insufficient_quota"), "quota R"),
        (429, error(None, "insufficient_quota"), "quota R"),
        *(
            (429, error(code), "quota R")
            for code in ("billing_hard_limit_reached", "credit_balance_exhausted")
        ),
        *(
            (429, error(f"{who}_spend_limit_exceeded"), "quota R")
            for who in ("organization", "project")
        ),
        (429, error("organization_usage_limit_exceeded"), "quota R"),
        (
            429,
            error(None, None, "You exceeded your current quota, please check your plan"),
            "quota R",
        ),
        (503, error("server_is_overloaded", "service_unavailable_error"), "overloaded R"),
        (503, error(None, "service_unavailable_error"), "overloaded R"),
        (503, error("overloaded"), "overloaded R"),
        (500, error(None, "server_error"), "server_error M"),
        (500, "<html>", "server_error M"),
        (502, "<html>", "no_answer M"),
        (401, error("invalid_api_key"), "auth R"),
        (401, error(), "auth R"),
        (403, error(), "auth R"),
        (404, error("model_not_found"), "not_found R"),
        (400, error("model_not_found"), "not_found R"),
        (404, error(), "not_found R"),
        (400, error("context_length_exceeded", "invalid_request_error"), "context_length R"),
        (
            400,
            error(
                None, "invalid_request_error", "This model's maximum context length is 8192 tokens"
            ),
            "context_length R",
        ),
        (
            400,
            error(None, "invalid_request_error", "Please reduce the length of the messages"),
            "context_length R",
        ),
        (
            400,
            error(None, None, "Input tokens exceed the configured limit of 1 tokens"),
            "context_length R",
        ),
        (
            400,
            error(None, None, "Your input exceeds the context window of this model"),
            "context_length R",
        ),
        (400, error(None, None, "prompt is too long"), "context_length R"),
        *(
            (400, error(code), "content_policy R")
            for code in (
                "content_policy_violation",
                "image_content_policy_violation",
                "bio_policy",
                "invalid_prompt",
            )
        ),
        *(
            (400, error(code), "content_policy R")
            for code in ("content_filter", "ResponsibleAIPolicyViolation", "content_filter_policy")
        ),
        (
            400,
            error(None, None, "flagged as potentially violating our usage policy"),
            "content_policy R",
        ),
        (400, error("string_above_max_length", "invalid_request_error"), "schema R"),
        (400, error(None, "invalid_request_error"), "schema R"),
        (422, error(), "schema R"),
        (409, error(), "conflict_in_flight M"),
        (418, error(), "schema R"),
    ],
)
def test_every_row_of_the_table_as_the_sdk_raises_it(client, plain, wire, status, body, expected):
    wire.says(status, body)

    assert says(raised(lambda: ask(client))) == expected
    # The same response, before any SDK has made an exception of it.
    assert says(plain.post(f"{wire.url}/v1/chat/completions")) in (
        expected,
        expected.replace("conflict_in_flight", "conflict"),
    )


def test_the_server_may_forbid_a_retry_and_allows_one_only_under_a_key(client, wire):
    forbidden = classify(
        raised(lambda: ask(client))
        if wire.says(500, error(), {"x-should-retry": "false"})
        else None
    )
    allowed = classify(
        raised(lambda: ask(client)) if wire.says(400, error(), {"x-should-retry": "true"}) else None
    )

    assert (forbidden.bucket, forbidden.retryable) == ("server_error", False)
    assert (allowed.bucket, allowed.retryable, allowed.certainty) == ("schema", True, "ambiguous")


def test_delays(client, wire):
    def told(headers=None, message="no"):
        wire.says(429, error("rate_limit_exceeded", None, message), headers)
        return classify(raised(lambda: ask(client))).retry_after_s

    assert told({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert told({"retry-after": "20"}) == 20
    assert told(message="Rate limit reached. Please try again in 6m0s.") == 360
    assert told() is None


def test_an_error_inside_a_stream_is_read_by_its_code_and_is_no_refusal(client, wire):
    wire.streams(error("server_is_overloaded", "service_unavailable_error"))
    found = raised(lambda: list(ask(client, stream=True)))

    assert type(found).__name__ == "APIError"
    assert says(found) == "overloaded M"
    assert classify(found).retryable


def test_transport_errors_are_read_through_the_sdk_by_their_phase(client, wire, nobody):
    import openai

    wire.hangs()
    assert says(raised(lambda: ask(client.with_options(timeout=0.1)))) == "no_answer M"
    wire.resets()
    assert says(raised(lambda: ask(client))) == "no_answer M"
    absent = openai.OpenAI(api_key="k", base_url=nobody, max_retries=0)
    assert says(raised(lambda: ask(absent))) == "unreachable N"
    unknown = openai.APIConnectionError(request=None)
    assert says(unknown) == "no_answer M"
    assert says(openai.APITimeoutError(request=None)) == "no_answer M"


def completed(reason, message):
    """The body of a completion with one choice."""
    message = {"role": "assistant"} | message
    choice = {"index": 0, "finish_reason": reason, "message": message}
    about = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return about | {"choices": [choice]}


def test_answers_that_cannot_be_used_were_acted_on(client, wire):
    def completion(reason, content="x", **message):
        wire.says(200, completed(reason, {"content": content} | message))
        return ask(client)

    assert says(completion("stop")) == "ok A"
    assert says(completion("length")) == "parse A"
    assert says(completion("content_filter")) == "content_policy A"
    assert says(completion("stop", None, refusal="I cannot help")) == "content_policy A"


def test_parsing_helpers_raise_what_is_acted_on(client, wire):
    import pydantic

    class Answer(pydantic.BaseModel):
        n: int

    def parsed(reason):
        wire.says(200, completed(reason, {"content": "{"}))
        return raised(
            lambda: client.chat.completions.parse(model="m", messages=[], response_format=Answer)
        )

    assert type(parsed("length")).__name__ == "LengthFinishReasonError"
    assert says(parsed("length")) == "parse A"
    assert type(parsed("content_filter")).__name__ == "ContentFilterFinishReasonError"
    assert says(parsed("content_filter")) == "content_policy A"


RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "output": [],
    "tools": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
}
FAILED = {
    "server_error M": "server_error vector_store_timeout failed_to_download_image",
    "rate_limit M": "rate_limit_exceeded",
    "schema M": "data_residency_mismatch image_too_large",
}


@pytest.mark.parametrize(("code", "expected"), rows(FAILED))
def test_a_response_object_that_failed_is_read_by_its_error(client, wire, code, expected):
    wire.says(200, RESPONSE | {"status": "failed", "error": {"code": code, "message": "no"}})

    assert says(client.responses.create(model="m", input="hi")) == expected


def test_an_incomplete_response_object_tells_why(client, wire):
    for reason, expected in (
        ("max_output_tokens", "parse A"),
        ("content_filter", "content_policy A"),
    ):
        incomplete = {"status": "incomplete", "incomplete_details": {"reason": reason}}
        wire.says(200, RESPONSE | incomplete)
        assert says(client.responses.create(model="m", input="hi")) == expected


def test_a_response_of_another_shape_than_declared_was_acted_on(wire):
    import httpx
    import openai

    response = httpx.Response(200, request=httpx.Request("POST", "http://x"))
    assert says(openai.APIResponseValidationError(response, None)) == "parse A"
