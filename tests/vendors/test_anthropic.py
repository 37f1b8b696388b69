"""What Anthropic says, through the real SDK with its retries off."""

import pytest

from effectonce import classify
from tests.vendors.helpers import raised, says

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client(server):
    import anthropic

    return anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0, timeout=30)


def ask(client, **more):
    return client.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], **more
    )


def error(kind, code=None, message="no"):
    details = {} if code is None else {"details": {"error_code": code}}
    return {
        "type": "error",
        "error": {"type": kind, "message": message} | details,
        "request_id": "req_1",
    }


INVALID = "invalid_request_error"

ROWS = [
    (429, error("rate_limit_error"), "rate_limit R"),
    (429, error("rate_limit_error", "ramp_limit_exceeded"), "rate_limit R"),
    (429, error("rate_limit_error", "enforced_spend_limit_reached"), "quota R"),
    (402, error("billing_error"), "quota R"),
    (400, error(INVALID, "storage_quota_exceeded"), "quota R"),
    (400, error(INVALID, "org_api_key_limit_exceeded"), "quota R"),
    (400, error(INVALID, "workspace_api_key_limit_exceeded"), "quota R"),
    (400, error(INVALID, "workspace_member_limit_exceeded"), "quota R"),
    (400, error(INVALID, "org_member_limit_exceeded"), "quota R"),
    (400, error(INVALID, None, "Your credit balance is too low"), "quota R"),
    (529, error("overloaded_error"), "overloaded R"),
    (500, error("overloaded_error"), "overloaded R"),
    (529, error("overloaded_error", "compaction_unavailable"), "overloaded R"),
    (529, "", "overloaded R"),
    (500, error("api_error"), "server_error M"),
    (503, error("api_error"), "server_error M"),
    (503, error("api_error", "cmek_context_unavailable"), "server_error R"),
    (503, error("api_error", "cmek_key_unreachable"), "server_error R"),
    (503, error("api_error", "registration_pending"), "server_error R"),
    (504, error("timeout_error"), "no_answer M"),
    (408, error("timeout_error"), "no_answer M"),
    (504, "", "no_answer M"),
    (499, "", "cancelled M"),
    (409, error("conflict_error", "concurrent_membership_change"), "conflict_in_flight R"),
    (409, error("conflict_error", "external_key_changed"), "conflict_in_flight R"),
    (409, error("conflict_error", "scan_pending"), "conflict_in_flight R"),
    (409, error("conflict_error", "skill_name_taken"), "schema R"),
    (409, error("conflict_error", "plugin_name_taken"), "schema R"),
    (409, error("conflict_error", "skill_read_blocked_undecryptable"), "schema R"),
    (409, error("conflict_error"), "conflict_in_flight M"),
    (400, error(INVALID, "thread_continue_in_flight"), "conflict_in_flight R"),
    (400, error(INVALID, "external_key_validation_timed_out"), "conflict_in_flight R"),
    (400, error(INVALID, "thread_already_continued"), "schema R"),
    (412, error("memory_precondition_failed_error"), "schema R"),
    (412, error("x", "heartbeat_precondition_failed"), "schema R"),
    (401, error("authentication_error"), "auth R"),
    (403, error("permission_error"), "auth R"),
    (403, error("permission_error", "api_key_scope_missing"), "auth R"),
    (400, error(INVALID, "organization_on_hold"), "auth R"),
    (400, error(INVALID, "claude_code_version_too_old"), "auth R"),
    (400, error(INVALID, "claude_code_key_creator_not_member"), "auth R"),
    (400, error(INVALID, "cmek_key_disabled"), "auth R"),
    (400, error(INVALID, "cmek_key_network_blocked"), "auth R"),
    (404, error("not_found_error"), "not_found R"),
    (404, error("not_found_error", "file_expired"), "not_found R"),
    (404, error("not_found_error", "thread_not_found"), "not_found R"),
    (413, error("request_too_large"), "context_length R"),
    (413, error(INVALID, "request_body_too_large_after_decoding"), "context_length R"),
    (
        400,
        error(INVALID, None, "prompt is too long: 210000 tokens > 200000 maximum"),
        "context_length R",
    ),
    (400, error(INVALID, None, "prompt: length must be below"), "context_length R"),
    (
        400,
        error(INVALID, None, "input length and max_tokens exceed context limit"),
        "context_length R",
    ),
    (400, error(INVALID, None, "Output blocked by content filtering policy"), "content_policy R"),
    (400, error(INVALID), "schema R"),
    (422, error(INVALID), "schema R"),
    (431, error(INVALID), "schema R"),
    (501, error("api_error"), "config R"),
]


@pytest.mark.parametrize(("status", "body", "expected"), ROWS)
def test_every_row_of_the_table_as_the_sdk_raises_it(client, wire, status, body, expected):
    wire.says(status, body)

    assert says(raised(lambda: ask(client))) == expected


def test_every_code_that_the_sdk_knows_has_a_verdict(client, wire):
    """Its own table, code by code: a 4xx is a refusal, and is worth another attempt only if its
    code says so.
    """
    from anthropic._error_classes import ERROR_CLASSES

    again = set()
    for status, code in ERROR_CLASSES:
        wire.says(status, error(INVALID if status == 400 else "api_error", code))
        found = raised(lambda: ask(client))
        verdict = classify(found)
        assert type(found) is ERROR_CLASSES[status, code]
        assert verdict.bucket != "unknown"
        assert verdict.certainty == "rejected" or code is None, code
        if verdict.retryable and status < 500:
            again.add(code)
    assert len(ERROR_CLASSES) >= 98
    assert again == {
        None,  # a plain 408, 409 or 429
        "ramp_limit_exceeded",
        "concurrent_membership_change",
        "external_key_changed",
        "scan_pending",
        "thread_continue_in_flight",
        "external_key_validation_timed_out",
    }


def test_an_error_inside_a_stream_has_status_200_and_is_no_refusal(client, wire):
    wire.streams(error("overloaded_error"))
    found = raised(lambda: list(ask(client, stream=True)))

    assert found.status_code == 200
    assert says(found) == "overloaded M"
    assert (classify(found).retryable, classify(found).scope) == (True, "model")


def test_transport_errors_are_read_through_the_sdk_by_their_phase(client, wire, nobody):
    import anthropic

    wire.hangs()
    assert says(raised(lambda: ask(client.with_options(timeout=0.1)))) == "no_answer M"
    wire.hangs_up()
    assert says(raised(lambda: ask(client))) == "no_answer M"
    absent = anthropic.Anthropic(api_key="k", base_url=nobody, max_retries=0)
    found = raised(lambda: ask(absent))
    assert type(found.__cause__).__module__.startswith("httpx2")
    assert says(found) == "unreachable N"


def test_why_the_model_stopped(client, wire):
    def message(reason):
        content = [{"type": "text", "text": "{"}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        wire.says(200, {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
                  | {"stop_reason": reason, "stop_sequence": None})  # fmt: skip
        return ask(client)

    assert says(message("end_turn")) == "ok A"
    assert says(message("refusal")) == "content_policy A"
    assert says(message("max_tokens")) == "parse A"
    assert says(message("model_context_window_exceeded")) == "context_length A"


def test_credentials_that_cannot_be_read():
    import anthropic

    assert says(anthropic.CredentialsError("no")) == "auth R"


def test_a_long_delay_is_kept_and_called_a_quota(client, wire):
    wire.says(429, error("rate_limit_error"), {"retry-after": "4294967"})

    assert says(raised(lambda: ask(client))) == "quota R 4.29497e+06 s"
