"""What AWS says, through botocore with its retries off."""

import pytest

from effectonce import classify
from tests.vendors.helpers import raised, rows, says

pytestmark = pytest.mark.filterwarnings("ignore")
LONG = (
    "Input is too long",
    "input tokens exceeded",
    "prompt is too long",
    "too many tokens",
    "Too many input tokens",
    "expected maxLength: 5",
)


@pytest.fixture(scope="module")
def make():
    import botocore.config
    import botocore.session

    def client(url, **settings):
        config = botocore.config.Config(
            retries={"total_max_attempts": 1},
            **{"read_timeout": 1, "connect_timeout": 1} | settings,
        )
        session = botocore.session.Session()
        session.set_credentials("k", "s")
        return session.create_client(
            "bedrock-runtime", region_name="us-east-1", endpoint_url=url, config=config
        )

    return client


@pytest.fixture(scope="module")
def client(make, server):
    return make(server.url)


def ask(client):
    return client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        *(
            (429, code, "no", "rate_limit R")
            for code in [
                "ThrottlingException",
                "Throttling",
                "ThrottledException",
                "RequestThrottledException",
                "RequestThrottled",
                "TooManyRequestsException",
                "ProvisionedThroughputExceededException",
                "RequestLimitExceeded",
                "BandwidthLimitExceeded",
                "SlowDown",
                "EC2ThrottledException",
                "PriorRequestNotComplete",
                "TransactionInProgressException",
            ]
        ),
        (400, "LimitExceededException", "no", "quota R"),
        (400, "ServiceQuotaExceededException", "no", "quota R"),
        (429, "ModelNotReadyException", "no", "overloaded R"),
        (503, "ServiceUnavailableException", "no", "server_error M"),
        (503, "ServiceUnavailableException", "Bedrock is overloaded", "overloaded M"),
        (500, "InternalServerException", "no", "server_error M"),
        (408, "ModelTimeoutException", "no", "no_answer M"),
        (424, "ModelErrorException", "no", "server_error M"),
        (424, "ModelStreamErrorException", "no", "server_error M"),
        (400, "RequestTimeout", "no", "no_answer M"),
        (400, "RequestTimeoutException", "no", "no_answer M"),
        *(
            (403, code, "no", "auth R")
            for code in (
                "AccessDeniedException",
                "UnrecognizedClientException",
                "InvalidSignatureException",
                "ExpiredTokenException",
            )
        ),
        (403, "ExpiredToken", "no", "auth R"),
        (403, "MPAgreementBeingCreated", "no", "overloaded R 900 s"),
        (404, "ResourceNotFoundException", "no", "not_found R"),
        *((400, "ValidationException", message, "context_length R") for message in LONG),
        (400, "ValidationException", "no", "schema R"),
        (400, "SomethingNew", "no", "schema R"),
    ],
)
def test_every_row_of_the_table_as_botocore_raises_it(
    client, wire, status, code, message, expected
):
    wire.says(
        status,
        {"message": message},
        {"x-amzn-errortype": f"{code}:http://internal.amazon.com/coral/"},
    )

    found = raised(lambda: ask(client))
    assert found.response["Error"]["Code"] == code
    assert says(found) == expected

    import requests

    assert says(requests.post(wire.url, timeout=30)) == expected  # the response alone


def test_the_header_in_milliseconds_is_honoured(client, wire):
    wire.says(
        429,
        {"message": "no"},
        {"x-amzn-errortype": "ThrottlingException", "x-amz-retry-after": "1500"},
    )

    assert says(raised(lambda: ask(client))) == "rate_limit R 1.5 s"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("throttlingException", "rate_limit M"),
        ("modelStreamErrorException", "server_error M"),
        ("validationException", "schema M"),
        ("serviceUnavailableException", "server_error M"),
    ],
)
def test_in_a_stream_the_code_begins_small_and_is_no_refusal(code, expected):
    from botocore.exceptions import EventStreamError

    response = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": 200},
    }
    assert says(EventStreamError(response, "ConverseStream")) == expected
    assert (
        says(EventStreamError({"Error": {"Code": code, "Message": "no"}}, "ConverseStream"))
        == expected
    )


STOPPED = {
    "ok A": "end_turn",
    "content_policy A": "guardrail_intervened content_filtered",
    "parse A": "malformed_model_output malformed_tool_use max_tokens",
    "context_length A": "model_context_window_exceeded",
}


@pytest.mark.parametrize(("reason", "expected"), rows(STOPPED))
def test_why_the_model_stopped(client, wire, reason, expected):
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    message = {"role": "assistant", "content": [{"text": "x"}]}
    wire.says(
        200,
        {
            "output": {"message": message},
            "stopReason": reason,
            "usage": usage,
            "metrics": {"latencyMs": 1},
        },
    )

    assert says(ask(client)) == expected


def test_transport_errors(client, make, wire, nobody):
    assert says(raised(lambda: ask(make(nobody)))) == "unreachable N"
    wire.hangs_up()
    assert says(raised(lambda: ask(client))) == "no_answer M"
    wire.hangs()
    assert says(raised(lambda: ask(make(wire.url, read_timeout=0.1)))) == "no_answer M"


CLASSES = {
    "unreachable N": "ConnectTimeoutError EndpointConnectionError ProxyConnectionError",
    "no_answer M": (
        "ReadTimeoutError ConnectionClosedError ResponseStreamingError HTTPClientError"
        " IncompleteReadError"
    ),
    "config M": "SSLError",
    "auth N": "NoCredentialsError",
    "schema N": "ParamValidationError",
}


@pytest.mark.parametrize(("name", "expected"), rows(CLASSES))
def test_the_classes_of_botocore(name, expected):
    import botocore.exceptions

    details = {
        "endpoint_url": "u",
        "proxy_url": "p",
        "error": "e",
        "actual_bytes": 1,
        "expected_bytes": 2,
        "report": "r",
    }
    assert says(getattr(botocore.exceptions, name)(**details)) == expected


def test_a_throttled_account_is_not_a_broken_host(client, wire):
    wire.says(429, {"message": "no"}, {"x-amzn-errortype": "ThrottlingException"})

    assert classify(raised(lambda: ask(client))).scope == "account"
