"""What Z.AI says under a 429, in two formats. Its codes are numbers, so they count only where
Z.AI is known to have answered.
"""

import json

import pytest

from effectonce import Action, advise, classify
from tests.vendors.helpers import raised, says

pytestmark = pytest.mark.filterwarnings("ignore")

QUOTA = ("1113", "1308", "1309", "1310", "1311", "1313", *(str(code) for code in range(1314, 1322)))


def answer(status, code, url="https://api.z.ai/api/paas/v4/chat/completions", message="no"):
    return {
        "status": status,
        "url": url,
        "body": json.dumps({"error": {"code": code, "message": message}}),
    }


def through_openai(status, body):
    import httpx
    import openai

    transport = httpx.MockTransport(lambda request: httpx.Response(status, json=body))
    client = openai.OpenAI(
        api_key="k",
        base_url="https://api.z.ai/api/paas/v4",
        max_retries=0,
        http_client=httpx.Client(transport=transport),
    )
    return raised(
        lambda: client.chat.completions.create(
            model="glm-5", messages=[{"role": "user", "content": "hi"}]
        )
    )


@pytest.mark.parametrize("host", ["api.z.ai", "open.bigmodel.cn"])
@pytest.mark.parametrize("code", QUOTA)
def test_fourteen_codes_under_a_429_are_quotas_and_are_not_tried_again(code, host):
    verdict = classify(answer(429, code, f"https://{host}/api/paas/v4"))

    assert (verdict.bucket, verdict.certainty, verdict.retryable) == ("quota", "rejected", False)


def test_the_fourteen_codes_are_all_that_are_listed_for_a_429_but_those_that_pass():
    assert len(QUOTA) == 14
    assert says(answer(429, "1302")) == "rate_limit R"
    assert says(answer(429, "1305")) == "overloaded R"


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(400, "1261", "context_length R"), (400, "1301", "content_policy R")],
)
def test_other_codes_whose_status_alone_says_too_little(status, code, expected):
    assert says(answer(status, code)) == expected


def test_the_code_counts_through_the_openai_sdk_and_through_the_format_of_anthropic():
    found = through_openai(
        429, {"error": {"code": "1308", "message": "Usage limit reached for 5 hours"}}
    )
    body = {
        "type": "error",
        "error": {"type": "rate_limit_error", "code": "1309", "message": "[1309][x]"},
    }

    assert says(found) == "quota R"
    assert advise(found, kind="read").action is Action.ESCALATE
    assert (
        says({"status": 429, "url": "https://api.z.ai/api/anthropic", "body": json.dumps(body)})
        == "quota R"
    )


def test_the_same_number_of_another_service_means_nothing():
    assert says(answer(429, "1308", "https://api.example.com/v1")) == "rate_limit R"
    assert says(answer(500, "1308", "https://api.example.com/v1")) == "server_error M"


@pytest.mark.parametrize(
    "message",
    [
        "Insufficient balance or no resource package. Please recharge.",
        "Usage limit reached for 5 hours. Your limit will reset at 2026-10-01 00:00:00",
        "Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-10-01 00:00:00",
    ],
)
def test_behind_a_gateway_the_words_tell(message):
    assert says(answer(429, "1308", "http://gateway.internal/v1", message)) == "quota R"
