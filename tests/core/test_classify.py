"""What an error means: by precedence, along what it wraps, for any object at all. The vendors
themselves are in tests/vendors.
"""

import errno
from subprocess import CalledProcessError
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from effectonce import Bucket, Certainty, NotSent, Rule, Scope, Verdict, classify
from effectonce._core.classification.classify import UNKNOWN, classifier
from effectonce._core.classification.tables import BY_CLASS, TABLES, VERSION
from tests.core.examples import examples


def foreign(name, base=Exception, **attributes):
    """An exception class of somebody else's package."""
    package, _, cls = name.rpartition(".")
    error = type(cls, (base,), {"__module__": package})("no")
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


def response(status, content, **more):
    return SimpleNamespace(status_code=status, _content=content, **more)


OVERLOADED = b'{"error": {"type": "overloaded_error"}}'
ANTHROPIC = {"url": "https://api.anthropic.com/v1"}


def caused(error, cause):
    error.__cause__ = cause
    return error


# ---------------------------------------------------------------- precedence


def test_a_code_counts_more_than_a_class_and_a_class_more_than_a_status():
    by_code = foreign("openai.RateLimitError", status_code=429, code="insufficient_quota")
    by_class = foreign("stripe.CardError", http_status=429)
    by_status = foreign("somewhere.Oops", status_code=429)

    assert [classify(e).bucket for e in (by_code, by_class, by_status)] == [
        "quota",
        "declined",
        "rate_limit",
    ]


@pytest.mark.parametrize("status", [408, 499, 500, 502, 504, 520, 524, 599])
@pytest.mark.parametrize("code", ["card_error", "NOT_FOUND", "23505", "53300", "-32602"])
def test_a_code_proves_nothing_under_a_status_which_says_that_nobody_knows(status, code):
    content = b'{"error": {"code": "%s"}}' % code.encode()
    unsure, refused = classify(response(status, content)), classify(response(400, content))

    assert unsure.certainty is Certainty.AMBIGUOUS
    assert refused.certainty is not Certainty.AMBIGUOUS
    assert unsure.bucket is refused.bucket


def test_a_code_of_a_known_service_counts_under_any_status():
    assert classify(response(500, OVERLOADED, **ANTHROPIC)).certainty is Certainty.REJECTED


@pytest.mark.parametrize("status", [200, 202, 302])
def test_a_code_under_a_status_that_is_no_refusal_proves_nothing_not_even_of_a_known_service(
    status,
):
    verdict = classify(response(status, OVERLOADED, **ANTHROPIC))

    assert (verdict.bucket, verdict.certainty) == ("overloaded", "ambiguous")


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (409, "ABORTED"), (429, "insufficient_quota")]
)
def test_a_code_says_what_its_status_leaves_open(status, code):
    content = b'{"error": {"code": "%s"}}' % code.encode()

    assert classify(response(status, content)).certainty is Certainty.REJECTED


@pytest.mark.parametrize(
    ("cause", "certainty"),
    [
        (lambda: foreign("httpx.ReadTimeout"), Certainty.AMBIGUOUS),
        (lambda: TimeoutError("no answer"), Certainty.AMBIGUOUS),
        (lambda: OSError(errno.ECONNRESET, "reset"), Certainty.AMBIGUOUS),
        (lambda: foreign("httpx.ConnectTimeout"), Certainty.REJECTED),
        (lambda: foreign("somewhere.Refused", status_code=422), Certainty.REJECTED),
        (lambda: ValueError("no"), Certainty.REJECTED),
    ],
)
def test_a_status_that_somebody_made_of_a_lost_answer_is_no_refusal(cause, certainty):
    """As web frameworks do: `raise HTTPException(400) from error`."""
    error = caused(
        foreign("somewhere.HTTPException", status_code=400),
        caused(RuntimeError("wrapped"), cause()),
    )

    assert classify(error).certainty is certainty
    assert classify(error).bucket is Bucket.SCHEMA


def test_of_several_errors_in_one_none_speaks_for_all():
    refused, lost = ConnectionRefusedError(111, "no"), TimeoutError("no answer")

    assert classify(RuntimeError("no host", refused)).certainty is Certainty.NOT_SENT
    for errors in ((refused, lost), (lost, refused), (refused, ConnectionRefusedError(111, "no"))):
        assert classify(RuntimeError("no host", *errors)).certainty is Certainty.AMBIGUOUS
        assert classify(ExceptionGroup("no host", errors)).certainty is Certainty.AMBIGUOUS


def test_the_row_that_decided_is_named():
    assert (
        classify(foreign("openai.X", status_code=429, code="insufficient_quota")).matched
        == "openai: code insufficient_quota"
    )
    assert classify(TimeoutError()).matched == "os: class builtins.TimeoutError"
    assert classify(OSError(errno.EMFILE, "x")).matched == f"os: errno {errno.EMFILE}"
    assert classify(ValueError("x")).matched == "nothing"


def test_what_is_unknown_is_ambiguous_and_not_retried():
    for thing in (ValueError("x"), None, object(), 7, True, [], b"", 1.5, type, classify):
        assert classify(thing) is UNKNOWN
    assert not UNKNOWN.retryable


def test_a_plain_status_or_text_is_understood():
    assert classify(503).bucket == "server_error"
    assert classify(599).bucket == "server_error"
    assert classify(499).certainty == "ambiguous"
    assert classify(302).certainty == "ambiguous"
    assert (classify(200).bucket, classify(200).retryable) == ("ok", False)
    assert classify("429 Too Many Requests, try again in 20s").retry_after_s == 20


@pytest.mark.parametrize(
    ("status", "bucket", "certainty"),
    [
        *((s, "schema", "rejected") for s in (400, 405, 412, 418, 422, 428, 431)),
        (401, "auth", "rejected"),
        (402, "quota", "rejected"),
        (403, "auth", "rejected"),
        (404, "not_found", "rejected"),
        (407, "config", "not_sent"),
        (408, "no_answer", "ambiguous"),
        (409, "conflict", "ambiguous"),
        (410, "not_found", "rejected"),
        (413, "context_length", "rejected"),
        (421, "unreachable", "rejected"),
        (423, "conflict", "rejected"),
        (425, "rate_limit", "rejected"),
        (429, "rate_limit", "rejected"),
        (451, "content_policy", "rejected"),
        (499, "cancelled", "ambiguous"),
        (500, "server_error", "ambiguous"),
        *((s, "config", "rejected") for s in (501, 505, 511)),
        *((s, "no_answer", "ambiguous") for s in (502, 504, 520, 524)),
        (503, "server_error", "ambiguous"),
        *((s, "unreachable", "ambiguous") for s in (521, 522, 523)),
        *((s, "config", "ambiguous") for s in (525, 526)),
        (529, "overloaded", "rejected"),
        (555, "server_error", "ambiguous"),
    ],
)
def test_plain_http(status, bucket, certainty):
    verdict = classify({"status": status, "headers": {}, "body": "no"})
    assert (verdict.bucket, verdict.certainty) == (bucket, certainty)


def test_a_409_without_a_code_is_not_retried_and_a_503_with_a_delay_is_a_refusal():
    assert not classify(409).retryable
    told = classify({"status": 503, "headers": [("Retry-After", "7")]})
    assert (told.bucket, told.certainty, told.retry_after_s) == ("overloaded", "rejected", 7)


def test_headers_that_are_none_are_passed_over():
    told = classify(
        {"status": 503, "headers": [("X-Nothing", None), "no pair", ("Retry-After", 7)]}
    )
    assert told.retry_after_s == 7


# ---------------------------------------------------------------- what an error wraps


def test_an_unknown_error_is_read_by_its_cause():
    assert classify(caused(ValueError("x"), ConnectionRefusedError())).certainty == "not_sent"


def test_what_was_merely_being_handled_makes_nothing_certain():
    """`except ConnectionRefusedError: fallback()` raised this: it may be about another request."""
    error = ValueError("x")
    error.__context__ = ConnectionRefusedError()
    verdict = classify(error)
    assert (verdict.bucket, verdict.certainty) == ("unreachable", "ambiguous")
    error.__suppress_context__ = True
    assert classify(error) is UNKNOWN


def test_another_error_that_an_error_merely_holds_does_not_speak_for_it():
    held = foreign("stripe.CardError", http_status=402)

    assert classify(held).certainty is Certainty.REJECTED
    assert classify(foreign("mine.Oops", error=held)) == UNKNOWN


def test_a_cycle_of_causes_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    second.__context__ = second.reason = first
    assert classify(first) is UNKNOWN


def test_an_endless_chain_ends():
    class Endless(Exception):
        @property
        def reason(self):
            return Endless()

    assert classify(Endless()) is UNKNOWN


def test_a_group_of_one_is_that_one_and_a_group_of_many_is_unknown():
    assert classify(ExceptionGroup("g", [TimeoutError()])).bucket == "no_answer"
    assert classify(ExceptionGroup("g", [TimeoutError(), ConnectionRefusedError()])) is UNKNOWN


def test_a_subclass_of_your_own_is_read_by_its_base():
    base = type(foreign("httpx.ConnectTimeout"))
    assert classify(foreign("mine.Slow", base)).certainty == "not_sent"


# ---------------------------------------------------------------- certainty


def test_a_code_without_an_answer_is_no_refusal():
    body = {"type": "error", "error": {"type": "rate_limit_error"}}
    assert classify(body).certainty == "ambiguous"
    assert classify({"status": 200, "body": body}).certainty == "ambiguous"
    assert classify({"status": 429, "body": body}).certainty == "rejected"
    assert classify(foreign("mine.Error", code="insufficient_quota")).certainty == "ambiguous"
    assert (
        classify(foreign("openai.RateLimitError", code="insufficient_quota")).certainty
        == "rejected"
    )
    assert classify(foreign("openai.APIError", code="insufficient_quota")).certainty == "ambiguous"


def test_words_never_make_anything_certain():
    verdict = classify(ValueError("Rate limit reached, please try again in 6m0s"))
    assert (verdict.bucket, verdict.certainty, verdict.retry_after_s) == (
        "rate_limit",
        "ambiguous",
        360,
    )


def test_a_message_that_is_too_large_may_be_the_answer():
    refused = SimpleNamespace(status_code=429, text="slow down")
    answered = SimpleNamespace(
        status_code=429, text="Received message larger than max (5000000 vs. 4194304)"
    )

    assert (classify(refused).bucket, classify(refused).certainty) == ("rate_limit", "rejected")
    assert (classify(answered).bucket, classify(answered).certainty) == ("schema", "ambiguous")


def test_a_server_may_forbid_and_may_allow_only_under_a_key():
    def told(status, **headers):
        return classify(
            {
                "status": status,
                "headers": {name.replace("_", "-"): value for name, value in headers.items()},
            }
        )

    assert not told(503, x_should_retry="false").retryable
    assert told(503, x_should_retry="true").retryable
    allowed = told(400, stripe_should_retry="true")
    assert (allowed.retryable, allowed.certainty) == (True, "ambiguous")
    assert told(200, x_should_retry="true").bucket == "ok"
    assert not told(503, grpc_retry_pushback_ms="-1").retryable


def test_scope_follows_from_the_bucket():
    assert classify(429).scope is Scope.ACCOUNT
    assert classify(TimeoutError()).scope is Scope.HOST
    assert classify(400).scope is Scope.REQUEST
    assert Verdict(Bucket.QUOTA, Certainty.REJECTED).scope is Scope.ACCOUNT
    assert Verdict(Bucket.QUOTA, Certainty.REJECTED, scope=Scope.MODEL).scope is Scope.MODEL


def test_only_a_refusal_of_this_very_request_is_final():
    assert Verdict(Bucket.DECLINED, Certainty.REJECTED).final
    assert not Verdict(Bucket.QUOTA, Certainty.REJECTED).final
    assert not Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED).final
    assert not Verdict(Bucket.DECLINED, Certainty.AMBIGUOUS).final


def test_what_was_acted_on_is_never_retried():
    assert not Verdict(Bucket.SERVER_ERROR, Certainty.ACTED, retry=True).retryable


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("body", "bucket"),
    [
        ('{"error": {"code": "insufficient_quota"}}', "quota"),
        (b'[{"error": {"status": "ABORTED"}}]', "conflict"),
        ({"error": "quota_exceeded"}, "quota"),
        ({"__type": "com.amazon#ThrottlingException"}, "rate_limit"),
        ({"code": "40001"}, "conflict"),
        ({"error": {"code": -32001}}, "no_answer"),
        ("{not json", "schema"),
        ("x" * 300_000, "schema"),
        ({"error": {"message": "maximum context length"}}, "context_length"),
    ],
)
def test_bodies_are_read_as_far_as_they_are_there(body, bucket):
    assert classify({"status": 400, "body": body}).bucket == bucket


def test_nobody_waits_for_a_body():
    class Response:
        status_code = 429

        @property
        def text(self):
            raise AssertionError("this reads from the network")

        content = json = text

    assert classify(Response()).bucket == "rate_limit"


def test_a_host_tells_whose_code_it_is():
    answer = response(500, b'{"error": {"type": "api_error"}}', url="https://api.stripe.com/v1")

    assert classify(answer).matched == "stripe: code api_error"


def test_why_a_model_stopped_is_read_from_plain_data():
    assert classify({"choices": [{"finish_reason": "length"}]}).bucket == "parse"
    assert (
        classify(
            {"choices": [{"finish_reason": "stop", "message": {"content": "rate limit"}}]}
        ).bucket
        == "ok"
    )
    assert classify({"status": 200, "stop_reason": "refusal"}).bucket == "content_policy"
    assert classify({"stopReason": "guardrail_intervened"}).certainty == "acted"


def test_a_model_that_refuses_a_prompt_that_is_blocked_and_a_tool_that_reports_an_error():
    assert (
        classify(
            {"choices": [{"finish_reason": "stop", "message": {"refusal": "I cannot"}}]}
        ).bucket
        == "content_policy"
    )
    assert classify({"promptFeedback": {"blockReason": "OTHER"}}).bucket == "content_policy"
    assert classify({"isError": True, "content": []}).bucket == "tool_error"


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ([{"retryDelay": "34.4s"}], ("rate_limit", 34.4)),
        ([{"retry_delay": {"seconds": 3, "nanos": 500_000_000}}], ("rate_limit", 3.5)),
        ([{"retry_delay": {"seconds": 3}}], ("rate_limit", 3)),
        ([{"retry_delay": {}}], ("rate_limit", None)),
        ([{"violations": [{"quotaValue": "0"}]}, {"retryDelay": "3s"}], ("quota", 3)),
        ([{"violations": [{"quotaId": "RequestsPerDay"}]}], ("quota", None)),
        (
            [{"violations": [{"quotaId": "RequestsPerDay"}]}, {"retryDelay": "36s"}],
            ("rate_limit", 36),
        ),
        ([{"retryDelay": "7200s"}], ("quota", 7200)),
        (
            [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
            ("auth", None),
        ),
    ],
)
def test_the_delay_is_believed_before_the_name_of_the_quota(details, expected):
    verdict = classify(
        {"status": 429, "body": {"error": {"status": "RESOURCE_EXHAUSTED", "details": details}}}
    )
    assert (verdict.bucket, verdict.retry_after_s) == expected


def test_a_quota_per_minute_is_a_rate_limit_whatever_the_message_calls_it():
    violations = [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel", "quotaValue": "15"}]
    told = {
        "message": "You exceeded your current quota",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"violations": violations}],
    }
    per_day = {**told, "details": [{"violations": [*violations, {"quotaId": "RequestsPerDay"}]}]}

    assert [classify({"status": 429, "error": each}).bucket for each in (told, per_day)] == [
        "rate_limit",
        "quota",
    ]


def test_a_code_that_is_a_number_counts_only_if_its_service_answered():
    answers = [
        {"status": 429, "url": f"https://{host}/v4", "code": "1310"}
        for host in ("api.z.ai", "example.com")
    ]

    assert [classify(answer).bucket for answer in answers] == ["quota", "rate_limit"]


def test_a_gateways_answer_in_the_place_of_stripe_is_told_from_stripes_own_by_the_error_inside():
    gateway = foreign("stripe.APIError", http_status=503, json_body={"server": "gateway"})
    stored = foreign(
        "stripe.APIError", http_status=503, json_body={"error": {"type": "unknown_type"}}
    )

    assert [(classify(each).bucket, classify(each).retryable) for each in (gateway, stored)] == [
        ("no_answer", True),
        ("server_error", False),
    ]


@pytest.mark.parametrize(("returncode", "bucket"), [(1, "tool_error"), (-9, "no_answer")])
def test_a_command_that_failed_is_not_one_that_was_killed(returncode, bucket):
    assert classify(CalledProcessError(returncode, ["sh"])).bucket == bucket


@pytest.mark.parametrize("said", [{"non_retryable": True}, {"should_retry": False}])
def test_an_error_may_say_itself_that_it_is_not_worth_another_attempt(said):
    assert not classify(foreign("somewhere.Lost", TimeoutError, **said)).retryable
    assert classify(foreign("somewhere.Lost", TimeoutError, should_retry=True)).retryable


def test_a_fallback_waits_for_something_better_further_in():
    outer = foreign("openai.APIConnectionError")
    assert classify(outer).bucket == "no_answer"
    assert classify(caused(outer, foreign("httpx.ConnectTimeout"))).certainty == "not_sent"
    assert classify(
        caused(foreign("openai.APITimeoutError"), foreign("httpx.TransportError"))
    ).matched.startswith("openai")
    not_found = foreign(
        "stripe.InvalidRequestError",
        http_status=404,
        code="resource_missing",
        type="invalid_request_error",
    )
    assert classify(not_found).bucket == "not_found"


def test_libraries_hand_delays_and_phases_on_as_attributes():
    from datetime import timedelta

    assert (
        classify(foreign("pydantic_ai.ModelConnectionError", phase="connect")).certainty
        == "not_sent"
    )
    assert classify(foreign("mine.Busy", retry_after=7)).retry_after_s == 7
    stopped = caused(
        foreign(
            "temporalio.ApplicationError", next_retry_delay=timedelta(minutes=1), non_retryable=True
        ),
        TimeoutError(),
    )
    assert (classify(stopped).retry_after_s, classify(stopped).retryable) == (60, False)


def test_a_remote_call_is_asked_for_its_code():
    import enum
    import socket

    codes = enum.Enum("codes", "UNAVAILABLE RESOURCE_EXHAUSTED")

    def failed(code, details, metadata=()):
        answers = {
            "code": lambda: code,
            "details": lambda: details,
            "trailing_metadata": lambda: metadata,
        }
        return foreign("grpc.RpcError", **answers)

    assert classify(failed(codes.UNAVAILABLE, "no")).bucket == "no_answer"
    assert (
        classify(failed(codes.RESOURCE_EXHAUSTED, "Received message larger than max")).bucket
        == "schema"
    )
    assert classify(failed(None, None)).matched == "grpc: class grpc.RpcError"
    assert (
        classify(
            failed(codes.UNAVAILABLE, "no", (("grpc-retry-pushback-ms", b"1500"),))
        ).retry_after_s
        == 1.5
    )
    assert classify(socket.gaierror(-2, "Name or service not known")).bucket == "config"


def test_a_refusal_inside_a_stream_came_too_late_to_be_one():
    assert classify(foreign("pydantic_ai.ModelOverloadedError")).certainty == "rejected"
    assert (
        classify(foreign("pydantic_ai.ModelOverloadedError", in_stream=True)).certainty
        == "ambiguous"
    )


# ---------------------------------------------------------------- rules


class CardDeclined(Exception):
    pass


@pytest.mark.parametrize(
    "when",
    [
        CardDeclined,
        "test_classify.CardDeclined",
        ("test_classify", "CardDeclined"),
        "E17",
        418,
        lambda e: e.code == "E17",
    ],
)
def test_a_rule_is_found_by_type_name_code_status_or_function(when):
    error = CardDeclined("no")
    error.code, error.status_code = "E17", 418
    type(error).__module__ = "test_classify"

    verdict = classify(error, rules=[Rule(when, Verdict(Bucket.DECLINED, Certainty.REJECTED))])

    assert (verdict.bucket, verdict.certainty, verdict.why) == (
        "declined",
        "rejected",
        "a rule says so",
    )
    assert verdict.matched.startswith("rule: ")
    assert classify(error, rules={when: Bucket.QUOTA}).bucket == "quota"


def test_the_first_rule_that_matches_wins_and_a_broken_one_does_not_match():
    rules = {
        lambda error: 1 / 0: Bucket.QUOTA,
        TimeoutError: Bucket.OVERLOADED,
        OSError: Bucket.AUTH,
    }

    assert classify(TimeoutError(), rules=rules).bucket == "overloaded"
    assert classify(ValueError(), rules=rules) is UNKNOWN
    assert classify(caused(ValueError(), TimeoutError()), rules=rules).bucket == "overloaded"


def test_a_rule_that_makes_no_sense_is_refused_when_it_is_written():
    with pytest.raises(TypeError, match="give an exception type"):
        Rule(1.5, Bucket.QUOTA)
    with pytest.raises(TypeError, match="a Verdict or a Bucket"):
        Rule(TimeoutError, "quota")
    with pytest.raises(TypeError, match="or a mapping"):
        classify(ValueError(), rules=[TimeoutError])


# ---------------------------------------------------------------- in a guarded call


def test_nothing_is_inferred_to_be_harmless_unless_the_tool_makes_one_request():
    refused, declined = ConnectionRefusedError(), foreign("stripe.CardError")
    many, one = classifier((), ()), classifier((), (), one_request=True)

    assert [many(e).certainty for e in (refused, declined)] == ["ambiguous", "ambiguous"]
    assert "an earlier request may have left" in many(refused).why
    assert many(refused).retryable
    assert [one(e).certainty for e in (refused, declined)] == ["not_sent", "rejected"]
    assert many(TimeoutError()) == one(TimeoutError())


def test_what_a_tool_declares_is_taken_at_its_word():
    says = classifier(
        (KeyError,),
        (LookupError,),
        rules=(Rule(TimeoutError, Verdict(Bucket.DECLINED, Certainty.REJECTED)),),
    )

    assert says(TimeoutError()).certainty == "rejected"
    assert says(NotSent("x")).why == "the tool says nothing was sent"
    assert says(KeyError()).certainty == "not_sent"
    # also where the tables know it as an account's limit
    assert says(foreign("google.ResourceExhausted", LookupError)).final


def test_dates_are_measured_from_the_clock_that_is_handed_in():
    error = foreign(
        "mine.Busy", status_code=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    )
    assert classifier((), (), wall_clock=lambda: 1445412470.0)(error).retry_after_s == 10


# ---------------------------------------------------------------- any object at all


class Hostile:
    """Every attribute raises or answers nonsense, `__class__` and `__str__` included."""

    def __init__(self, answers):
        object.__setattr__(self, "answers", answers)

    def __getattribute__(self, name):
        answer = object.__getattribute__(self, "answers")(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __str__(self):
        raise RuntimeError


class HostileError(Hostile, Exception):
    pass


NONSENSE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.just(ValueError("x")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "code", "status", "details", "body"]), inner)
    ),
    max_leaves=8,
)


@examples(NONSENSE, st.data())
def test_no_object_makes_it_fail(thing, data):
    for hostile in (
        thing,
        Hostile(lambda name: data.draw(NONSENSE)),
        HostileError(lambda name: data.draw(NONSENSE)),
    ):
        verdict = classify(hostile, now=0.0)
        assert isinstance(verdict, Verdict)
        assert verdict.retry_after_s is None or verdict.retry_after_s >= 0


@examples(
    st.dictionaries(
        st.sampled_from(
            [
                "status",
                "headers",
                "body",
                "error",
                "code",
                "type",
                "details",
                "choices",
                "candidates",
                "url",
                "stop_reason",
            ]
        ),
        NONSENSE,
    )
)
def test_no_body_makes_it_fail(body):
    assert isinstance(classify(body), Verdict)
    assert isinstance(classify(foreign("mine.Error", **body)), Verdict)


def test_objects_that_answer_everything_say_nothing():
    from unittest.mock import MagicMock

    assert classify(MagicMock()) is UNKNOWN
    error = foreign("mine.Error", response=MagicMock(), body=MagicMock(), headers=MagicMock())
    assert classify(error).certainty == "ambiguous"


def test_an_object_that_lies_about_its_class_is_unknown():
    class Liar:
        @property
        def __class__(self):
            raise RuntimeError

    assert classify(Liar()) is UNKNOWN


# ---------------------------------------------------------------- the tables


def test_no_class_or_code_stands_in_one_table_twice():
    for table in TABLES:
        named = [(row.signal, name) for row in table.rows for name in row.names]
        assert len(set(named)) == len(named), [n for n in named if named.count(n) > 1]


def test_every_row_says_why_and_no_text_is_certain():
    for table in TABLES:
        assert table.checked
        for row in table.rows:
            assert row.verdict.why
            assert row.names
            if row.signal == "text":
                assert row.verdict.certainty is Certainty.AMBIGUOUS
                assert all(name == name.lower() for name in row.names)
    assert VERSION
    assert "httpx2.ReadTimeout" in BY_CLASS


def test_importing_effectonce_reads_no_table():
    import subprocess
    import sys

    code = (
        "import sys, effectonce; print([m for m in sys.modules if 'tables' in m or 'signals' in m"
        " or 'email' in m])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


@pytest.mark.parametrize(
    ("method", "certainty"),
    [("POST", Certainty.ACTED), ("PUT", Certainty.AMBIGUOUS), ("GET", Certainty.AMBIGUOUS)],
)
def test_done_before_is_said_of_a_request_that_carried_the_key(method, certainty):
    import httpx

    request = httpx.Request(method, "https://api.example.com/transfers")
    error = httpx.HTTPStatusError(
        "conflict", request=request, response=httpx.Response(409, request=request)
    )
    done_before = Verdict(Bucket.CONFLICT, Certainty.ACTED, "it exists already")

    assert classifier((), (), rules=(Rule(409, done_before),))(error).certainty is certainty


@pytest.mark.parametrize(("declared", "heeded"), [(None, 20.0), (3.0, 3.0)])
def test_a_rule_heeds_the_delay_that_was_asked_for_unless_it_names_one(declared, heeded):
    response = SimpleNamespace(status_code=503, headers={"Retry-After": "20"})
    then = Verdict(Bucket.SERVER_ERROR, Certainty.AMBIGUOUS, "ours", declared)

    assert classify(response, rules=[Rule(503, then)]).retry_after_s == heeded
