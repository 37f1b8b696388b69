"""`effectonce classify` as a person and as a script sees it."""

import json
import subprocess
import sys

import pytest
from tests.cli.test_cli import effectonce


def piped(text, *arguments):
    command = [sys.executable, "-m", "effectonce.cli", "classify", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_an_exception_is_named_as_a_traceback_shows_it():
    said = effectonce("classify", "openai.RateLimitError", "--code", "insufficient_quota")

    assert (said.returncode, said.stderr) == (0, "")
    assert "quota: a quota, a budget or a spending limit is used up" in said.stdout
    assert "openai: code insufficient_quota" in said.stdout
    assert (
        "… with one_request=True  escalate: it is used up: a person must pay, or wait"
        in said.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "bucket", "certainty", "delay"),
    [
        (["--status", "429", "--header", "retry-after: 20"], "rate_limit", "rejected", 20),
        (
            ["--status", "429", "--body", '{"error": {"code": "insufficient_quota"}}'],
            "quota",
            "rejected",
            None,
        ),
        (["TimeoutError"], "no_answer", "ambiguous", None),
        (["httpx2.ConnectTimeout"], "unreachable", "not_sent", None),
        (["psycopg.errors.SerializationFailure", "--code", "40001"], "conflict", "rejected", None),
        (
            ["mine.Error", "--message", "rate limit: try again in 6m0s"],
            "rate_limit",
            "ambiguous",
            360,
        ),
        (
            ["stripe.InvalidRequestError", "--type", "idempotency_error", "--status", "400"],
            "conflict",
            "ambiguous",
            None,
        ),
        (["--message", "quota exceeded"], "quota", "ambiguous", None),
    ],
)
def test_scripts_get_json(arguments, bucket, certainty, delay):
    found = json.loads(effectonce("classify", *arguments, "--json").stdout)

    assert (found["bucket"], found["certainty"], found["retry_after_s"]) == (
        bucket,
        certainty,
        delay,
    )


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 9\r\n\r\nno", "overloaded"),
        ("HTTP/2 529\nserver: x\n\n", "overloaded"),
        ('{"type": "error", "error": {"type": "overloaded_error"}}', "overloaded"),
        ("Traceback (most recent call last):\n  ...\nhttpx.ReadTimeout: timed out\n", "no_answer"),
        ("Traceback (most recent call last):\n  ...\nKeyboardInterrupt\n", "cancelled"),
        ("429 Too Many Requests", "rate_limit"),
    ],
)
def test_a_response_a_body_or_a_traceback_is_piped_in(text, bucket):
    assert json.loads(piped(text, "--json").stdout)["bucket"] == bucket


def test_a_body_is_piped_in():
    body = '{"error": {"code": "context_length_exceeded"}}'
    assert (
        json.loads(piped(body, "--status", "400", "--body", "-", "--json").stdout)["bucket"]
        == "context_length"
    )


def test_wrong_usage_is_explained():
    assert piped("").returncode == 2
    assert "nothing to classify" in piped("").stderr
    said = effectonce("classify", "--header", "retry-after")
    assert (said.returncode, "write 'name: value'" in said.stderr) == (2, True)


def test_the_tables_are_printed_as_markdown():
    said = effectonce("classify", "--tables").stdout

    assert "### openai" in said
    assert "| `insufficient_quota`" in said or "`insufficient_quota`," in said
