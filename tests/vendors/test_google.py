"""What Google says, through google-genai and google-api-core."""

import pytest

from effectonce import classify
from tests.vendors.helpers import raised, rows, says

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client(server):
    from google import genai

    return genai.Client(api_key="k", http_options={"base_url": server.url, "timeout": 1000})


def ask(client):
    return client.models.generate_content(model="m", contents="hi")


def error(code, status, message="no", details=()):
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


def retry_info(delay):
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(**violation):
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}


def info(reason):
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
    }


EXHAUSTED = "RESOURCE_EXHAUSTED"
EXCEEDED = "You exceeded your current quota. Quota exceeded for metric: x, limit: 20"
PER_DAY = quota(quotaId="GenerateRequestsPerDayPerProjectPerModel-FreeTier", quotaValue="20")
PER_MINUTE = quota(quotaId="GenerateRequestsPerMinutePerProjectPerModel-FreeTier", quotaValue="15")
TOKENS_PER_MINUTE = quota(
    quotaId="GenerateContentInputTokensPerModelPerMinute", quotaValue="250000"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (error(429, EXHAUSTED), "rate_limit R"),
        (error(429, EXHAUSTED, EXCEEDED, [retry_info("34.4s")]), "rate_limit R 34.4 s"),
        (error(429, EXHAUSTED, "Please retry in 12.5s."), "rate_limit R 12.5 s"),
        (
            error(
                429, EXHAUSTED, EXCEEDED + ". Please retry in 10h17m5.7s.", [retry_info("37025.7s")]
            ),
            "quota R 37025.7 s",
        ),
        (error(429, EXHAUSTED, "x", [quota(quotaValue="0"), retry_info("3s")]), "quota R 3 s"),
        (
            error(
                429,
                EXHAUSTED,
                "Quota exceeded for metric: x, limit: 0, model: m",
                [retry_info("3s")],
            ),
            "quota R 3 s",
        ),
        (error(429, EXHAUSTED, "x", [PER_DAY]), "quota R"),
        (error(429, EXHAUSTED, "x", [PER_DAY, retry_info("36s")]), "rate_limit R 36 s"),
        (error(429, EXHAUSTED, EXCEEDED, [PER_MINUTE]), "rate_limit R"),
        (error(429, EXHAUSTED, EXCEEDED, [TOKENS_PER_MINUTE]), "rate_limit R"),
        (error(429, EXHAUSTED, EXCEEDED, [PER_MINUTE, PER_DAY]), "quota R"),
        (error(429, EXHAUSTED, EXCEEDED, [PER_DAY, PER_MINUTE]), "quota R"),
        (error(429, EXHAUSTED, EXCEEDED, [quota(quotaId="XPerMinute", quotaValue="0")]), "quota R"),
        (error(429, EXHAUSTED, EXCEEDED), "quota R"),
        (error(429, "quota_exceeded"), "quota R"),
        (error(402, None), "quota R"),
        (
            error(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
            "overloaded M",
        ),
        (error(503, "UNAVAILABLE", "We are over capacity"), "overloaded M"),
        (error(503, "UNAVAILABLE"), "server_error M"),
        (error(500, "INTERNAL"), "server_error M"),
        (error(500, "UNKNOWN"), "server_error M"),
        (error(500, "DATA_LOSS"), "server_error M"),
        (error(502, None), "no_answer M"),
        (error(504, "DEADLINE_EXCEEDED"), "no_answer M"),
        (error(499, "CANCELLED"), "no_answer M"),
        (error(409, "ABORTED"), "conflict R"),
        (error(409, "ALREADY_EXISTS"), "conflict R"),
        (error(401, "UNAUTHENTICATED"), "auth R"),
        (error(403, "PERMISSION_DENIED"), "auth R"),
        (error(400, "INVALID_ARGUMENT", "API key not valid.", [info("API_KEY_INVALID")]), "auth R"),
        (error(404, "NOT_FOUND"), "not_found R"),
        (error(400, "FAILED_PRECONDITION", "User location is not supported"), "config R"),
        (
            error(400, "INVALID_ARGUMENT", "The input token count (1) exceeds the maximum"),
            "context_length R",
        ),
        (
            error(400, "INVALID_ARGUMENT", "exceeds the maximum number of tokens allowed"),
            "context_length R",
        ),
        (
            error(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit"),
            "context_length R",
        ),
        (error(400, "INVALID_ARGUMENT"), "schema R"),
        (error(400, "OUT_OF_RANGE"), "schema R"),
        (error(501, "UNIMPLEMENTED"), "schema R"),
    ],
)
def test_every_row_of_the_table_as_the_sdk_raises_it(client, wire, body, expected):
    wire.says(body["error"]["code"], body)

    found = raised(lambda: ask(client))
    assert says(found) == expected
    if body["error"]["status"] == "ALREADY_EXISTS":
        assert not classify(found).retryable


def test_a_pickled_error_has_lost_its_class_and_is_read_all_the_same(client, wire):
    import pickle

    wire.says(429, error(429, EXHAUSTED, "x", [retry_info("7s")]))
    found = raised(lambda: ask(client))
    found.response = None

    assert says(pickle.loads(pickle.dumps(found))) == "rate_limit R 7 s"


STOPPED = {
    "ok A": "STOP",
    "content_policy A": (
        "SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY"
        " IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION"
    ),
    "parse A": "MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MAX_TOKENS",
}


@pytest.mark.parametrize(("reason", "expected"), rows(STOPPED))
def test_why_the_model_stopped(client, wire, reason, expected):
    wire.says(
        200,
        {
            "candidates": [
                {"content": {"parts": [{"text": "x"}], "role": "model"}, "finishReason": reason}
            ]
        },
    )

    assert says(ask(client)) == expected


@pytest.mark.parametrize(
    "reason",
    [
        "SAFETY",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
        "JAILBREAK",
        "OTHER",
    ],
)
def test_a_blocked_prompt(client, wire, reason):
    wire.says(200, {"promptFeedback": {"blockReason": reason}})

    assert says(ask(client)) == "content_policy A"


CLASSES = {
    "rate_limit R": "ResourceExhausted TooManyRequests",
    "server_error M": "ServiceUnavailable InternalServerError Unknown DataLoss BadGateway",
    "no_answer M": "DeadlineExceeded GatewayTimeout Cancelled",
    "conflict R": "Aborted AlreadyExists",
    "conflict M": "Conflict",
    "auth R": "Unauthenticated Unauthorized PermissionDenied Forbidden",
    "not_found R": "NotFound",
    "config R": "FailedPrecondition",
    "schema R": "InvalidArgument OutOfRange MethodNotImplemented BadRequest",
}


@pytest.mark.parametrize(("name", "expected"), rows(CLASSES))
def test_the_classes_of_google_api_core(name, expected):
    from google.api_core import exceptions

    assert says(getattr(exceptions, name)("no")) == expected


def test_what_google_api_core_makes_of_a_response_keeps_the_details(wire):
    import requests
    from google.api_core import exceptions

    wire.says(429, error(429, EXHAUSTED, "x", [retry_info("5s")]))
    assert (
        says(exceptions.from_http_response(requests.post(wire.url, timeout=30)))
        == "rate_limit R 5 s"
    )


def test_details_as_messages_are_read_too():
    from google.api_core import exceptions
    from google.protobuf import duration_pb2
    from google.rpc import error_details_pb2

    delay = error_details_pb2.RetryInfo(
        retry_delay=duration_pb2.Duration(seconds=3, nanos=500_000_000)
    )
    assert says(exceptions.ResourceExhausted("no", details=[delay])) == "rate_limit R 3.5 s"


def test_retries_that_are_used_up_are_read_by_their_cause():
    from google.api_core import exceptions

    assert says(exceptions.RetryError("gave up", exceptions.PermissionDenied("no"))) == "auth R"
    assert says(exceptions.RetryError("gave up", None)) == "no_answer M"
