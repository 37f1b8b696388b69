"""Every exception class of every library here: none makes the classifier fail, and none lets a
write be repeated that may have landed.
"""

import importlib

import pytest

from effectonce import Bucket, Certainty, Guard, InDoubt, ReplayedFailure, Retry, Verdict, classify
from effectonce._core.classification.tables import OF_PACKAGE

pytestmark = pytest.mark.filterwarnings("ignore")

MODULES = [
    "openai",
    "anthropic",
    "google.genai",
    "google.genai.errors",
    "google.api_core.exceptions",
    "google.auth.exceptions",
    "botocore.exceptions",
    "stripe",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "requests",
    "urllib3",
    "aiohttp",
    "grpc",
    "grpc.aio",
    "psycopg",
    "psycopg_pool",
    "psycopg2.errors",
    "asyncpg",
    "redis",
    "redis.asyncio",
    "redis.cluster",
    "mcp",
    "langchain_core.exceptions",
    "langchain_core.tools",
    "langgraph.errors",
    "langgraph.graph",
    "pydantic_ai",
    "instructor",
    "instructor.core.exceptions",
    "temporalio.exceptions",
    "temporalio.client",
    "temporalio.workflow",
    "pybreaker",
    "circuitbreaker",
    "purgatory",
    "pydantic",
    "anyio",
]
PACKAGES = {name.partition(".")[0] for name in MODULES} | {
    "builtins",
    "socket",
    "ssl",
    "asyncio",
    "concurrent",
    "http",
    "json",
    "urllib",
}
NOT_MADE = {"AioRpcStatus"}  # compiled, and never raised as itself: grpc.aio.AioRpcError carries it
SURE = (Certainty.NOT_SENT, Certainty.REJECTED)


def subclasses(cls):
    for sub in cls.__subclasses__() if cls is not type else ():
        yield sub
        yield from subclasses(sub)


def made(cls):
    """An instance, by its constructor if it takes little, else without."""
    for args in (("no",), (), ("no", None), ("no", "no", None), ("no", [ValueError("no")])):
        try:
            return cls(*args)
        except Exception:
            continue
    return None if cls.__name__ in NOT_MADE else cls.__new__(cls)


KEPT = []  # some finalizers fail on an instance without its constructor: none of them runs


@pytest.fixture(scope="module")
def all_errors():
    for name in MODULES:
        importlib.import_module(name)
    found = {
        cls for cls in subclasses(BaseException) if cls.__module__.partition(".")[0] in PACKAGES
    }
    instances = [made(cls) for cls in sorted(found, key=lambda c: (c.__module__, c.__qualname__))]
    KEPT.extend(instances)
    return [error for error in instances if error is not None]


@pytest.fixture(params=["one of each verdict", pytest.param("all", marks=pytest.mark.long)])
def errors(request, all_errors):
    """The errors to raise in tools: a tool looks at the verdict, and at nothing else."""
    if request.param == "all":
        return all_errors
    by_verdict = {}
    for error in all_errors:
        verdict = classify(error, now=0.0)
        meaning = verdict.bucket, verdict.certainty, verdict.retryable, verdict.final
        by_verdict.setdefault((*meaning, isinstance(error, Exception)), error)
    return list(by_verdict.values())


def test_there_are_many(all_errors):
    assert len(all_errors) > 1500
    assert {type(e).__module__.partition(".")[0] for e in all_errors} >= PACKAGES - {
        "anyio",
        "purgatory",
        "urllib",
    }


def test_each_has_a_verdict_and_none_makes_the_classifier_fail(all_errors):
    for error in all_errors:
        verdict = classify(error, now=0.0)
        assert isinstance(verdict, Verdict)
        assert isinstance(verdict.bucket, Bucket)
        assert verdict.why
        assert verdict.matched
        assert verdict.retry_after_s is None or verdict.retry_after_s >= 0
        assert verdict.bucket is not Bucket.UNKNOWN or not verdict.retryable


def test_what_is_certain_is_so_by_a_row_about_that_very_library(all_errors):
    """Certainty comes from a table that owns the class, one of its bases or what it wraps; never
    from words.
    """
    for error in all_errors:
        verdict = classify(error)
        if verdict.certainty in SURE:
            owners = {
                OF_PACKAGE[c.__module__.partition(".")[0]].name
                for c in type(error).__mro__
                if c.__module__.partition(".")[0] in OF_PACKAGE
            }
            table, _, row = verdict.matched.partition(": ")
            assert table in owners | {"http"}, (error, verdict)
            assert (
                not row.startswith("text")
                or classify(type(error).__new__(type(error))).certainty is verdict.certainty
            )


def attempts(error, **contract):
    """How often a write that raises *error*, and can ask nobody, is run."""
    guard, runs = Guard("memory://", cache=0), []

    @guard.tool(
        kind="write", retry=Retry(attempts=3, base_s=0, cap_s=0, deadline_s=5), wait_s=0, **contract
    )
    def pay():
        runs.append(1)
        raise error

    for _ in range(2):
        with guard.step("chat", "pay"):
            try:
                pay()
            except BaseException as told:
                last = told
    return len(runs), last


def test_a_write_without_a_key_runs_once_whatever_it_raises(errors):
    """The property: without `one_request`, no exception of any library leads to a second run, in
    this call or in the next.
    """
    for error in errors:
        runs, last = attempts(error)
        assert runs == 1, (type(error), runs)
        verdict = classify(error)
        refused = verdict.certainty is Certainty.REJECTED and not verdict.retryable
        assert isinstance(last, ReplayedFailure if refused else InDoubt), (
            type(error),
            verdict,
            last,
        )


def test_a_write_of_one_request_runs_again_only_if_its_error_says_that_nothing_happened(errors):
    """And with `one_request`: a second run follows only what is classified as not sent, or
    refused.
    """
    for error in errors:
        verdict = classify(error)
        runs, last = attempts(error, one_request=True)
        assert runs == 1 or verdict.certainty in SURE, (type(error), verdict)
        if verdict.certainty not in SURE:
            assert isinstance(last, InDoubt), (type(error), verdict, last)
